# SPDX-License-Identifier: Apache-2.0
"""All managed ledgers of a process: opened once each, looked after together, closed in the end.

Owns the entry cache that they share and the round of upkeep. A name is Pulsar's persistence name, as
`tenant/namespace/persistent/topic` with the topic encoded; its record lies below /managed-ledgers.
Assembles.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from magnetar.config.managed_ledger import ManagedLedgerSettings
from magnetar.config.metadata import FORMAT_LEVEL_FIRST
from magnetar.errors import BadVersion, MagnetarError, ServiceNotReady
from magnetar.ledger.ledgers import Ledgers
from magnetar.managed_ledger.catalog import Catalog, names_below
from magnetar.managed_ledger.entry_cache import EntryCache
from magnetar.managed_ledger.ledger_record import LedgerRecord
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.opening import delete_log, take_over
from magnetar.managed_ledger.parts import LogParts, PersistListener, Surroundings
from magnetar.managed_ledger.read_budget import ReadBudget
from magnetar.managed_ledger.record_packing import RecordPacking
from magnetar.managed_ledger.shadow_ledger import ShadowLedger
from magnetar.managed_ledger.side_ledgers import SideLedgers
from magnetar.metadata.store import MetadataStore
from magnetar.runtime.clock import WallClock
from magnetar.runtime.tasks import Tasks

_CLOSED_AT_ONCE = 64

_log = logging.getLogger(__name__)


class _Home(NamedTuple):
    settings: ManagedLedgerSettings
    client: Ledgers


class ManagedLedgers:
    def __init__(
        self,
        store: MetadataStore,
        ledgers: Ledgers,
        clock: WallClock,
        tasks: Tasks,
        settings: ManagedLedgerSettings,
        *,
        format_level: Callable[[], int] = lambda: FORMAT_LEVEL_FIRST,
    ) -> None:
        self._store = store
        self._packing = RecordPacking(settings, format_level)
        self._settings = settings
        self._tasks = tasks
        self.cache = EntryCache(settings.cache_bytes_max, settings.cache_eviction_share)
        budget = ReadBudget(settings.read_bytes_in_flight_max)
        self._around = Surroundings(ledgers, clock, tasks, self.cache, budget)
        # For what is kept in ledgers and belongs to no log.
        self.side_ledgers = SideLedgers(_Home(settings, ledgers))
        self._open: dict[str, ManagedLedger] = {}
        self._opening: dict[str, None] = {}
        self._upkeep: asyncio.Task[None] | None = None
        self._is_closed = False

    async def open(
        self,
        name: str,
        listener: PersistListener,
        *,
        create: bool = True,
        settings: ManagedLedgerSettings | None = None,
        properties: Mapping[str, str] | None = None,
        source: str | None = None,
    ) -> ManagedLedger:
        """Take a log over from whoever had it: fence, recover, record, and only then serve.

        With a source it is a ShadowLedger, which shows that log's entries and never touches them. TopicNotFound when
        the log is absent and may not be made; ServiceNotReady when it is open here already.
        """
        if self._is_closed or name in self._open or name in self._opening:
            raise ServiceNotReady(f"{name} is open here already, or this process is closing")
        self._opening[name] = None
        try:
            log, closed = self._parts(name, settings), self._on_ledger_closed
            ledger = await (
                ManagedLedger.open(log, listener, create=create, properties=properties or {}, on_closed=closed)
                if source is None
                else ShadowLedger.open_shadow(
                    log,
                    Catalog(self._store, source),
                    listener,
                    create=create,
                    properties=properties or {},
                    on_closed=closed,
                )
            )
        finally:
            del self._opening[name]
        self._open[name] = ledger
        if self._upkeep is None:
            self._upkeep = self._tasks.start(self._look_after(), "managed ledgers: upkeep")
        return ledger

    @property
    def settings(self) -> ManagedLedgerSettings:
        """What holds for a log that is opened without settings of its own."""
        return self._settings

    async def create(self, name: str, properties: Mapping[str, str] | None = None) -> bool:
        """Put an empty log on record; its first ledger comes with its first owner. False when there is one already."""
        if name in self._open or name in self._opening or await self.exists(name):
            return False
        record = self._catalog(name).record
        if await record.read() is not None:
            # What a crash left of a log of this name goes first.
            await self.delete(name)
            await record.read()
        empty = LedgerRecord()
        empty.properties.update(properties or {})
        try:
            await record.write(empty.encode())
        except BadVersion:
            return False
        return True

    async def exists(self, name: str) -> bool:
        """True when there is a log of this name that is not on its way out."""
        found = await Catalog(self._store, name).record.read()
        return found is not None and not self._is_going(found.value)

    async def properties(self, name: str) -> dict[str, str]:
        """The properties of a log, open or not; none when it is absent."""
        found = await Catalog(self._store, name).record.read()
        return {} if found is None else LedgerRecord(found.value).properties

    async def names(self, prefix: str) -> list[str]:
        """The logs directly below a prefix such as `tenant/namespace/persistent`, sorted.

        One call however many there are, so a log whose deletion a crash has stopped is among them until it is finished.
        """
        return await names_below(self._store, prefix)

    async def delete(self, name: str) -> None:
        """Delete a log with all its ledgers and cursors; nothing happens when it is absent. Open or not."""
        ledger = self._open.get(name)
        if ledger is not None:
            await ledger.delete()
            return
        if not await Catalog(self._store, name).record.read():
            return
        log = self._parts(name, None)
        record = await take_over(log, create=True, properties={})
        await delete_log(log, record)

    async def close(self) -> None:
        """Close every log that is open; the first error is raised when all have been tried."""
        self._is_closed = True
        if self._upkeep is not None:
            self._upkeep.cancel()
        turns = asyncio.Semaphore(_CLOSED_AT_ONCE)

        async def close(ledger: ManagedLedger) -> MagnetarError | None:
            async with turns:
                try:
                    await ledger.close()
                except MagnetarError as error:
                    _log.warning("closing %s: %s", ledger.name, error)
                    return error
            return None

        for error in await asyncio.gather(*map(close, list(self._open.values()))):
            if error is not None:
                raise error

    # --- private --------------------------------------------------------------------------------

    def _parts(self, name: str, settings: ManagedLedgerSettings | None) -> LogParts:
        return LogParts(self._around, self._catalog(name), settings or self._settings)

    def _catalog(self, name: str) -> Catalog:
        return Catalog(self._store, name, self._packing)

    def _on_ledger_closed(self, ledger: ManagedLedger) -> None:
        if self._open.get(ledger.name) is ledger:
            del self._open[ledger.name]

    async def _look_after(self) -> None:
        while True:
            await self._around.clock.pause(self._settings.upkeep_interval_ms / 1000)
            for ledger in list(self._open.values()):
                ledger.upkeep()

    @staticmethod
    def _is_going(value: bytes) -> bool:
        return LedgerRecord(value).is_deleted
