# SPDX-License-Identifier: Apache-2.0
"""The table has no holes: every row fits its class, every field can be set, every default is allowed by its row."""

from dataclasses import fields
from typing import get_type_hints

import pytest

from magnetar.config.key import ROLES, Key
from magnetar.config.keys import CAUTIONS, KEYS, ORDERS, OWNERS, ROLE_DEFAULTS, ROLE_LIMITS
from magnetar.config.known_keys import KNOWN_KEYS
from magnetar.config.load import Settings, _folded, load_settings
from magnetar.config.own_meanings import OWN_MEANINGS
from magnetar.config.values import Whole


def identity(key: Key) -> str:
    return f"{key.name}-{key.owner}"


@pytest.mark.parametrize("key", KEYS, ids=identity)
def test_each_row_fits_its_field(key: Key) -> None:
    settings = OWNERS[key.owner]
    assert key.field in {field.name for field in fields(settings)}
    assert key.value.allowed
    assert set(key.roles) <= set(ROLES)
    assert key.name in KNOWN_KEYS or key.name == f"{key.owner}.{key.field}"


@pytest.mark.parametrize("key", [key for key in KEYS if isinstance(key.value, Whole)], ids=identity)
def test_each_default_is_one_that_its_key_could_give(key: Key) -> None:
    assert isinstance(key.value, Whole)
    default = getattr(OWNERS[key.owner](), key.field)
    assert key.value.least * key.value.factor <= default <= key.value.most * key.value.factor or default == -1


def test_every_field_of_every_owner_can_be_set() -> None:
    reachable = {(key.owner, key.field) for key in KEYS}
    for owner, settings in OWNERS.items():
        assert {(owner, field.name) for field in fields(settings)} <= reachable


def test_settings_hold_every_owner() -> None:
    hints = get_type_hints(Settings)
    assert {name: hints[name] for name in OWNERS} == OWNERS


def test_no_two_keys_look_alike_in_the_environment() -> None:
    names = sorted({key.name for key in KEYS})
    assert len({_folded(name) for name in names}) == len(names)


def test_rules_name_real_fields_and_roles() -> None:
    defaults = load_settings()
    for order in ORDERS:
        assert getattr(getattr(defaults, order.owner), order.field) <= getattr(
            getattr(defaults, order.larger_owner), order.larger_field
        )
    assert {name for name, _ in CAUTIONS} <= {key.name for key in KEYS}
    assert set(ROLE_DEFAULTS) <= set(ROLES)
    assert set(ROLE_LIMITS) <= set(ROLES)
    for role in ROLES:
        load_settings(role=role)


def test_upstream_rows_say_what_they_mean() -> None:
    for key in KEYS:
        if key.name in KNOWN_KEYS:
            assert key.meaning.endswith("."), key.name


def test_meanings_of_our_own_keys_belong_to_keys() -> None:
    assert set(OWN_MEANINGS) <= {key.name for key in KEYS}
