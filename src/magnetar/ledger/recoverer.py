# SPDX-License-Identifier: Apache-2.0
"""Recovery carried out: put IN_RECOVERY on record, fence, read on from the last add confirmed, write back, close.

Several clients may recover one ledger at once, and each may die at any step: nothing but the two versioned writes of
the record changes what others see, and the close that is stored first is everybody's. `recovery.py` decides what the
answers prove. Never closes on a guess: when bookies that are needed do not answer, BookieUnavailable names them.
Carries.
"""

import logging
from functools import partial
from typing import Final

from magnetar.errors import BadVersion, BookieUnavailable, DigestMismatch, MagnetarError
from magnetar.ledger.catalog import Versioned
from magnetar.ledger.channel import BookieChannel, LastConfirmed
from magnetar.ledger.parts import LedgerParts
from magnetar.ledger.poll import Poll
from magnetar.ledger.record import LedgerRecord
from magnetar.ledger.recovery import CoverageRound, EntryRound, Verdict, confirmed_in, proves_absence
from magnetar.ledger.replica_reads import ReplicaReads
from magnetar.ledger.segments import Segment
from magnetar.ledger.tail_writer import TailWriter
from magnetar.wire.bookkeeper.entry import EntryPacker, length_of

_log = logging.getLogger(__name__)


class Recoverer:
    """Recovers one ledger once. Make another to try again."""

    __slots__ = ("_known", "_ledger_id", "_packer", "_parts", "_tail")

    def __init__(self, known: Versioned, parts: LedgerParts) -> None:
        record = known.record
        self._known = known
        self._ledger_id: Final = record.ledger_id
        self._parts = parts
        self._packer = EntryPacker(record.ledger_id, record.digest, record.password)
        self._tail: Segment = record.last_segment

    async def recover(self) -> Versioned:
        """The closed ledger's record. BookieUnavailable when bookies that are needed do not answer."""
        for _ in range(self._parts.settings.recovery_attempts_max):
            await self._mark()
            if self._known.record.is_closed:
                return self._known
            self._tail = self._known.record.last_segment
            tail = await self._rewrite(await self._fence())
            try:
                length = await self._length_at(tail.record, tail.last_entry)
                closed = tail.record.closed(tail.last_entry, length)
                self._known = await self._parts.catalog.replace(self._known, closed)
                _log.info("ledger %d recovered: closed at entry %d", self._ledger_id, tail.last_entry)
                return self._known
            except BadVersion:
                # Another recoverer closed it, or a repair moved a copy: look again, and start over when still open.
                self._known = await self._parts.catalog.load(self._ledger_id)
        raise BookieUnavailable(f"Ledger {self._ledger_id}: its record keeps changing; recovery was given up.")

    async def _mark(self) -> None:
        while self._known.record.is_open:
            try:
                self._known = await self._parts.catalog.replace(self._known, self._known.record.in_recovery())
            except BadVersion:
                self._known = await self._parts.catalog.load(self._ledger_id)

    # --- fencing ------------------------------------------------------------------------------

    async def _fence(self) -> int:
        quorum = self._known.record.quorum
        key = self._packer.master_key
        fencing = CoverageRound(quorum, self._tail.first_entry)
        with Poll[int, LastConfirmed](self._parts.tasks, self._parts.settings.recovery_read_timeout_ms) as poll:
            for member in range(quorum.ensemble_size):
                question = partial(self._channel(member).last_confirmed, self._ledger_id, fence_key=key)
                poll.ask(member, question, f"fence ledger {self._ledger_id}")
            while fencing.verdict is Verdict.OPEN:
                member, answer = await poll.next()
                if isinstance(answer, LastConfirmed):
                    fencing.on_answered(member, confirmed_in(answer, self._packer))
                elif proves_absence(answer):
                    fencing.on_answered(member, -1)
                else:
                    fencing.on_unknown(member, answer)
        if fencing.verdict is Verdict.STUCK:
            raise self._stuck("cannot be fenced", fencing.unknown)
        return fencing.start

    # --- reading on ---------------------------------------------------------------------------

    async def _rewrite(self, start: int) -> TailWriter:
        """Write back every entry after start up to the first that is proven absent."""
        tail = TailWriter(self._known.record, start, self._packer.master_key, self._parts)
        settings = self._parts.settings
        answers: dict[int, bytes | MagnetarError | None] = {}
        asked = start
        # Each read has a deadline of its own, within this one.
        with Poll[int, bytes | None](self._parts.tasks, 2 * settings.recovery_read_timeout_ms) as poll:
            while True:
                # As many ahead as were found so far, up to a bound: most tails are short.
                found = tail.last_entry - start
                while asked < tail.last_entry + min(found + 1, settings.recovery_reads_in_flight_max):
                    asked += 1
                    poll.ask(asked, partial(self._read, asked), f"recovery read of ledger {self._ledger_id}")
                while tail.last_entry + 1 not in answers:
                    entry_id, answer = await poll.next()
                    answers[entry_id] = answer
                entry = answers.pop(tail.last_entry + 1)
                if isinstance(entry, MagnetarError):
                    raise entry
                if entry is None:
                    break
                tail.append(entry)
                await tail.drain(settings.recovery_entries_in_flight_max)
        await tail.drain()
        return tail

    async def _read(self, entry_id: int) -> bytes | None:
        """The entry from whichever bookie has it; None when its absence is proven. These reads fence, too (R4)."""
        quorum = self._known.record.quorum
        key = self._packer.master_key
        reading = EntryRound(quorum)
        with Poll[int, bytes](self._parts.tasks, self._parts.settings.recovery_read_timeout_ms) as poll:
            for member in quorum.write_set(entry_id):
                question = partial(self._channel(member).read, self._ledger_id, entry_id, fence_key=key)
                poll.ask(member, question, f"recovery read of ledger {self._ledger_id}")
            while reading.verdict is Verdict.OPEN:
                member, answer = await poll.next()
                if isinstance(answer, MagnetarError):
                    reading.on_error(member, answer)
                    continue
                try:
                    self._packer.unpack(answer, entry_id)
                except DigestMismatch as error:
                    reading.on_error(member, error)
                    continue
                reading.on_found(member)
                return answer
        if reading.verdict is Verdict.STUCK:
            raise self._stuck(f"may or may not hold entry {entry_id}", reading.unknown)
        return None

    async def _length_at(self, record: LedgerRecord, last_entry: int) -> int:
        """Body bytes up to the last entry, as its own header says; a statistic, so what cannot be read counts 0."""
        if last_entry < 0:
            return 0
        try:
            replicas = ReplicaReads(self._packer, self._parts)
            return length_of((await replicas.read(record, last_entry, last_entry, bytes_max=1))[0])
        except MagnetarError as error:
            _log.warning("ledger %d: length unknown, its last entry cannot be read: %s", self._ledger_id, error)
            return 0

    # --- private ------------------------------------------------------------------------------

    def _channel(self, member: int) -> BookieChannel:
        return self._parts.channels(self._tail.ensemble[member])

    def _stuck(self, what: str, unknown: dict[int, MagnetarError]) -> BookieUnavailable:
        needed = "; ".join(f"{self._tail.ensemble[member]}: {error}" for member, error in sorted(unknown.items()))
        return BookieUnavailable(f"Ledger {self._ledger_id} {what} until these bookies answer: {needed}")
