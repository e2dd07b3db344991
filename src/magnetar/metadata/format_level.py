# SPDX-License-Identifier: Apache-2.0
"""The format level as one process knows it: read before anything is written, followed by a watch, raised by the leader.

Raising takes two writes. The first proposes: whoever joins from then on must be able to read the new level. Then the
members are listed anew, and the second write raises, or takes the proposal back. A member registers first and reads
the level after, so that one of the two sees the other. Never decides who the members are.
Carries.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from magnetar.errors import BadVersion, CannotStart, MagnetarError
from magnetar.metadata.format_level_record import (
    PATH,
    LevelRecord,
    common_level,
    decode,
    encode,
    held_back_by,
)
from magnetar.metadata.store import MUST_NOT_EXIST, MetadataStore

Announced = Callable[[], Awaitable[Mapping[str, int]]]

_RECHECK_S: Final = 30.0

_log = logging.getLogger(__name__)


class FormatLevel:
    def __init__(self, store: MetadataStore, highest: int) -> None:
        self._store = store
        # What this process can read and write.
        self.highest = highest
        self._record = LevelRecord()

    @property
    def current(self) -> int:
        """What may be written now."""
        return self._record.level

    async def check(self) -> None:
        """Read the level. NewerFormat when this process must not join; CannotStart when the record is damaged."""
        record = (await self._read())[0]
        record.refuse_unless_readable(self.highest, joins=True)
        self._record = record

    async def follow(self) -> None:
        """Know of every rise. Ends with NewerFormat when the level has passed what this process can read."""
        changed = asyncio.Event()
        unwatch = self._store.watch(PATH, lambda _: changed.set())
        try:
            while True:
                changed.clear()
                try:
                    record = (await self._read())[0]
                except CannotStart:
                    raise
                except MagnetarError as error:
                    _log.info("the format level could not be read: %s", error)
                else:
                    record.refuse_unless_readable(self.highest, joins=False)
                    self._record = record
                try:
                    async with asyncio.timeout(_RECHECK_S):
                        await changed.wait()
                except TimeoutError:
                    continue
        finally:
            unwatch()

    async def raise_to(self, level: int, announced: Announced) -> bool:
        """Raise the level unless a member cannot read it. False when it stays as it is."""
        record, version = await self._read()
        if record.level >= level:
            return False
        version = await self._write(LevelRecord(record.level, level), version)
        held_back = held_back_by(await announced(), level)
        if held_back:
            await self._write(LevelRecord(record.level), version)
            _log.info("format level %d has to wait for %s", level, ", ".join(held_back))
            return False
        await self._write(LevelRecord(level), version)
        self._record = LevelRecord(level)
        _log.warning("the format level is %d now: versions that cannot read it cannot join any more", level)
        return True

    async def drop_proposal(self, announced: Mapping[str, int]) -> None:
        """Take back what a former leader proposed and did not live to decide, when a member cannot read it."""
        record, version = await self._read()
        if record.proposed > common_level(announced):
            await self._write(LevelRecord(record.level), version)

    async def _read(self) -> tuple[LevelRecord, int]:
        found = await self._store.get(PATH)
        return (decode(None), MUST_NOT_EXIST) if found is None else (decode(found.value), found.version)

    async def _write(self, record: LevelRecord, version: int) -> int:
        try:
            return (await self._store.put(PATH, encode(record), expected_version=version)).version
        except BadVersion:
            _log.info("another leader changes the format level")
            raise
