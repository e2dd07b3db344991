# SPDX-License-Identifier: Apache-2.0
"""Packed entries from the replicas of a ledger: one bookie after another, or beside another when the first is slow.

Every entry's digest is checked here. A bookie that lacks an entry, gives damaged bytes or does not answer is passed
over for the next of the write set; only when none is left does the read fail. Never knows where the ledger ends.
Carries.
"""

import asyncio
from collections.abc import Collection
from functools import partial
from typing import Final

from magnetar.errors import BookieUnavailable, Damaged, EntryUnknown, MagnetarError, NoSuchEntry
from magnetar.ledger.parts import LedgerParts
from magnetar.ledger.poll import Poll
from magnetar.ledger.quorum import Quorum
from magnetar.ledger.record import LedgerRecord
from magnetar.ledger.recovery import proves_absence
from magnetar.ledger.segments import Segment, last_entry_of, segment_index
from magnetar.wire.bookkeeper.entry import EntryPacker

# What an entry is taken to be before one was read.
_ENTRY_BYTES_GUESS: Final = 1024


class ReplicaReads:
    __slots__ = ("_avoided", "_entry_bytes", "_packer", "_parts", "_preferred")

    def __init__(self, packer: EntryPacker, parts: LedgerParts, avoided: Collection[str] = ()) -> None:
        self._packer = packer
        # Bookies that are asked last.
        self._avoided = frozenset(avoided)
        self._parts = parts
        # Where a sticky reader begins in an ensemble, so that one bookie's read-ahead serves it; moves on failure.
        self._preferred = int(parts.chance.random() * 2**16)
        self._entry_bytes = _ENTRY_BYTES_GUESS

    async def read(self, record: LedgerRecord, first: int, last: int, bytes_max: int) -> list[bytes]:
        """Entries from first on, at least one, none after last or after the end of first's segment."""
        index = segment_index(record.segments, first)
        segment = record.segments[index]
        last = last_entry_of(record.segments, index, last)
        if first == last or record.quorum.ensemble_size == record.quorum.write_quorum:
            entries = await self._from_any(record, segment, first, last, bytes_max)
        else:
            entries = await self._striped(record, segment, first, last, bytes_max)
        self._entry_bytes = max(sum(map(len, entries)) // len(entries), 1)
        return entries

    def at_hand(self, record: LedgerRecord, first: int, last: int, bytes_max: int) -> list[bytes]:
        """Those that the first bookie to ask has at hand and that are intact; none where `read` must be asked."""
        quorum = record.quorum
        if quorum.ensemble_size != quorum.write_quorum:
            return []
        index = segment_index(record.segments, first)
        segment = record.segments[index]
        last = last_entry_of(record.segments, index, last)
        bookie = segment.ensemble[self._members(quorum, segment, first)[0]]
        entries = self._parts.channels(bookie).at_hand(record.ledger_id, first, last - first + 1, bytes_max)
        return entries[: self._packer.count_intact(entries, first)] if entries else entries

    def order(self, quorum: Quorum, entry_id: int) -> tuple[int, ...]:
        """The members that hold an entry, in the order in which they are asked."""
        if self._parts.settings.sticky_reads and quorum.ensemble_size == quorum.write_quorum:
            return quorum.write_set(self._preferred)
        return quorum.write_set(entry_id)

    # --- private ------------------------------------------------------------------------------

    def _members(self, quorum: Quorum, segment: Segment, entry_id: int) -> list[int]:
        return sorted(self.order(quorum, entry_id), key=lambda member: segment.ensemble[member] in self._avoided)

    async def _striped(
        self, record: LedgerRecord, segment: Segment, first: int, last: int, bytes_max: int
    ) -> list[bytes]:
        """Neighbours lie on different bookies: ask for each by itself, many at once."""
        wanted = max(1, min(bytes_max // self._entry_bytes, self._parts.settings.read_entries_in_flight_max))
        last = min(last, first + wanted - 1)
        answers: dict[int, bytes | MagnetarError] = {}
        with Poll[int, list[bytes]](
            self._parts.tasks, self._parts.settings.read_timeout_ms * record.quorum.write_quorum
        ) as poll:
            for entry_id in range(first, last + 1):
                question = partial(self._from_any, record, segment, entry_id, entry_id, bytes_max)
                poll.ask(entry_id, question, f"read of ledger {record.ledger_id}")
            while poll.is_waiting:
                entry_id, answer = await poll.next()
                answers[entry_id] = answer if isinstance(answer, MagnetarError) else answer[0]
        entries: list[bytes] = []
        for entry_id in range(first, last + 1):
            answer_for_one = answers[entry_id]
            if isinstance(answer_for_one, MagnetarError):
                if not entries:
                    raise answer_for_one
                break
            bytes_max -= len(answer_for_one)
            if entries and bytes_max < 0:
                break
            entries.append(answer_for_one)
        return entries

    async def _from_any(
        self, record: LedgerRecord, segment: Segment, first: int, last: int, bytes_max: int
    ) -> list[bytes]:
        if self._parts.settings.speculative_read_timeout_ms:
            return await self._beside_each_other(record, segment, first, last, bytes_max)
        return await self._one_by_one(record, segment, first, last, bytes_max)

    async def _one_by_one(
        self, record: LedgerRecord, segment: Segment, first: int, last: int, bytes_max: int
    ) -> list[bytes]:
        errors: dict[str, MagnetarError] = {}
        for member in self._members(record.quorum, segment, first):
            bookie = segment.ensemble[member]
            try:
                async with asyncio.timeout(self._parts.settings.read_timeout_ms / 1000):
                    return await self._from_one(bookie, record.ledger_id, first, last, bytes_max)
            except TimeoutError:
                errors[bookie] = BookieUnavailable(f"No answer came within {self._parts.settings.read_timeout_ms} ms.")
            except MagnetarError as error:
                errors[bookie] = error
            self._on_failed(record.quorum, member)
        raise _summary(record.ledger_id, first, errors)

    async def _beside_each_other(
        self, record: LedgerRecord, segment: Segment, first: int, last: int, bytes_max: int
    ) -> list[bytes]:
        """Speculative: whoever is slow gets company, and the first good answer is taken."""
        order = self._members(record.quorum, segment, first)
        delay_ms = self._parts.settings.speculative_read_timeout_ms
        errors: dict[str, MagnetarError] = {}
        with Poll[int, list[bytes]](self._parts.tasks, self._parts.settings.read_timeout_ms) as poll:
            for i, member in enumerate(order):
                question = partial(self._from_one, segment.ensemble[member], record.ledger_id, first, last, bytes_max)
                poll.ask(member, question, f"read of ledger {record.ledger_id}")
                while poll.is_waiting:
                    found = await (poll.next() if i == len(order) - 1 else poll.next_within(delay_ms))
                    if found is None:
                        break
                    if not isinstance(found[1], MagnetarError):
                        return found[1]
                    errors[segment.ensemble[found[0]]] = found[1]
                    self._on_failed(record.quorum, found[0])
        raise _summary(record.ledger_id, first, errors)

    async def _from_one(self, bookie: str, ledger_id: int, first: int, last: int, bytes_max: int) -> list[bytes]:
        channel = self._parts.channels(bookie)
        if first == last or not self._parts.settings.batch_reads:
            entries = [await channel.read(ledger_id, first)]
        else:
            entries = await channel.read_batch(ledger_id, first, last - first + 1, bytes_max)
        intact = self._packer.count_intact(entries, first)
        if intact == 0:
            # Says what is wrong with it.
            self._packer.unpack(entries[0], first)
        return entries if intact == len(entries) else entries[:intact]

    def _on_failed(self, quorum: Quorum, member: int) -> None:
        if self._preferred % quorum.ensemble_size == member:
            self._preferred += 1


def _summary(ledger_id: int, entry_id: int, errors: dict[str, MagnetarError]) -> MagnetarError:
    """One error for what every replica said: absent only when all of them say so."""
    story = "; ".join(f"{bookie}: {error}" for bookie, error in errors.items())
    text = f"Entry {entry_id} of ledger {ledger_id} cannot be read: {story}"
    if all(proves_absence(error) for error in errors.values()):
        return NoSuchEntry(text)
    if any(isinstance(error, Damaged) for error in errors.values()):
        return EntryUnknown(text)
    return BookieUnavailable(text)
