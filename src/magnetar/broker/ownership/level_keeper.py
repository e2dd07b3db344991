# SPDX-License-Identifier: Apache-2.0
"""The leader's care for the format level: raises it when every member has announced the next one for long enough.

Until then any member may go back to the version before. Members are the brokers that are registered, and every bookie
of ours that has a cookie, whether it runs or not; bookies of Apache's have formats of their own and are not asked.
Carries.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from magnetar.broker.ownership.load_data import decode_load
from magnetar.broker.ownership.membership import BROKERS_ROOT
from magnetar.config.metadata import FORMAT_LEVEL_FIRST
from magnetar.errors import DamagedRecord, MagnetarError
from magnetar.metadata.format_level import Announced, FormatLevel
from magnetar.metadata.format_level_record import announced_level, common_level, held_back_by
from magnetar.metadata.store import MetadataStore
from magnetar.wire.bookkeeper.registry import (
    AVAILABLE,
    BOOTS,
    COOKIES,
    FORMAT_LEVEL_PROPERTY,
    READONLY,
    listed_property,
)

_LOOK_MIN_S: Final = 1.0
_LOOK_MAX_S: Final = 60.0

_log = logging.getLogger(__name__)


class LevelKeeper:
    def __init__(
        self,
        level: FormatLevel,
        announced: Announced,
        is_leader: Callable[[], bool],
        delay_ms: Callable[[], int],
    ) -> None:
        self._level = level
        self._announced = announced
        self._is_leader = is_leader
        self._delay_ms = delay_ms
        # Which level all could read when we last looked, and since when.
        self._common = FORMAT_LEVEL_FIRST
        self._since_s = 0.0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(min(_LOOK_MAX_S, max(_LOOK_MIN_S, self._delay_ms() / 10_000)))
            if not self._is_leader():
                self._common = FORMAT_LEVEL_FIRST
                continue
            try:
                await self.look()
            except MagnetarError as error:
                _log.info("this look at the format level decided nothing: %s", error)

    async def look(self) -> bool:
        """Raise the level if the time has come; True when it was raised."""
        announced = await self._announced()
        common, now_s = common_level(announced), asyncio.get_running_loop().time()
        if common != self._common:
            self._common, self._since_s = common, now_s
            await self._level.drop_proposal(announced)
        if common <= self._level.current or (now_s - self._since_s) * 1000 < self._delay_ms():
            return False
        return await self._level.raise_to(common, self._announced)

    async def explain(self) -> dict[str, object]:
        """What may be written, what each member can read, and who holds the next level back."""
        announced, level = await self._announced(), self._level.current
        return {
            "level": level,
            "members": dict(announced),
            "heldBackBy": held_back_by(announced, level + 1) if level < self._level.highest else [],
        }


async def announced_in(store: MetadataStore) -> Mapping[str, int]:
    """What every member of the cluster says that it can read, from the store itself and from no cache."""
    found: dict[str, int] = {}
    for broker_id in await store.children(BROKERS_ROOT):
        record = await store.get(f"{BROKERS_ROOT}/{broker_id}")
        if record is not None:
            found[f"broker {broker_id}"] = _of_broker(record.value)
    ours = {*await store.children(BOOTS)} & {*await store.children(COOKIES)}
    for bookie in sorted(ours):
        listing = await store.get(f"{AVAILABLE}/{bookie}") or await store.get(f"{READONLY}/{bookie}")
        said = "" if listing is None else listed_property(listing.value, FORMAT_LEVEL_PROPERTY)
        found[f"bookie {bookie}"] = announced_level(said)
    return found


def _of_broker(value: bytes) -> int:
    try:
        return decode_load(value).format_level
    except DamagedRecord:
        return FORMAT_LEVEL_FIRST
