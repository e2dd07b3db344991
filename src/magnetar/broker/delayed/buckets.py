# SPDX-License-Identifier: Apache-2.0
"""The stored part of a subscription's delayed index: buckets in ledgers, so that the next owner has them at once.

Owns the buckets of one durable cursor. A bucket's name is on record, as a property of the cursor, before its ledger
exists, and until after it is deleted: a crash leaves no ledger that nobody knows. A bucket that cannot be read costs
time, never a message: its entries are read from the log again.
Carries.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any, Final

from magnetar.broker.delayed.bucket_format import (
    DueItem,
    SegmentFacts,
    buckets_in,
    decode_metadata,
    decode_segment,
    encode_metadata,
    encode_segment,
    ledgers_of,
    property_of,
)
from magnetar.broker.delayed.delayed_index import DelayedIndex
from magnetar.broker.delayed.due_run import DueRun
from magnetar.broker.dispatch.parts import DispatchParts
from magnetar.errors import Damaged, MagnetarError, NoSuchEntry, NoSuchLedger, OwnerClosed, TooManyRequests
from magnetar.ids import Position
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.managed_ledger import ManagedLedger

_log = logging.getLogger(__name__)

# Trying again does not help.
_GONE: Final = (NoSuchLedger, NoSuchEntry, Damaged)


class DelayedBuckets:
    RETRY_S = 1.0
    # Nobody has tried for so long: what is wanted now is wanted anew.
    GIVEN_UP_S = 10.0
    ATTEMPTS_MAX = 3

    def __init__(
        self,
        managed_ledger: ManagedLedger,
        cursor: Cursor,
        index: DelayedIndex,
        parts: DispatchParts,
        on_changed: Callable[[], None],
        on_recovered: Callable[[], None],
    ) -> None:
        self._managed_ledger = managed_ledger
        self._cursor = cursor
        self._index = index
        self._parts = parts
        self._on_changed = on_changed
        self._on_recovered = on_recovered
        # Property to ledger id, of every bucket on record.
        self._ledger_ids: dict[str, int] = {}
        self._is_recovered = False
        self._is_saving = False
        self._is_sweeping = False
        self._saved_before = 0
        self._tried_ledger = -1
        self._merged_at = -1
        self._property_turn = asyncio.Lock()

    @property
    def count(self) -> int:
        return len(self._ledger_ids)

    def is_loading_due(self, patience_s: float) -> bool:
        """Whether what is due first is on its way from storage, and for no longer than that."""
        first = self._index.first()
        run = self._index.wanted(self._parts.clock.now_ms())
        if first is None or first[0] is not None or run is None or run.wanted_since_s is None:
            return False
        return run.is_loading and self._parts.clock.elapsed_s() - run.wanted_since_s < patience_s

    # --- what the pump calls: never waits ---------------------------------------------------------

    def start(self) -> bool:
        """Bring back what is on record, once. True when that takes a while: read nothing before `on_recovered`."""
        if self._is_recovered or not self._cursor.is_durable:
            return False
        self._is_recovered = True
        self._ledger_ids = buckets_in(self._cursor.user_properties)
        if not self._ledger_ids:
            return False
        return self._run(self._recover(), "recover delayed messages")

    def on_read(self) -> None:
        """Reading went on: perhaps enough entries of whole ledgers are delayed to store them."""
        settings = self._parts.settings
        ledger_id = self._cursor.read_position.ledger_id
        if (
            self._index.unsaved < settings.delayed_bucket_entries_min
            or ledger_id == self._tried_ledger
            or self._is_saving
            or not self._cursor.is_durable
        ):
            return
        if len(self._ledger_ids) >= settings.delayed_buckets_max:
            self._start_merging()
            return
        self._tried_ledger = ledger_id
        self._is_saving = self._run(self._save(ledger_id), "store delayed messages")

    def on_due(self) -> None:
        """Something is due: load the segment that has it, and let go the buckets that are used up."""
        run = self._index.wanted(self._parts.clock.now_ms())
        if run is not None and not run.is_loading:
            now_s = self._parts.clock.elapsed_s()
            if run.wanted_since_s is None or now_s - run.tried_until_s > self.GIVEN_UP_S:
                run.wanted_since_s = now_s
            run.is_loading = self._run(self._load(run), "load delayed messages")
        if self._ledger_ids and not self._is_sweeping and not self._is_saving:
            kept = self._index.buckets()
            done = [name for name in self._ledger_ids if name not in kept]
            if done:
                self._is_sweeping = self._run(self._sweep(done), "delete buckets of delayed messages")

    # --- the work ---------------------------------------------------------------------------------

    async def delete_all(self) -> None:
        """The subscription is deleted, or its cursor was moved: no bucket is needed any more."""
        if not self._is_recovered:
            self._ledger_ids = buckets_in(self._cursor.user_properties)
        if self._ledger_ids:
            await self._delete(list(self._ledger_ids))

    async def _recover(self) -> None:
        epoch, buckets = self._index.epoch, 0
        for name, ledger_id in list(self._ledger_ids.items()):
            segments = await self._head_of(name, ledger_id)
            if segments and epoch == self._index.epoch:
                buckets += 1
                self._index.add_stored(name, segments)
                last = name.rpartition("_")[2]
                self._saved_before = max(self._saved_before, int(last) + 1 if last.isdigit() else 0)
        _log.info(
            "%s: %d of %d buckets of %s are read: %d delayed entries",
            self._managed_ledger.name,
            buckets,
            len(self._ledger_ids),
            self._cursor.name,
            self._index.count,
        )
        self._on_recovered()

    async def _head_of(self, name: str, ledger_id: int) -> list[SegmentFacts]:
        """What a bucket holds; nothing when it cannot be read, because reading the log finds the same."""
        attempts = self.ATTEMPTS_MAX
        while True:
            attempts -= 1
            try:
                return decode_metadata(await self._managed_ledger.side_ledgers.read(ledger_id, 0))
            except MagnetarError as error:
                if isinstance(error, _GONE) or attempts == 0:
                    _log.warning("bucket %s of %s is left out: %s", name, self._cursor.name, error)
                    return []
            pause: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._parts.call_later(self.RETRY_S, lambda pause=pause: pause.done() or pause.set_result(None))  # type: ignore[misc]
            await pause

    async def _save(self, before_ledger: int) -> None:
        index, epoch = self._index, self._index.epoch
        try:
            run, items = index.take_unsaved(self._saved_before, before_ledger)
            if len(items) < self._parts.settings.delayed_bucket_entries_min // 2:
                return
            ledgers = [item[1] for item in items]
            name = property_of(min(ledgers), max(ledgers))
            segments = await self._write(name, items)
            segment_entries = self._parts.settings.delayed_segment_entries_max
            self._saved_before = before_ledger
            if epoch == index.epoch:
                index.on_stored(run, name, segment_entries, segments, len(items))
            else:
                await self._delete([name])
        finally:
            self._is_saving = False
            # Reading may have got to another ledger meanwhile.
            self.on_read()

    def _start_merging(self) -> None:
        """As many buckets as there may be: the two neighbours with the least in them become one."""
        runs = sorted(self._index.stored_runs(), key=lambda run: ledgers_of(run.bucket))
        pairs = [pair for pair in pairwise(runs) if not any(run.is_loading for run in pair)]
        if not pairs or self._index.unsaved == self._merged_at:
            return
        # Not again for the same reason, should it fail.
        self._merged_at = self._index.unsaved
        one, other = min(pairs, key=lambda pair: pair[0].entries_left + pair[1].entries_left)
        self._is_saving = self._run(self._merge([one, other]), "merge buckets of delayed messages")

    async def _merge(self, runs: list[DueRun]) -> None:
        index, epoch = self._index, self._index.epoch
        try:
            names = [run.bucket for run in runs]
            items: list[DueItem] = []
            for run in runs:
                items += run.items()
                ledger_id = self._ledger_ids[run.bucket]
                for entry in range(run.next_segment, run.next_segment + len(run.segments_left)):
                    items += decode_segment(await self._managed_ledger.side_ledgers.read(ledger_id, entry))
            items = sorted({item for item in items if Position(*item[1:]) in index})
            ends = [ledgers_of(name) for name in names]
            name = property_of(min(first for first, _ in ends), max(last for _, last in ends))
            if epoch != index.epoch or not items or name in names:
                return
            segments = await self._write(name, items)
            if epoch == index.epoch:
                index.on_merged(runs, name, segments)
                await self._delete(names)
            else:
                await self._delete([name])
        finally:
            self._is_saving = False

    async def _write(self, name: str, items: list[DueItem]) -> list[SegmentFacts]:
        """A new bucket of these items, which are in order."""
        segment_entries = self._parts.settings.delayed_segment_entries_max
        entries: list[bytes] = []
        segments: list[SegmentFacts] = []
        for start in range(0, len(items), segment_entries):
            entry, facts = encode_segment(items[start : start + segment_entries])
            entries.append(entry)
            segments.append(facts)
            await asyncio.sleep(0)
        await self._store(name, [encode_metadata(segments), *entries])
        return segments

    async def _store(self, name: str, entries: list[bytes]) -> None:
        side_ledgers = self._managed_ledger.side_ledgers
        if name in self._ledger_ids:
            # One of the same ledgers that could not be read.
            await self._delete([name])
        ledger_id = await side_ledgers.reserve_id()
        self._ledger_ids[name] = ledger_id
        try:
            await self._record()
            about = {
                "component": b"delayed-index-bucket",
                "pulsar/delayed-index-bucket": name.encode(),
                "pulsar/managed-ledger": self._managed_ledger.name.encode(),
                "pulsar/cursor": self._cursor.name.encode(),
            }
            await side_ledgers.write(ledger_id, entries, about)
        except MagnetarError:
            await self._delete([name])
            raise

    async def _load(self, run: DueRun) -> None:
        ledger_id = self._ledger_ids.get(run.bucket)
        epoch = self._index.epoch
        try:
            if ledger_id is None:
                raise NoSuchLedger(f"Bucket {run.bucket} is not on record")
            items = decode_segment(await self._managed_ledger.side_ledgers.read(ledger_id, run.next_segment))
        except _GONE as error:
            _log.warning("bucket %s of %s is read from the log again: %s", run.bucket, self._cursor.name, error)
            if epoch == self._index.epoch:
                self._index.drop_run(run)
        except MagnetarError as error:
            _log.warning("bucket %s of %s cannot be read now: %s", run.bucket, self._cursor.name, error)
            self._parts.call_later(self.RETRY_S, lambda: self._on_load_ended(run))
            return
        else:
            if epoch == self._index.epoch:
                self._index.on_loaded(run, items)
            run.wanted_since_s = None
        self._on_load_ended(run)

    def _on_load_ended(self, run: DueRun) -> None:
        run.is_loading = False
        run.tried_until_s = self._parts.clock.elapsed_s()
        self._on_changed()

    async def _sweep(self, names: list[str]) -> None:
        try:
            await self._delete(names)
        finally:
            self._is_sweeping = False

    async def _delete(self, names: list[str]) -> None:
        for name in names:
            ledger_id = self._ledger_ids.get(name)
            if ledger_id is not None:
                await self._managed_ledger.side_ledgers.delete(ledger_id)
        for name in names:
            self._ledger_ids.pop(name, None)
        await self._record()

    async def _record(self) -> None:
        """The cursor's properties name exactly the buckets that there are."""
        async with self._property_turn:
            present = self._cursor.user_properties
            buckets = buckets_in(present)
            wanted = {name: value for name, value in present.items() if name not in buckets}
            wanted.update((name, str(ledger_id)) for name, ledger_id in self._ledger_ids.items())
            if wanted != present:
                await self._cursor.set_user_properties(wanted)

    def _run(self, work: Coroutine[Any, Any, None], name: str) -> bool:
        """False when it cannot begin now: what is left undone is looked at again with the next wake-up."""

        async def guarded() -> None:
            try:
                await work
            except MagnetarError as error:
                _log.warning("%s of %s: %s", name, self._cursor.name, error)

        try:
            self._parts.tasks.start(guarded(), f"{self._cursor.name}: {name}")
        except OwnerClosed:
            work.close()
            return False
        except TooManyRequests as error:
            work.close()
            _log.warning("%s of %s, later: %s", name, self._cursor.name, error)
            self._parts.call_later(self.RETRY_S, self._on_changed)
            return False
        return True
