# SPDX-License-Identifier: Apache-2.0
"""The reserve of a bookie: kept while there is room, given up for a start on a full disk, taken again later."""

from dataclasses import replace

import pytest

from magnetar.errors import DiskFull
from magnetar.runtime.simulated_disk import SimulatedDisk
from tests.unit.bookie.benches import OK, ROOMY, add_all, bench, opened, packed, run

MIB = 1024 * 1024
BODY = bytes(4 * 1024)
SETTINGS = replace(ROOMY, write_cache_bytes_max=4 * MIB, disk_reserve_bytes=2 * MIB, disk_check_interval_ms=3_600_000)
FILES = ("journal/reserve", "ledgers/reserve")


async def _filled(disk: SimulatedDisk) -> None:
    """Entries that the journal alone has, and then somebody takes the last free byte."""
    storage = await opened(disk, SETTINGS)
    answers = await add_all(storage, 1, range(50), lambda entry_id: BODY)
    assert set(answers.codes.values()) == {OK}
    assert [await disk.file_size(path) for path in FILES] == [2 * MIB] * 2
    file = await disk.open("filler", create=True)
    usage = await disk.usage(".")
    await file.write(0, (bytes(usage.free_bytes),))
    await file.close()


@pytest.mark.feature("F-BKS-30")
def test_a_full_disk_costs_the_reserve_and_not_the_start() -> None:
    async def after(disk: SimulatedDisk) -> None:
        async with bench(disk, SETTINGS) as storage:
            assert storage.is_read_only
            assert [await disk.exists(path) for path in FILES] == [False, True], "as much as was needed"
            for entry_id in range(50):
                assert await storage.read(1, entry_id) == packed(1, entry_id, BODY)
            await disk.remove("filler")
            await storage.housekeeping.check_disks()
            assert not storage.is_read_only
            assert all([await disk.exists(path) for path in FILES])

    disk = SimulatedDisk(capacity_bytes=16 * MIB)
    run(_filled(disk))
    disk.kernel.kill()
    run(after(disk))


def test_without_a_reserve_such_a_start_is_refused_and_loses_nothing() -> None:
    async def refused(disk: SimulatedDisk) -> None:
        for path in FILES:
            await disk.remove(path)
        file = await disk.open("filler", create=True)
        await file.write(file.size(), (bytes((await disk.usage(".")).free_bytes),))
        await file.close()
        with pytest.raises((DiskFull, OSError)):
            await opened(disk, SETTINGS)
        await disk.remove("filler")

    async def after(disk: SimulatedDisk) -> None:
        async with bench(disk, SETTINGS) as storage:
            assert await storage.entry_ids(1) == list(range(50))

    disk = SimulatedDisk(capacity_bytes=16 * MIB)
    run(_filled(disk))
    disk.kernel.kill()
    run(refused(disk))
    disk.kernel.kill()
    run(after(disk))
