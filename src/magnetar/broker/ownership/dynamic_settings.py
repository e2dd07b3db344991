# SPDX-License-Identifier: Apache-2.0
"""Settings that change while brokers run: one record for the whole cluster, which every broker follows.

The record is Pulsar's: /admin/configuration, texts by key. A text that a key does not allow is refused when it is set,
and passed over with a word in the log when someone else has written it.
Carries.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from magnetar.config.balance import BalanceSettings
from magnetar.config.keys import KEYS
from magnetar.config.values import KEEP_DEFAULT
from magnetar.errors import BadSetting, MagnetarError
from magnetar.metadata.store import Change, MetadataStore

CONFIGURATION_PATH: Final = "/admin/configuration"
# What a running broker can take over.
DYNAMIC_KEYS: Final = {key.name: key for key in KEYS if key.owner == "balance"}
_RECHECK_S: Final = 30.0

_log = logging.getLogger(__name__)


def check_dynamic(name: str, text: str) -> None:
    """BadSetting unless this key can be changed to this text while brokers run."""
    key = DYNAMIC_KEYS.get(name)
    if key is None:
        raise BadSetting(f"Can't update non-dynamic configuration: {name}")
    try:
        key.value.parse(text)
    except ValueError:
        raise BadSetting(f"{name}: {text!r} cannot be used: allowed is {key.value.allowed}") from None


def applied(settings: BalanceSettings, texts: Mapping[str, Any]) -> BalanceSettings:
    """The settings with these texts over them."""
    fields: dict[str, Any] = {}
    for name, text in texts.items():
        key = DYNAMIC_KEYS.get(name)
        if key is None:
            continue
        try:
            value = key.value.parse(str(text))
        except ValueError:
            _log.warning("%s: %r in %s cannot be used", name, text, CONFIGURATION_PATH)
            continue
        if value is not KEEP_DEFAULT:
            fields[key.field] = value
    return replace(settings, **fields)


class DynamicSettings:
    """Follows the record, and says what holds now."""

    def __init__(self, store: MetadataStore, settings: BalanceSettings) -> None:
        self._store = store
        self._started_with = settings
        self.current = settings
        self._wake = asyncio.Event()
        self._unwatch: Callable[[], None] = store.watch(CONFIGURATION_PATH, self._on_change)

    async def run(self) -> None:
        while True:
            self._wake.clear()
            try:
                record = await self._store.get(CONFIGURATION_PATH)
                self._take_over(applied(self._started_with, {} if record is None else _decoded(record.value)))
            except MagnetarError as error:
                _log.info("dynamic settings could not be read: %s", error)
            try:
                async with asyncio.timeout(_RECHECK_S):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def close(self) -> None:
        self._unwatch()

    def _take_over(self, wanted: BalanceSettings) -> None:
        before, self.current = self.current, wanted
        for what, old, new in (
            ("shedding", before.shedding, wanted.shedding),
            ("placement", before.placement, wanted.placement),
        ):
            if old != new:
                _log.info("the strategy of %s is %s now; it was %s", what, new, old)

    def _on_change(self, change: Change) -> None:
        self._wake.set()


def _decoded(value: bytes) -> dict[str, Any]:
    try:
        decoded = json.loads(value or b"{}")
    except (ValueError, RecursionError):
        return {}
    return decoded if isinstance(decoded, dict) else {}
