# SPDX-License-Identifier: Apache-2.0
"""What the parts of one managed ledger share: its name, its ledgers, its record, and what they borrow from outside.

Carries.
"""

from collections.abc import Callable
from typing import Protocol

from magnetar.config.managed_ledger import ManagedLedgerSettings
from magnetar.errors import MagnetarError
from magnetar.ids import Position
from magnetar.ledger.ledgers import Ledgers
from magnetar.ledger.placement import Affinity, affinity_metadata
from magnetar.ledger.reader import LedgerReader
from magnetar.ledger.writer import LedgerWriter, WriterListener
from magnetar.managed_ledger.catalog import Catalog
from magnetar.managed_ledger.entry_cache import EntryCache
from magnetar.managed_ledger.ledger_list import LedgerList
from magnetar.managed_ledger.ledger_tail import LedgerTail
from magnetar.managed_ledger.pending_operations import Operation, PendingOperations
from magnetar.managed_ledger.read_budget import ReadBudget
from magnetar.runtime.clock import WallClock
from magnetar.runtime.tasks import Tasks
from magnetar.wire.bookkeeper.digest import DIGEST_BYTES, DigestType
from magnetar.wire.bookkeeper.entry import METADATA_BYTES


class PersistListener(Protocol):
    """Whoever appends. Both calls come from the loop, never from inside `append`."""

    def on_persisted(self, ledger_id: int, first_entry: int, last_entry: int) -> None:
        """The next appends, in order, are entries first..last of this ledger and will stay."""

    def on_append_failed(self, count: int, error: MagnetarError) -> None:
        """The oldest waiting appends fail; the managed ledger takes no more and should be closed and opened anew."""


class Surroundings:
    """What every managed ledger of a process shares."""

    __slots__ = ("cache", "clock", "ledgers", "read_budget", "tasks")

    def __init__(
        self, ledgers: Ledgers, clock: WallClock, tasks: Tasks, cache: EntryCache, read_budget: ReadBudget
    ) -> None:
        self.ledgers = ledgers
        self.clock = clock
        self.tasks = tasks
        self.cache = cache
        self.read_budget = read_budget


class LogParts:
    """One managed ledger's own, for its parts."""

    __slots__ = (
        "cache",
        "catalog",
        "client",
        "clock",
        "ledgers",
        "name",
        "on_fenced",
        "on_ledger_ended",
        "pending",
        "read_budget",
        "settings",
        "tails",
        "tasks",
    )

    def __init__(self, around: Surroundings, catalog: Catalog, settings: ManagedLedgerSettings) -> None:
        self.name = catalog.name
        self.catalog = catalog
        self.settings = settings
        self.clock = around.clock
        self.client = around.ledgers
        self.tasks = around.tasks
        self.cache = around.cache
        self.read_budget = around.read_budget
        self.ledgers = LedgerList()
        self.pending = PendingOperations()
        # By ledger: the newest entries, of the ledger that is written and of those before it that are still cached.
        self.tails: dict[int, LedgerTail] = {}
        # Told when any record proves that another owner has taken over.
        self.on_fenced: Callable[[MagnetarError], None] = _ignore
        # Told when a ledger was closed on record, or another one is to be deleted.
        self.on_ledger_ended: Callable[[], None] = _ignore_end

    @property
    def header_bytes(self) -> int:
        return METADATA_BYTES + DIGEST_BYTES[DigestType[self.settings.digest]]

    async def create_ledger(
        self, ledger_id: int, listener: WriterListener, *, of_cursor: str | None = None
    ) -> LedgerWriter:
        """A new ledger that says in its metadata whose it is. Its id is reserved and on record before."""
        settings = self.settings
        whose = {} if of_cursor is None else {"pulsar/cursor": of_cursor.encode()}
        with self.pending.counted(Operation.CREATE, of_cursor=of_cursor is not None):
            return await self.client.create(
                ensemble_size=settings.ensemble_size,
                write_quorum=settings.write_quorum,
                ack_quorum=settings.ack_quorum,
                digest=DigestType[settings.digest],
                password=settings.password,
                custom_metadata={
                    "application": b"pulsar",
                    "component": b"managed-ledger",
                    "pulsar/managed-ledger": self.name.encode(),
                    **affinity_metadata(Affinity(settings.bookie_groups, settings.bookie_groups_secondary)),
                    **whose,
                },
                listener=listener,
                ledger_id=ledger_id,
            )

    async def open_ledger(self, ledger_id: int, *, of_cursor: bool = False) -> LedgerReader:
        """With recovery: whoever writes it is fenced."""
        with self.pending.counted(Operation.OPEN, of_cursor=of_cursor):
            return await self.client.open(ledger_id, password=self.settings.password)

    async def read_ledger(self, ledger_id: int) -> LedgerReader:
        """Without recovery: whoever writes it goes on."""
        with self.pending.counted(Operation.OPEN):
            return await self.client.open_without_recovery(ledger_id, password=self.settings.password)

    async def close_ledger(self, writer: LedgerWriter, *, of_cursor: bool = False) -> None:
        with self.pending.counted(Operation.CLOSE, of_cursor=of_cursor):
            await writer.close()

    async def delete_ledger(self, ledger_id: int, *, of_cursor: bool = False) -> None:
        """NoSuchLedger when there is none."""
        with self.pending.counted(Operation.DELETE, of_cursor=of_cursor):
            await self.client.delete(ledger_id)

    def existing_place(self, position: Position) -> Position:
        """A recorded mark-delete as it must be read now: its ledger may be gone, or it may be ahead of a lost tail."""
        ledgers = self.ledgers
        last = ledgers.last_position
        if position > last:
            return last
        span = ledgers.span(position.ledger_id)
        if span is not None:
            return Position(span.ledger_id, min(position.entry_id, span.entries - 1))
        for span in ledgers:
            if span.ledger_id > position.ledger_id:
                return Position(span.ledger_id, -1)
        return last


def _ignore(_error: MagnetarError) -> None:
    return


def _ignore_end() -> None:
    return
