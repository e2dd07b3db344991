# SPDX-License-Identifier: Apache-2.0
"""An entry log holds entries of many ledgers: it outlives those of them that are deleted."""

import asyncio

import pytest

from magnetar.errors import NoSuchLedger
from magnetar.runtime.simulated_disk import SimulatedDisk
from tests.unit.bookie.benches import bench
from tests.unit.bookie.test_garbage_collector import SETTINGS, Metadata, _check, _fill, _logs


@pytest.mark.feature("F-RET-17")
def test_a_log_stays_while_one_ledger_in_it_lives() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        metadata = Metadata(1, 2)
        async with bench(disk, SETTINGS, questions=metadata.questions()) as storage:
            await _fill(storage, (1, 2), 60)
            before = await _logs(disk)
            metadata.ledger_ids.discard(1)
            await storage.housekeeping.collect()
            with pytest.raises(NoSuchLedger):
                await storage.read(1, 0)
            assert set(before) <= set(await _logs(disk)), "every log has entries of ledger 2"
            await _check(storage, (2,), 60)
            metadata.ledger_ids.clear()
            await storage.housekeeping.collect()
            assert len(await _logs(disk)) == 1, "only the log being written to is left"

    asyncio.run(scenario())
