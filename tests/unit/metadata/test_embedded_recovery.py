# SPDX-License-Identifier: Apache-2.0
"""The embedded store after a crash: what was answered is there, and damage is told from a torn end."""

import asyncio
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.config.metadata import MetadataSettings
from magnetar.errors import (
    Damaged,
    NotSupported,
)
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.runtime.simulated_faults import Call
from magnetar.runtime.simulated_kernel import Image
from tests.unit.metadata.embedded_rig import Life, Operation, Twin, contents, files, on_disk, opened

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


def test_an_end_that_only_the_page_cache_knows_is_made_durable_before_it_is_built_upon() -> None:
    """Killed between the write and the sync of the closing record; the power fails in the next life."""

    async def check(disk: SimulatedDisk) -> None:
        store = await opened(disk)
        await store.put("/a", b"")
        await store._tree.close_session(store._session)
        disk.kernel.faults.on_call = lambda call: disk.kernel.kill() if call.call is Call.SYNC else None
        async with asyncio.TaskGroup() as group:
            closing = group.create_task(store._tree.close())
            for _ in range(20):
                await asyncio.sleep(0)
            closing.cancel()
        disk.kernel.faults.on_call = None
        store = await opened(disk)
        await store.put("/b", b"")
        for seed in range(20):
            image = disk.kernel.image()
            disk.kernel.random.seed(seed)
            disk.kernel.lose_power()
            store = await opened(disk)
            assert sorted(await contents(store)) == ["a", "b"]
            await store._tree.abandon()
            disk.kernel.restore(image)

    on_disk(check)


# --- any crash, against a twin --------------------------------------------------------------------


_operations = st.lists(
    st.tuples(st.sampled_from(["put", "put", "put", "delete"]), st.sampled_from("abcd"), st.binary(max_size=200)),
    max_size=12,
)


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
