# SPDX-License-Identifier: Apache-2.0
"""The embedded store on a simulated disk: what was answered survives any crash, and damage is told from a torn end."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.config.metadata import MetadataSettings
from magnetar.errors import (
    BadVersion,
    CannotStart,
    Damaged,
    DataDirectoryInUse,
    NotSupported,
    StorageFailed,
    TooManyRequests,
)
from magnetar.metadata.durable_tree import DurableTree
from magnetar.metadata.embedded import EmbeddedStore
from magnetar.metadata.store import Change, ChangeKind, SessionEvent
from magnetar.runtime.clock import WallClock
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.runtime.simulated_faults import Call, DiskCall
from magnetar.runtime.simulated_kernel import Image

# No mark comes by itself: each test says when the log is marked.
QUIET = MetadataSettings(mark_delay_ms=3_600_000)


class FixedClock(WallClock):
    def now_ms(self) -> int:
        return 1_700_000_000_000


async def opened(disk: SimulatedDisk, settings: MetadataSettings = QUIET) -> EmbeddedStore:
    return await EmbeddedStore.open(disk, "md", clock=FixedClock(), settings=settings)


def on_disk(check: Callable[[SimulatedDisk], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(check(SimulatedDisk(Random(7))))


async def contents(store: EmbeddedStore) -> dict[str, tuple[bytes, int]]:
    found = {}
    for name in await store.children("/"):
        record = await store.get(f"/{name}")
        assert record is not None
        found[name] = (record.value, record.version)
    return found


def files(disk: SimulatedDisk) -> dict[str, bytes]:
    return {path: data for path, data in disk.kernel.image().files.items() if not path.endswith("lock")}


# --- restarts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("orderly", [True, False])
def test_records_versions_and_counters_survive_and_ephemeral_records_do_not(orderly: bool) -> None:
    async def check(disk: SimulatedDisk) -> None:
        for round_number in range(3):
            store = await opened(disk)
            await store.put("/kept", b"%d" % round_number)
            stored = await store.put("/seq/n-", b"", sequential=True)
            assert stored.path == f"/seq/n-{round_number:010d}"
            await store.put("/alive", b"", ephemeral=True, expected_version=-1)
            record = await store.get("/kept")
            assert record is not None
            assert record.version == round_number
            if orderly:
                await store.close()
            else:
                disk.kernel.lose_power()

    on_disk(check)


def test_a_session_with_a_lease_survives_a_restart_with_its_records() -> None:
    async def check(disk: SimulatedDisk) -> None:
        tree = await DurableTree.open(disk, "md", clock=FixedClock(), settings=QUIET)
        leased = await tree.open_session(30_000)
        await tree.put("/leased", b"", session=leased, ephemeral=True)
        disk.kernel.kill()
        tree = await DurableTree.open(disk, "md", clock=FixedClock(), settings=QUIET)
        assert tree.sessions() == {leased: 30_000}
        assert await tree.get("/leased", session=leased) is not None
        await tree.close_session(leased)
        later = await tree.open_session(30_000)
        assert later > leased
        assert await tree.get("/leased", session=later) is None
        await tree.close()

    on_disk(check)


def test_a_directory_has_one_user() -> None:
    async def check(disk: SimulatedDisk) -> None:
        store = await opened(disk)
        with pytest.raises(DataDirectoryInUse):
            await opened(disk)
        await store.close()
        await (await opened(disk)).close()

    on_disk(check)


def test_orderly_restarts_do_not_pile_up_files() -> None:
    async def check(disk: SimulatedDisk) -> None:
        for number in range(40):
            store = await opened(disk)
            await store.put("/n", b"%d" % number)
            await store.close()
            assert len(files(disk)) <= 20
        store = await opened(disk)
        assert await contents(store) == {"n": (b"39", 39)}
        await store.close()

    on_disk(check)


# --- what an answer means -----------------------------------------------------------------------


def test_nothing_is_answered_shown_or_told_before_it_is_durable() -> None:
    async def check(disk: SimulatedDisk) -> None:
        store = await opened(disk)
        await store.put("/a", b"old")
        told: list[Change] = []
        store.watch("/a", told.append)
        disk.kernel.faults.hanging = frozenset({Call.SYNC})
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(store.put("/a", b"new"))
            reading = group.create_task(store.get("/a"))
            listing = group.create_task(store.children("/"))
            for _ in range(20):
                await asyncio.sleep(0)
            assert not writing.done()
            assert not reading.done()
            assert not listing.done() or listing.result() == ["a"]
            assert told == []
            assert await store.get("/elsewhere") is None
            for task in (writing, reading, listing):
                task.cancel()
        disk.kernel.faults.hanging = frozenset()
        disk.kernel.lose_power()

    on_disk(check)


def test_many_changes_share_a_sync() -> None:
    async def check(disk: SimulatedDisk) -> None:
        store = await opened(disk)
        syncs = []
        disk.kernel.faults.on_call = lambda call: syncs.append(call) if call.call is Call.SYNC else None
        await asyncio.gather(*(store.put(f"/r{number}", b"") for number in range(500)))
        assert 1 <= len(syncs) <= 3
        await store.close()

    on_disk(check)


def test_a_cancelled_caller_does_not_disturb_the_others() -> None:
    async def check(disk: SimulatedDisk) -> None:
        store = await opened(disk)
        async with asyncio.TaskGroup() as group:
            cancelled = group.create_task(store.put("/a", b"1"))
            reader = group.create_task(store.get("/a"))
            second = group.create_task(store.put("/a", b"2"))
            await asyncio.sleep(0)
            cancelled.cancel()
        record = reader.result()
        assert record is not None
        assert record.value == b"1"
        assert second.result().version == 1
        await store.close()

    on_disk(check)


def test_a_failed_sync_ends_the_store_and_nothing_that_waited_was_answered() -> None:
    async def check(disk: SimulatedDisk) -> None:
        store = await opened(disk)
        await store.put("/safe", b"")
        events: list[SessionEvent] = []
        store.watch_session(events.append)
        disk.kernel.faults.sync_error_chance = 1.0
        outcomes = await asyncio.gather(
            *(store.put(f"/r{number}", b"") for number in range(50)), store.get("/r0"), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [StorageFailed] * 51
        assert "md" in str(outcomes[0])
        disk.kernel.faults.sync_error_chance = 0.0
        for attempt in (store.put("/later", b""), store.get("/safe"), store.delete("/safe"), store.children("/")):
            with pytest.raises(StorageFailed):
                await attempt
        assert events == [SessionEvent.LOST]
        await store.close()
        disk.kernel.lose_power()
        store = await opened(disk)
        assert "safe" in await store.children("/")
        await store.close()

    on_disk(check)


def test_waiting_changes_are_bounded() -> None:
    async def check(disk: SimulatedDisk) -> None:
        store = await opened(disk, MetadataSettings(operations_pending_max=10))
        outcomes = await asyncio.gather(
            *(store.put(f"/r{number}", b"") for number in range(12)), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes[10:]] == [TooManyRequests] * 2
        assert len(await store.children("/")) == 10
        await store.put("/r10", b"")
        await store.close()

    on_disk(check)


def test_a_disk_that_cannot_be_written_at_the_start_is_named() -> None:
    async def check(disk: SimulatedDisk) -> None:
        disk.kernel.faults.write_error_chance = 1.0
        with pytest.raises(CannotStart, match="md"):
            await opened(disk)
        disk.kernel.faults.write_error_chance = 0.0
        await (await opened(disk)).close()

    on_disk(check)


# --- snapshots ----------------------------------------------------------------------------------


def test_logs_are_replaced_by_snapshots_and_stay_bounded() -> None:
    async def check(disk: SimulatedDisk) -> None:
        small = MetadataSettings(log_bytes_max=2_000, mark_delay_ms=3_600_000)
        store = await opened(disk, small)
        for number in range(500):
            await store.put(f"/r{number % 10}", b"%d" % number * 10)
            assert sum(map(len, files(disk).values())) < 20_000
        expected = await contents(store)
        disk.kernel.lose_power()
        store = await opened(disk, small)
        assert await contents(store) == expected
        await store.close()

    on_disk(check)


def test_no_space_for_a_snapshot_leaves_the_store_working() -> None:
    async def check(disk: SimulatedDisk) -> None:
        store = await opened(disk, MetadataSettings(log_bytes_max=2_000, mark_delay_ms=3_600_000))

        def full(call: DiskCall) -> None:
            if call.call is Call.WRITE and call.path.endswith(".partial"):
                raise OSError(28, "no space left", call.path)

        disk.kernel.faults.on_call = full
        for number in range(200):
            await store.put("/r", b"%d" % number)
        assert len([path for path in files(disk) if "log-" in path]) > 3
        disk.kernel.faults.on_call = None
        for number in range(200, 300):
            await store.put("/r", b"%d" % number)
        assert len([path for path in files(disk) if "log-" in path]) <= 3
        await store.close()

    on_disk(check)


def test_a_snapshot_that_cannot_be_synced_ends_the_store() -> None:
    async def check(disk: SimulatedDisk) -> None:
        store = await opened(disk, MetadataSettings(log_bytes_max=2_000, mark_delay_ms=3_600_000))

        def broken(call: DiskCall) -> None:
            if call.call is Call.SYNC and call.path.endswith(".partial"):
                raise OSError(5, "broken", call.path)

        disk.kernel.faults.on_call = broken
        with pytest.raises(StorageFailed, match="broken"):  # noqa: PT012 - which put meets it is not the point
            for number in range(200):
                await store.put("/r", b"%d" % number)
        await store.close()

    on_disk(check)


# --- crashes ------------------------------------------------------------------------------------


async def _written_log(disk: SimulatedDisk) -> tuple[Image, str, list[int], list[dict[str, tuple[bytes, int]]]]:
    """A store with a few changes, each durable: its image, the log's name, where each change ends, each state."""
    store = await opened(disk)
    log = max(path for path in files(disk) if "log-" in path)
    ends, states = [len(files(disk)[log])], [await contents(store)]
    for number in range(6):
        await store.put(f"/r{number % 3}", b"value %d" % number)
        ends.append(len(files(disk)[log]))
        states.append(await contents(store))
    image = disk.kernel.image()
    disk.kernel.kill()
    return image, log, ends, states


def test_a_log_cut_at_any_byte_gives_every_whole_change_before_the_cut() -> None:
    async def check(disk: SimulatedDisk) -> None:
        image, log, ends, states = await _written_log(disk)
        whole = image.files[log]
        random = Random(3)
        for cut in range(len(whole) + 1):
            tails = [b"", bytes(200), random.randbytes(60), whole[:100], whole[cut // 2 : cut]]
            tail = tails[cut % len(tails)]
            disk.kernel.restore(Image(image.directories, image.files | {log: whole[:cut] + tail}))
            store = await opened(disk)
            expected = max((number for number, end in enumerate(ends) if end <= cut), default=0)
            if whole[:cut] + tail != whole[: cut + len(tail)]:
                assert await contents(store) == states[expected], f"cut at {cut}"
            # And it goes on from there.
            assert (await store.put("/new", b"")).version == 0
            disk.kernel.lose_power()
            store = await opened(disk)
            assert "new" in await store.children("/")
            await store.close()

    on_disk(check)


def test_a_flipped_bit_in_what_was_durable_is_refused_with_file_and_offset() -> None:
    async def check(disk: SimulatedDisk) -> None:
        image, log, ends, states = await _written_log(disk)
        whole = image.files[log]
        for offset in range(len(whole)):
            disk.kernel.restore(image)
            disk.kernel.flip_bit(log, offset, offset % 8)
            if offset >= ends[-2]:
                # Nothing behind the last record proves that it was durable: a torn end.
                store = await opened(disk)
                assert await contents(store) == states[-2]
                await store.close()
                continue
            with pytest.raises((Damaged, NotSupported)) as refusal:
                await opened(disk)
            before = disk.kernel.image().files
            assert log in str(refusal.value)
            if isinstance(refusal.value, Damaged):
                start = max((end for end in ends if end <= offset), default=0)
                if offset >= ends[0]:
                    assert f"offset {start}" in str(refusal.value)
            assert before[log] == disk.kernel.image().files[log]

    on_disk(check)


def test_a_mark_after_idleness_or_an_orderly_end_protects_the_last_record_too() -> None:
    async def check(disk: SimulatedDisk) -> None:
        store = await opened(disk, MetadataSettings(mark_delay_ms=0))
        await store.put("/a", b"")
        log = max(path for path in files(disk) if "log-" in path)
        end = len(files(disk)[log])
        async with asyncio.timeout(10):
            while len(files(disk)[log]) == end:  # noqa: ASYNC110 - the mark comes by itself
                await asyncio.sleep(0)
        disk.kernel.kill()
        disk.kernel.flip_bit(log, end - 1, 0)
        with pytest.raises(Damaged, match=log):
            await opened(disk)
        disk.kernel.flip_bit(log, end - 1, 0)
        store = await opened(disk)
        await store.put("/b", b"")
        log = max(path for path in files(disk) if "log-" in path)
        end = len(files(disk)[log])
        await store.close()
        disk.kernel.flip_bit(log, end - 1, 0)
        with pytest.raises(Damaged, match=log):
            await opened(disk)

    on_disk(check)


def test_a_flipped_bit_anywhere_in_a_snapshot_is_refused() -> None:
    async def check(disk: SimulatedDisk) -> None:
        store = await opened(disk)
        await store.put("/a/b", b"value")
        await store.put("/a/n-", b"", sequential=True)
        disk.kernel.kill()
        store = await opened(disk)
        disk.kernel.kill()
        image = disk.kernel.image()
        snapshot = max(path for path in image.files if "snapshot-" in path)
        for offset in range(len(image.files[snapshot])):
            disk.kernel.restore(image)
            disk.kernel.flip_bit(snapshot, offset, offset % 8)
            with pytest.raises((Damaged, NotSupported), match=snapshot):
                await opened(disk)

    on_disk(check)


def test_missing_or_swapped_files_are_refused() -> None:
    async def check(disk: SimulatedDisk) -> None:
        store = await opened(disk)
        for _ in range(3):
            await store.put("/a", b"")
            await store.close()
            store = await opened(disk)
        disk.kernel.kill()
        image = disk.kernel.image()
        snapshot = next(path for path in image.files if "snapshot-" in path)
        logs = sorted(path for path in image.files if "log-" in path)
        assert len(logs) >= 3
        without = [
            {path: data for path, data in image.files.items() if path != missing} for missing in (snapshot, logs[0])
        ]
        swapped = image.files | {logs[0]: image.files[logs[1]], logs[1]: image.files[logs[0]]}
        foreign = image.files | {logs[1]: image.files[snapshot]}
        for damaged in (*without, swapped, foreign):
            disk.kernel.restore(Image(image.directories, damaged))
            with pytest.raises(Damaged):
                await opened(disk)
            assert {path: data for path, data in disk.kernel.image().files.items() if "lock" not in path} == {
                path: data for path, data in damaged.items() if "lock" not in path
            }

    on_disk(check)


@pytest.mark.parametrize("kind", ["log-", "snapshot-"])
def test_files_of_a_newer_version_are_refused_with_a_sentence_and_left_alone(kind: str) -> None:
    async def check(disk: SimulatedDisk) -> None:
        store = await opened(disk)
        await store.put("/a", b"")
        await store.close()
        image = disk.kernel.image()
        path = max(path for path in image.files if kind in path)
        newer = image.files | {path: b"\x02" + image.files[path][1:]}
        disk.kernel.restore(Image(image.directories, newer))
        with pytest.raises(NotSupported, match=r"format version 2.*newer version"):
            await opened(disk)
        assert disk.kernel.image().files == newer

    on_disk(check)


# --- any crash, against a twin --------------------------------------------------------------------


class Twin:
    """A dict, and the state after each change that the store began."""

    def __init__(self) -> None:
        self.records: dict[str, tuple[bytes, int]] = {}
        self.states: list[dict[str, tuple[bytes, int]]] = [{}]
        self.answered = 0

    def put(self, name: str, value: bytes) -> int:
        version = self.records[name][1] + 1 if name in self.records else 0
        self.records[name] = (value, version)
        return self._done()

    def delete(self, name: str) -> int:
        del self.records[name]
        return self._done()

    def _done(self) -> int:
        self.states.append(dict(self.records))
        return len(self.states) - 1

    def on_recovered(self, found: dict[str, tuple[bytes, int]]) -> None:
        """It must be the state after some change that is not before the last one answered."""
        candidates = [number for number, state in enumerate(self.states) if state == found]
        assert candidates, f"{found} is none of the states {self.states}"
        assert candidates[-1] >= self.answered, f"change {self.answered} was answered, {candidates[-1]} recovered"
        self.records = dict(found)
        self.states, self.answered = [dict(found)], 0


Operation = tuple[str, str, bytes]
_operations = st.lists(
    st.tuples(st.sampled_from(["put", "put", "put", "delete"]), st.sampled_from("abcd"), st.binary(max_size=200)),
    max_size=12,
)


class Life:
    """One process from start to crash: batches of concurrent changes until the n-th call to the disk."""

    def __init__(self, disk: SimulatedDisk, twin: Twin, crash_after: int, power_loss: bool) -> None:
        self.disk = disk
        self.twin = twin
        self.crash_at = disk.kernel.calls + crash_after
        self.power_loss = power_loss
        self.crashed = asyncio.Event()

    def on_call(self, call: DiskCall) -> None:
        if call.number == self.crash_at:
            if self.power_loss:
                self.disk.kernel.lose_power()
            else:
                self.disk.kernel.kill()
            self.crashed.set()

    async def change(self, store: EmbeddedStore, operation: Operation) -> None:
        verb, name, value = operation
        if verb == "delete" and name not in self.twin.records:
            return
        number = self.twin.put(name, value) if verb == "put" else self.twin.delete(name)
        if verb == "put":
            await store.put(f"/{name}", value)
        else:
            await store.delete(f"/{name}")
        self.twin.answered = max(self.twin.answered, number)

    async def live(self, batches: list[list[Operation]]) -> None:
        store = await opened(self.disk, MetadataSettings(log_bytes_max=600, mark_delay_ms=0))
        self.twin.on_recovered(await contents(store))
        for batch in batches:
            await asyncio.gather(*(self.change(store, operation) for operation in batch))
            await asyncio.sleep(0)
        await store.close()

    async def run(self, batches: list[list[Operation]]) -> None:
        self.disk.kernel.faults.on_call = self.on_call
        living = asyncio.ensure_future(self.live(batches))
        watching = asyncio.ensure_future(self.crashed.wait())
        await asyncio.wait((living, watching), return_when=asyncio.FIRST_COMPLETED)
        watching.cancel()
        # Calls of a dead process never return: what it still does in its last moments is of no effect.
        while not living.done():
            living.cancel()
            await asyncio.wait((living,), timeout=0)
        self.disk.kernel.faults.on_call = None
        if not self.crashed.is_set():
            living.result()
        self.disk.kernel.kill()


@pytest.mark.feature("F-MD-01")
@settings(max_examples=120, deadline=None)
@given(
    lives=st.lists(
        st.tuples(st.lists(_operations, min_size=1, max_size=5), st.integers(0, 120), st.booleans()),
        min_size=1,
        max_size=4,
    ),
    seed=st.integers(0, 2**32),
)
def test_whatever_was_answered_survives_a_crash_at_any_call(
    lives: list[tuple[list[list[Operation]], int, bool]], seed: int
) -> None:
    """Fault F112, several restarts in a row: the state after a crash is that of a prefix with every answered change."""

    async def check() -> None:
        disk, twin = SimulatedDisk(Random(seed)), Twin()
        for batches, crash_after, power_loss in lives:
            life = Life(disk, twin, crash_after, power_loss)
            await life.run(batches)
        store = await opened(disk)
        twin.on_recovered(await contents(store))
        await store.close()

    asyncio.run(check())


def test_a_refused_change_leaves_no_trace_in_the_log() -> None:
    async def check(disk: SimulatedDisk) -> None:
        store = await opened(disk)
        await store.put("/a", b"")
        log = max(path for path in files(disk) if "log-" in path)
        before = len(files(disk)[log])
        with pytest.raises(BadVersion):
            await store.put("/a/b/c", b"", expected_version=4)
        with pytest.raises(BadVersion):
            await store.put("/a", b"", expected_version=4)
        await asyncio.sleep(0)
        assert len(files(disk)[log]) == before
        told: list[Change] = []
        store.watch("/a", told.append)
        await store.put("/a", b"")
        await asyncio.sleep(0)
        assert told == [Change(ChangeKind.MODIFIED, "/a")]
        await store.close()

    on_disk(check)
