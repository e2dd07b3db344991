# SPDX-License-Identifier: Apache-2.0
"""Finding an entry: write caches, then what was read ahead, then index and entry log.

Owns the read cache and the bound on reads that wait for a disk. A ledger is read by one at a time, in the order they
came: what the first reads ahead serves all that wait at once, and a slow ledger holds up only itself. Gives bytes,
None for "not here", or EntryUnknown; whether None proves an absence is for the caller to say.
Carries.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Sequence
from typing import Final, NamedTuple, TypeVar

from magnetar.bookie.counts import BookieCounts
from magnetar.bookie.entry_log_format import RECORD_OVERHEAD_BYTES
from magnetar.bookie.entry_run import EntryRun
from magnetar.bookie.ledger_directory import LedgerDirectory
from magnetar.bookie.read_cache import ReadCache
from magnetar.bookie.read_trails import ReadTrails
from magnetar.bookie.write_cache import WriteCaches
from magnetar.config.bookie import BookieSettings
from magnetar.errors import Damaged, EntryUnknown, TooManyRequests

Result = TypeVar("Result")

_IDS_PER_SCAN: Final = 10_000
# Whoever asks for much gets this much of it at once, from memory or by one read of the disk.
_ASKED_BYTES_MAX: Final = 1024 * 1024
_ASKED_ENTRIES_MAX: Final = 1_000
# Of those who waited for a read, so many are answered in one turn of the loop.
_SERVED_PER_TURN: Final = 8
# So many reads of a megabyte are done on the loop in one turn of it, whoever asks; the others wait for theirs.
_FOLLOWED_PER_TURN: Final = 4


class _Waiting(NamedTuple):
    """Somebody who waits until a ledger's read has ended; None for an answer means that it is his turn to read."""

    first: int
    count_max: int
    bytes_max: int
    since: float
    answer: asyncio.Future[list[bytes] | None]


async def _answered(question: Awaitable[Result]) -> Result:
    """An index that cannot answer knows nothing, which is not the same as having nothing."""
    try:
        return await question
    except (OSError, Damaged) as error:
        raise EntryUnknown(f"the index cannot answer: {error}") from error


class EntryReader:
    def __init__(
        self,
        settings: BookieSettings,
        caches: WriteCaches,
        directories: Sequence[LedgerDirectory],
        counts: BookieCounts,
    ) -> None:
        self._counts = counts
        # By ledger that somebody reads from disk: who waits for the end of that, in the order they came.
        self._turns: dict[int, deque[_Waiting]] = {}
        self._settings = settings
        self._caches = caches
        self._directories = directories
        self._cache = ReadCache(settings.read_cache_bytes_max)
        self._trails = ReadTrails()
        self._followed_this_turn = 0
        self._reads = 0
        self._reads_max = settings.reads_max

    @property
    def cache(self) -> ReadCache:
        return self._cache

    @property
    def reads_in_progress(self) -> int:
        return self._reads

    async def read(self, ledger_id: int, entry_id: int) -> bytes | None:
        found = await self.read_run(ledger_id, entry_id, 1, 0)
        return found[0] if found else None

    async def read_run(self, ledger_id: int, first: int, count_max: int, bytes_max: int) -> list[bytes]:
        """Consecutive entries from first on, about what was asked for or less; nothing when the first is not here."""
        count_max, bytes_max = min(count_max, _ASKED_ENTRIES_MAX), min(bytes_max, _ASKED_BYTES_MAX)
        waiting = self._turns.get(ledger_id)
        if waiting is None:
            found = self._in_memory(ledger_id, first, count_max, bytes_max)
            if found:
                return found
        if self._reads >= self._reads_max:
            raise TooManyRequests(f"{self._reads_max} reads wait for the disk already")
        self._reads += 1
        try:
            if waiting is not None:
                return await self._in_turn(ledger_id, first, count_max, bytes_max, waiting)
            self._turns[ledger_id] = deque()
            try:
                return await self._from_disk(ledger_id, first, count_max, bytes_max)
            finally:
                self._pass_on(ledger_id)
        finally:
            self._reads -= 1

    def at_hand(self, ledger_id: int, entry_id: int) -> bytes | None:
        """An entry that is in memory while nobody reads this ledger from disk: then it overtakes nobody."""
        if ledger_id in self._turns:
            return None
        entry = self._caches.find(ledger_id, entry_id)
        if entry is not None:
            self._counts.write_cache_hits += 1
        elif (entry := self._cache.find(ledger_id, entry_id)) is not None:
            self._counts.write_cache_misses += 1
        return entry

    def run_at_hand(self, ledger_id: int, first: int, count_max: int, bytes_max: int) -> list[bytes]:
        """Consecutive ones under the same condition, or that lie where reading goes on; counted as read."""
        if ledger_id in self._turns:
            return []
        clock = asyncio.get_running_loop().time
        since = clock()
        count_max, bytes_max = min(count_max, _ASKED_ENTRIES_MAX), min(bytes_max, _ASKED_BYTES_MAX)
        entries = self._in_memory(ledger_id, first, count_max, bytes_max)
        if not entries:
            entries = self._followed(ledger_id, first, count_max, bytes_max)
        if entries:
            self._counts.bytes_read += sum(map(len, entries))
            self._counts.read_entry.ok.observe((clock() - since) * 1000, len(entries))
        return entries

    def _in_memory(self, ledger_id: int, first: int, count_max: int, bytes_max: int) -> list[bytes]:
        """The first entry, whatever its size, and those behind it that are in memory too and fit."""
        if not self._caches.has_ledger(ledger_id):
            found = self._cache.find_all(ledger_id, first, count_max, bytes_max)
            self._counts.write_cache_misses += len(found)
            return found
        found = []
        written, ahead = self._caches.find, self._cache.find
        hits = 0
        for entry_id in range(first, first + count_max):
            entry = written(ledger_id, entry_id)
            if entry is not None:
                hits += 1
            elif (entry := ahead(ledger_id, entry_id)) is None:
                break
            bytes_max -= len(entry)
            if bytes_max < 0 and found:
                break
            found.append(entry)
        self._counts.write_cache_hits += hits
        self._counts.write_cache_misses += max(0, len(found) - hits)
        return found

    async def _in_turn(
        self, ledger_id: int, first: int, count_max: int, bytes_max: int, waiting: deque[_Waiting]
    ) -> list[bytes]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[bytes] | None] = loop.create_future()
        waiting.append(_Waiting(first, count_max, bytes_max, loop.time(), answer))
        try:
            found = await answer
            return await self._from_disk(ledger_id, first, count_max, bytes_max) if found is None else found
        finally:
            # Also when given up between having the turn and using it.
            if not answer.cancelled() and answer.result() is None:
                self._pass_on(ledger_id)

    def _pass_on(self, ledger_id: int) -> None:
        """A read has ended: answer those whose entries are in memory now, and let the first of the others read."""
        waiting = self._turns[ledger_id]
        loop = asyncio.get_running_loop()
        for _ in range(min(len(waiting), _SERVED_PER_TURN)):
            first, count_max, bytes_max, since, answer = waiting.popleft()
            if answer.done():
                continue
            self._counts.read_wait.observe((loop.time() - since) * 1000)
            found = self._in_memory(ledger_id, first, count_max, bytes_max)
            answer.set_result(found or None)
            if not found:
                return
        if waiting:
            loop.call_soon(self._pass_on, ledger_id)
        else:
            del self._turns[ledger_id]

    async def _from_disk(self, ledger_id: int, first: int, count_max: int, bytes_max: int) -> list[bytes]:
        settings = self._settings
        self._counts.write_cache_misses += 1
        self._cache.misses += 1
        try:
            run = await self._directory_of(ledger_id).read_from(
                ledger_id,
                first,
                count_max=max(settings.read_ahead_entries_max, count_max),
                bytes_max=max(settings.read_ahead_bytes_max, bytes_max),
            )
        except EntryUnknown:
            raise
        except (OSError, Damaged) as error:
            raise EntryUnknown(f"entry {ledger_id}:{first} cannot be looked up: {error}") from error
        if run is None:
            added = self._caches.find(ledger_id, first)
            return [] if added is None else [added]
        return self._taken(run, count_max, bytes_max)

    def _followed(self, ledger_id: int, first: int, count_max: int, bytes_max: int) -> list[bytes]:
        """Without the index, and without waiting: where the last one who read this far saw its end."""
        if self._followed_this_turn >= _FOLLOWED_PER_TURN:
            return []
        place = self._trails.take(ledger_id, first)
        if place is None:
            return []
        if not self._followed_this_turn:
            asyncio.get_running_loop().call_soon(self._begin_turn)
        self._followed_this_turn += 1
        settings = self._settings
        run = self._directory_of(ledger_id).run_at_hand(
            ledger_id,
            place,
            count_max=max(settings.read_ahead_entries_max, count_max),
            bytes_max=min(
                max(settings.read_ahead_bytes_max, min(bytes_max, count_max * place.entry_bytes)), _ASKED_BYTES_MAX
            ),
        )
        if run is None:
            return []
        self._counts.write_cache_misses += 1
        self._cache.misses += 1
        return self._taken(run, count_max, bytes_max)

    def _begin_turn(self) -> None:
        self._followed_this_turn = 0

    def _taken(self, run: EntryRun, count_max: int, bytes_max: int) -> list[bytes]:
        """What was asked for, of what was read from a log; the rest is kept for those who ask next."""
        self._counts.read_ahead_entries.observe(len(run))
        self._counts.read_ahead_bytes.observe(run.entry_bytes)
        if self._may_go_on(run):
            self._trails.note(run.ledger_id, run.place_behind)
        entries = run.front(count_max, bytes_max)
        if len(entries) < len(run):
            # What is given now is kept too: the next reader of this ledger begins where this one did.
            # A newer copy of an entry may have been added meanwhile; the write cache is asked first in any case.
            self._cache.put(run)
        return entries

    def _may_go_on(self, run: EntryRun) -> bool:
        """Not where it ended although another entry like its last one might have come: something else follows there."""
        settings, behind = self._settings, run.place_behind
        ahead_bytes_max = min(settings.read_ahead_bytes_max, _ASKED_BYTES_MAX)
        is_full = run.record_bytes + behind.entry_bytes + RECORD_OVERHEAD_BYTES > ahead_bytes_max
        return is_full or len(run) >= settings.read_ahead_entries_max

    def forget(self, ledger_id: int) -> None:
        """Nothing that was read of a ledger counts any more."""
        self._cache.drop_ledger(ledger_id)
        self._trails.drop_ledger(ledger_id)

    async def last_entry_id(self, ledger_id: int) -> int | None:
        stored = await _answered(self._directory_of(ledger_id).index.last_entry_id(ledger_id))
        cached = self._caches.last_entry_id(ledger_id)
        if cached is None or stored is None:
            return stored if cached is None else cached
        return max(cached, stored)

    async def entry_ids(self, ledger_id: int) -> list[int]:
        # The caches before the index and again after it: an entry moves from one to the other meanwhile, never back.
        found = self._caches.entry_ids(ledger_id)
        index = self._directory_of(ledger_id).index
        first = 0
        while places := await _answered(index.places(ledger_id, first, _IDS_PER_SCAN)):
            found += [place.entry_id for place in places]
            first = places[-1].entry_id + 1
        return sorted({*found, *self._caches.entry_ids(ledger_id)})

    def _directory_of(self, ledger_id: int) -> LedgerDirectory:
        return self._directories[ledger_id % len(self._directories)]
