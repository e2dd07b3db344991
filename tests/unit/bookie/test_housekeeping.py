# SPDX-License-Identifier: Apache-2.0
"""Disks that fill up, and disks that rot."""

import asyncio
from dataclasses import replace

import pytest

from magnetar.bookie.ledger_questions import LedgerQuestions
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.runtime.simulated_faults import Call, DiskCall
from tests.unit.bookie.benches import OK, SMALL, add_all, bench, code_of_add, packed, run

FENCED, READ_ONLY = 104, 105


@pytest.mark.feature("F-BKS-30")
def test_a_full_disk_makes_the_bookie_read_only_and_room_makes_it_writable_again() -> None:
    """F19, F21: fences and recovery adds are served in between."""

    async def scenario() -> None:
        disk = SimulatedDisk(capacity_bytes=1_000_000)
        async with bench(disk, SMALL) as storage:
            await add_all(storage, 1, range(3))
            await storage.fence(2, b"k" * 20)
            ballast = await disk.open("ballast", create=True)
            await ballast.truncate(970_000)
            assert await storage.housekeeping.check_disks()
            assert storage.is_read_only
            assert await code_of_add(storage, packed(1, 3)) == READ_ONLY
            assert await code_of_add(storage, packed(2, 0), recovery=True) == OK
            await storage.fence(1, b"k" * 20)
            assert await storage.read(1, 2) == packed(1, 2)
            await ballast.truncate(920_000)
            assert await storage.housekeeping.check_disks(), "between the marks nothing changes"
            await ballast.truncate(0)
            assert not await storage.housekeeping.check_disks()
            assert await code_of_add(storage, packed(3, 0)) == OK
            assert await code_of_add(storage, packed(1, 3)) == FENCED
            await ballast.close()

    run(scenario())


def test_a_flush_without_room_is_tried_again_and_nothing_is_lost() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk(capacity_bytes=100_000)
        settings = replace(
            SMALL,
            write_cache_bytes_max=60_000,
            journal_preallocate_bytes=0,
            journal_file_bytes_max=1 << 20,
            disk_usage_max=2.0,
            disk_usage_low=2.0,
        )
        async with bench(disk, settings) as storage:
            await add_all(storage, 1, range(20), lambda _: bytes(900))
            ballast = await disk.open("ballast", create=True)
            usage = await disk.usage("")
            await ballast.truncate(usage.free_bytes - 3_000)
            await storage.checkpoint()
            assert storage.is_read_only
            assert await storage.read(1, 7) == packed(1, 7, bytes(900))
            await storage.housekeeping.check_disks()
            assert storage.is_read_only, "also when the disk watch finds nothing wrong"
            await ballast.truncate(0)
            await storage.housekeeping.check_disks()
            await storage.checkpoint()
            assert not storage.is_read_only
            assert await storage.entry_ids(1) == list(range(20))
            await ballast.close()

    run(scenario())


@pytest.mark.feature("B-35")
def test_the_scrubber_names_what_has_rotted_and_nothing_else() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        settings = replace(SMALL, scrub_bytes_per_second_max=1 << 40)
        async with bench(disk, settings) as storage:
            for ledger_id in (1, 2):
                await add_all(storage, ledger_id, range(30), lambda entry_id: b"rot%02d" % entry_id)
            await storage.checkpoint()
            assert await storage.housekeeping.check_consistency() == []
            for name in await disk.list("ledgers/current"):
                if name.endswith(".log"):
                    data = await disk.read_file(f"ledgers/current/{name}", bytes_max=1 << 20)
                    for entry in (packed(1, 4, b"rot04"), packed(2, 17, b"rot17")):
                        if entry in data:
                            disk.kernel.flip_bit(f"ledgers/current/{name}", data.index(entry) + 20, 5)
            damaged = await storage.housekeeping.check_consistency()
            assert [(found.ledger_id, found.entry_id) for found in damaged] == [(1, 4), (2, 17)]

    run(scenario())


def test_jobs_run_by_themselves_at_their_intervals() -> None:
    async def scenario() -> None:
        asked, flushed = asyncio.Event(), asyncio.Event()

        def on_call(call: DiskCall) -> None:
            if call.call is Call.SYNC and call.path.endswith(".log"):
                flushed.set()

        async def existing() -> list[int]:
            asked.set()
            return [1]

        async def exists(ledger_id: int) -> bool:
            return True

        settings = replace(
            SMALL, garbage_interval_ms=1, flush_interval_ms=1, disk_check_interval_ms=1, scrub_interval_ms=1
        )
        disk = SimulatedDisk()
        async with bench(disk, settings, questions=LedgerQuestions(existing, exists)) as storage:
            disk.kernel.faults.on_call = on_call
            await add_all(storage, 1, range(3))
            await asked.wait()
            await flushed.wait()

    run(scenario())
