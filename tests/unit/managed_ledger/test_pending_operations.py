# SPDX-License-Identifier: Apache-2.0
"""What is done to ledgers is counted while it is done, and by nobody afterwards."""

import asyncio

from magnetar.errors import NoSuchLedger
from magnetar.managed_ledger.pending_operations import Operation
from tests.conftest import RunOnLoop
from tests.unit.managed_ledger.owners import World


def test_an_operation_counts_as_long_as_it_runs(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World()
        owner = world.owner()
        ledger = await owner.open()
        log, pending = ledger._log, ledger.pending_operations
        gate = asyncio.Event()
        delete = log.client.delete

        async def late(ledger_id: int) -> None:
            await gate.wait()
            await delete(ledger_id)

        log.client.delete = late  # type: ignore[method-assign]
        running = [asyncio.create_task(log.delete_ledger(10**6 + number, of_cursor=number > 0)) for number in range(3)]
        await asyncio.sleep(0)
        assert pending.count(Operation.DELETE, of_cursor=False) == 1
        assert pending.count(Operation.DELETE, of_cursor=True) == 2
        gate.set()
        ended = await asyncio.gather(*running, return_exceptions=True)
        assert all(isinstance(each, NoSuchLedger) for each in ended)
        cursor = await ledger.open_cursor("c", initial="earliest")
        owner.publisher.append_many(5)
        await owner.publisher.rest()
        await cursor.flush()
        await owner.close()
        counts = [pending.count(each, of_cursor=of_cursor) for each in Operation for of_cursor in (False, True)]
        assert counts == [0] * 8

    loop_run(scenario())
