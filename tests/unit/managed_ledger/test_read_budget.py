# SPDX-License-Identifier: Apache-2.0
"""Bytes on their way from bookies are bounded, and reads that wait get their turn in order.

Carries.
"""

import asyncio

from magnetar.managed_ledger.read_budget import ReadBudget
from tests.conftest import RunOnLoop
from tests.unit.ledger.cluster import settle


class Reading:
    def __init__(self, budget: ReadBudget, size_bytes: int) -> None:
        self.running = False
        self._end = asyncio.Event()
        self.task = asyncio.ensure_future(self._run(budget, size_bytes))

    async def _run(self, budget: ReadBudget, size_bytes: int) -> None:
        async with budget.share(size_bytes):
            self.running = True
            await self._end.wait()
        self.running = False

    async def end(self) -> None:
        self._end.set()
        await self.task


def test_reads_beyond_the_budget_wait_in_order(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        budget = ReadBudget(100)
        reads = [Reading(budget, size) for size in (60, 40, 50, 10)]
        await settle()
        assert [read.running for read in reads] == [True, True, False, False]
        assert (budget.used_bytes, budget.waiting) == (100, 2)
        await reads[1].end()
        await settle()
        assert [read.running for read in reads] == [True, False, False, False], "the larger one is not overtaken"
        await reads[0].end()
        await settle()
        assert [read.running for read in reads] == [False, False, True, True]
        await asyncio.gather(reads[2].end(), reads[3].end())
        assert budget.used_bytes == 0

    loop_run(scenario())


def test_one_read_larger_than_the_budget_goes_alone(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        budget = ReadBudget(100)
        large, small = Reading(budget, 10_000), Reading(budget, 1)
        await settle()
        assert (large.running, small.running) == (True, False)
        await large.end()
        await settle()
        assert small.running
        await small.end()
        assert budget.used_bytes == 0

    loop_run(scenario())


def test_a_read_that_is_cancelled_while_it_waits_takes_nothing(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        budget = ReadBudget(100)
        first, second, third = Reading(budget, 100), Reading(budget, 100), Reading(budget, 100)
        await settle()
        second.task.cancel()
        await asyncio.gather(second.task, return_exceptions=True)
        assert budget.waiting == 1
        # Granted and cancelled in the same step: the share goes on to no one, and is not lost.
        first._end.set()
        await first.task
        third.task.cancel()
        await asyncio.gather(third.task, return_exceptions=True)
        assert (budget.used_bytes, budget.waiting) == (0, 0)

    loop_run(scenario())
