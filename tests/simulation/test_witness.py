# SPDX-License-Identifier: Apache-2.0
"""The witness of a bookie's storage: what it calls durable, also where the simulation itself does damage."""

import asyncio

import pytest

from magnetar.runtime.simulated_disk import SimulatedDisk
from tests.simulation.world.registry import run_seed
from tests.simulation.world.watched_storage import is_durable

ENTRY = b"an entry of a ledger"


@pytest.mark.parametrize("flipped_at", [None, 6, 20, 25])
@pytest.mark.parametrize("is_synced", [True, False])
@pytest.mark.parametrize("is_evicted", [True, False])
def test_what_rots_on_its_way_was_stored_if_it_was_synced(
    flipped_at: int | None, is_synced: bool, is_evicted: bool
) -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        file = await disk.open("1.txn", create=True)
        await disk.sync_directory(".")
        await file.write(0, [b"before" + ENTRY])
        if flipped_at is not None:
            disk.kernel.flip_bit("1.txn", flipped_at, 3)
        if is_synced:
            await file.sync()
            if flipped_at is not None:
                disk.kernel.flip_bit("1.txn", flipped_at, 2)
        if is_evicted:
            disk.kernel.evict()
        assert is_durable(disk, "1", ENTRY) is is_synced
        assert not is_durable(disk, "1", b"of another ledger   ")
        assert not is_durable(disk, "2", ENTRY)

    asyncio.run(scenario())


def test_what_was_written_over_damage_is_damaged_no_more() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        file = await disk.open("1.txn", create=True)
        await disk.sync_directory(".")
        await file.write(0, [ENTRY])
        await file.sync()
        disk.kernel.zero_sector("1.txn", 0)
        assert is_durable(disk, "1", ENTRY)
        await file.write(0, [b"something else here!"])
        await file.sync()
        assert not is_durable(disk, "1", ENTRY)

    asyncio.run(scenario())


def test_a_bit_that_flips_in_an_entry_before_its_sync_is_not_the_bookies_fault() -> None:
    assert not run_seed("storage", 914076540).violations
