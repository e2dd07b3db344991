# SPDX-License-Identifier: Apache-2.0
"""What the checks of everything that is shipped have in common: where it is, and whether `magnetar` would take it."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest
from typer.main import get_command

from magnetar.cli.main import app
from magnetar.cli.role_commands import COMMANDS
from magnetar.config.key import ROLES
from magnetar.config.keys import KEYS
from magnetar.config.load import PULSAR_PREFIX, NoticeLevel, load_settings

DEPLOY = Path(__file__).parents[2] / "deploy"


def skip_or_fail(reason: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(f"NOT TESTED: {reason}")


def check_command(words: Sequence[str]) -> None:
    """Every word is one that `magnetar` knows, whatever its values."""
    verbs: Any = get_command(app)
    verb = verbs.commands[words[0]]
    known = {name for parameter in verb.params for name in parameter.opts}
    if words[0] in COMMANDS:
        known = {name for each in COMMANDS[words[0]].flags for name in each.names}
    for word in words[1:]:
        if word.startswith("--") and verb.name not in ("metadata",):
            assert word.partition("=")[0] in known, f"magnetar {words[0]} has no {word}"


def check_settings(words: Sequence[str], environment: Mapping[str, str]) -> None:
    """A role heeds every variable, and has nothing to say about its value."""
    role = words[0]
    if role not in ROLES:
        assert not environment, f"magnetar {role} reads no settings"
        return
    heeded = {key.name for key in KEYS if not key.roles or role in key.roles}
    unknown = [name for name in environment if name.removeprefix(PULSAR_PREFIX) not in heeded]
    assert not unknown, f"a {role} has no settings {unknown}"
    notices = load_settings(environ=environment, role=role).notices
    assert not [notice.text for notice in notices if notice.level is NoticeLevel.WARNING]
