# SPDX-License-Identifier: Apache-2.0
"""The embedded store on a simulated disk: what its answers mean, restarts, snapshots."""

import asyncio

import pytest

from magnetar.config.metadata import MetadataSettings
from magnetar.errors import (
    BadVersion,
    CannotStart,
    DataDirectoryInUse,
    StorageFailed,
    TooManyRequests,
)
from magnetar.metadata.durable_tree import DurableTree
from magnetar.metadata.store import Change, ChangeKind, SessionEvent
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.runtime.simulated_faults import Call, DiskCall
from tests.unit.metadata.embedded_rig import QUIET, FixedClock, contents, files, on_disk, opened

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


def test_the_bytes_of_waiting_changes_are_bounded() -> None:
    async def check(disk: SimulatedDisk) -> None:
        store = await opened(disk, MetadataSettings(pending_bytes_max=5_000))
        outcomes = await asyncio.gather(
            *(store.put(f"/r{number}", bytes(2_000)) for number in range(5)), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes[3:]] == [TooManyRequests] * 2
        assert len(await store.children("/")) == 3
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
