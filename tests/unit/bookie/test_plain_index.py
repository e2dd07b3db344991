# SPDX-License-Identifier: Apache-2.0
"""The index on a plain file, where disks misbehave; what every index must do is in the contract suite."""

import errno

import pytest

from magnetar.bookie.plain_index import PlainLedgerIndex
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.runtime.simulated_faults import Call, DiskCall
from tests.unit.bookie.benches import run

NAME = "index"


def failing_sync(call: DiskCall) -> None:
    if call.call is Call.SYNC:
        raise OSError(errno.EIO, "the medium does not take it")


def test_what_a_failed_sync_left_in_memory_is_durable_after_the_next_open() -> None:
    """Simulation, takeover seed 100017: sync fails, the process restarts, the machine loses power much later."""

    async def fail(disk: SimulatedDisk) -> None:
        index = await PlainLedgerIndex.open(disk, NAME)
        await index.put_note("a", b"1")
        disk.kernel.faults.on_call = failing_sync
        with pytest.raises(OSError, match="does not take it"):
            await index.sync()
        disk.kernel.faults.on_call = None
        disk.kernel.kill()

    async def go_on(disk: SimulatedDisk) -> None:
        index = await PlainLedgerIndex.open(disk, NAME)
        assert await index.note("a") == b"1"
        await index.put_note("b", b"2")
        await index.sync()
        disk.kernel.lose_power()

    async def look(disk: SimulatedDisk) -> None:
        index = await PlainLedgerIndex.open(disk, NAME)
        assert (await index.note("a"), await index.note("b")) == (b"1", b"2")

    disk = SimulatedDisk()
    for step in (fail, go_on, look):
        run(step(disk))
