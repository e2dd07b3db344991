# SPDX-License-Identifier: Apache-2.0
"""One ledger being read: any replica that holds an entry, another when it fails, digests always checked.

Owns the reader's view of the record, kept fresh by a watch while the ledger is not closed. Never gives an entry after
the end of a closed ledger or after the last add confirmed that it knows of an open one. `replica_reads.py` asks the
bookies.
Carries.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from magnetar.errors import MagnetarError, NoSuchEntry
from magnetar.ledger.catalog import Versioned
from magnetar.ledger.channel import LastConfirmed
from magnetar.ledger.parts import LedgerParts
from magnetar.ledger.poll import Poll
from magnetar.ledger.record import LedgerRecord
from magnetar.ledger.recovery import CoverageRound, Verdict, confirmed_in, proves_absence
from magnetar.ledger.replica_reads import ReplicaReads
from magnetar.wire.bookkeeper.entry import EntryPacker

# In a poll of bookies by member: the ledger's record, which is asked beside them.
_RECORD: Final = -1


class LedgerReader:
    __slots__ = (
        "_confirmed",
        "_end_watch",
        "_is_stale",
        "_known",
        "_packer",
        "_parts",
        "_replicas",
        "_stir",
        "ledger_id",
    )

    def __init__(self, known: Versioned, parts: LedgerParts) -> None:
        record = known.record
        self.ledger_id: Final = record.ledger_id
        self._known = known
        self._parts = parts
        self._packer = EntryPacker(record.ledger_id, record.digest, record.password)
        self._replicas = ReplicaReads(self._packer, parts)
        self._confirmed = -1
        self._is_stale = False
        self._stir: asyncio.Future[None] | None = None
        # A closed ledger changes only when copies are moved: then a failed read looks at the record again.
        self._end_watch: Callable[[], None] | None = None
        if not record.is_closed:
            self._end_watch = parts.catalog.watch(record.ledger_id, self._on_record_changed)

    # --- questions ----------------------------------------------------------------------------

    @property
    def record(self) -> LedgerRecord:
        return self._known.record

    @property
    def is_closed(self) -> bool:
        return self._known.record.is_closed

    @property
    def last_entry(self) -> int:
        """The last entry of a closed ledger; of an open one the last add confirmed that this reader knows."""
        return self._known.record.last_entry if self.is_closed else self._confirmed

    @property
    def length(self) -> int:
        """Body bytes of a closed ledger; 0 while it is open."""
        return self._known.record.length

    # --- reading ------------------------------------------------------------------------------

    async def read(self, first: int, last: int, *, bytes_max: int) -> list[memoryview]:
        """Bodies from first on: at least one, none after last, about bytes_max together. NoSuchEntry after the end."""
        return await self._bodies(first, min(last, self.last_entry), bytes_max)

    async def read_unconfirmed(self, first: int, last: int, *, bytes_max: int) -> list[memoryview]:
        """As read, but whatever the bookies hold: such entries may vanish when the ledger is recovered."""
        return await self._bodies(first, min(last, self.last_entry) if self.is_closed else last, bytes_max)

    def at_hand(self, first: int, last: int, *, bytes_max: int) -> list[memoryview]:
        """Those bodies that `read_unconfirmed` would give without waiting; none: ask that."""
        last = min(last, self.last_entry) if self.is_closed else last
        if self._is_stale or not 0 <= first <= last:
            return []
        try:
            entries = self._replicas.at_hand(self.record, first, last, bytes_max)
        except MagnetarError:
            return []
        header = self._packer.header_bytes
        return [memoryview(entry)[header:] for entry in entries]

    async def read_last_confirmed(self, *, of_all: bool = False) -> int:
        """Ask the bookies of an open ledger how far it is confirmed; a closed one answers itself. Never goes back.

        `of_all` waits for every bookie, not only for as many as must know: one that lost its copy may answer first.
        """
        await self._refresh()
        if self.is_closed:
            return self.last_entry
        quorum, tail = self.record.quorum, self.record.last_segment
        asking = CoverageRound(quorum, tail.first_entry)
        with Poll[int, LastConfirmed](self._parts.tasks, self._parts.settings.read_timeout_ms) as poll:
            for member, bookie in enumerate(tail.ensemble):
                question = partial(self._parts.channels(bookie).last_confirmed, self.ledger_id)
                poll.ask(member, question, f"last confirmed of ledger {self.ledger_id}")
            while asking.verdict is Verdict.OPEN or (of_all and poll.is_waiting):
                member, answer = await poll.next()
                if isinstance(answer, LastConfirmed):
                    asking.on_answered(member, max(confirmed_in(answer, self._packer), answer.last_add_confirmed))
                elif proves_absence(answer):
                    asking.on_answered(member, -1)
                else:
                    asking.on_unknown(member, answer)
        if asking.verdict is Verdict.STUCK:
            raise next(iter(asking.unknown.values()))
        self._confirmed = max(self._confirmed, asking.start)
        return self.last_entry

    async def wait_for_confirmed(self, beyond: int, *, timeout_ms: int) -> int:
        """The last add confirmed, as soon as some bookie knows one beyond this number, or when the time is up.

        A ledger that closes meanwhile answers with its end. Never goes back.
        """
        await self._refresh()
        if self.is_closed or self.last_entry > beyond:
            return self.last_entry
        tail = self.record.last_segment
        with Poll[int, LastConfirmed](self._parts.tasks, self._parts.settings.read_timeout_ms + timeout_ms) as poll:
            for member, bookie in enumerate(tail.ensemble):
                question = partial(
                    self._parts.channels(bookie).last_confirmed_beyond, self.ledger_id, beyond, timeout_ms
                )
                poll.ask(member, question, f"confirmations of ledger {self.ledger_id}")
            poll.ask(_RECORD, self._until_record_changes, f"record of ledger {self.ledger_id}")
            unheard = len(tail.ensemble)
            while unheard and self._confirmed <= beyond and not self._is_stale:
                member, answer = await poll.next()
                unheard -= member != _RECORD
                if isinstance(answer, LastConfirmed):
                    self._confirmed = max(self._confirmed, answer.last_add_confirmed)
        await self._refresh()
        return self.last_entry

    def close(self) -> None:
        if self._end_watch is not None:
            self._end_watch()
            self._end_watch = None

    # --- private ------------------------------------------------------------------------------

    async def _bodies(self, first: int, last: int, bytes_max: int) -> list[memoryview]:
        if not 0 <= first <= last:
            raise NoSuchEntry(f"Ledger {self.ledger_id} ends at entry {last} for this reader; {first} was asked for.")
        await self._refresh()
        try:
            entries = await self._replicas.read(self.record, first, last, bytes_max)
        except MagnetarError:
            before = self.record.segments
            self._is_stale = True
            await self._refresh()
            if self.record.segments == before:
                raise
            entries = await self._replicas.read(self.record, first, last, bytes_max)
        header = self._packer.header_bytes
        return [memoryview(entry)[header:] for entry in entries]

    def _on_record_changed(self) -> None:
        self._is_stale = True
        if self._stir is not None and not self._stir.done():
            self._stir.set_result(None)

    async def _until_record_changes(self) -> LastConfirmed:
        """As a bookie that has nothing to say until the ledger is closed or its bookies change."""
        if not self._is_stale:
            self._stir = asyncio.get_running_loop().create_future()
            await self._stir
        return LastConfirmed(-1, None)

    async def _refresh(self) -> None:
        if self._is_stale:
            self._is_stale = False
            self._known = await self._parts.catalog.load(self.ledger_id)
            if self.is_closed:
                self.close()
