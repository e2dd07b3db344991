# SPDX-License-Identifier: Apache-2.0
"""A sync that never returns ends the bookie; one that is slow, or a process that stood still, does not."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from magnetar.errors import StorageFailed
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.runtime.simulated_faults import Call, Latency
from magnetar.wire.bookkeeper.codes import ReturnCode
from tests.simulation.world.loop import SimLoop
from tests.simulation.world.schedule import Policy, Schedule
from tests.unit.bookie.benches import KEY, OK, ROOMY, Answers, Failures, add_all, opened, packed

LIMIT_S = 60
SETTINGS = replace(ROOMY, journal_stall_max_ms=LIMIT_S * 1000, scrub_interval_ms=0)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=lambda: SimLoop(Schedule(Policy.FIFO, Random(0)))) as runner:
        runner.run(scenario)


@pytest.mark.parametrize("call", [Call.SYNC, Call.WRITE])
def test_a_sync_that_never_returns_ends_the_bookie(call: Call) -> None:
    """F18: nobody is answered with ok, and nobody waits for ever."""

    async def scenario() -> None:
        disk, failures = SimulatedDisk(), Failures()
        storage = await opened(disk, SETTINGS, failures=failures)
        await add_all(storage, 1, range(3))
        disk.kernel.faults.hanging = frozenset({call})
        answers = Answers()
        for entry_id in range(3, 9):
            storage.add(1, entry_id, packed(1, entry_id), KEY, answers)
            await asyncio.sleep(0.1)
        fencing = asyncio.ensure_future(storage.fence(1, KEY))
        async with asyncio.timeout(2 * LIMIT_S):
            await answers.until(6)
            with pytest.raises(StorageFailed, match="has not returned for 60 s"):
                await fencing
        assert set(answers.codes.values()) == {ReturnCode.IO_ERROR}
        (failure,) = failures
        assert "restart to replay it" in str(failure)
        with pytest.raises(StorageFailed):
            await storage.read(1, 0)
        # It returns after all: too late for anybody.
        disk.kernel.kill()

    run(scenario())


def test_a_slow_disk_is_waited_for() -> None:
    async def scenario() -> None:
        disk, failures = SimulatedDisk(), Failures()
        storage = await opened(disk, SETTINGS, failures=failures)
        disk.kernel.faults.sync_latency = Latency(30_000.0)
        answers = Answers()
        for entry_id in range(8):
            storage.add(1, entry_id, packed(1, entry_id), KEY, answers)
            await asyncio.sleep(20)
        await answers.until(8)
        assert set(answers.codes.values()) == {OK}
        assert failures == []
        await storage.close()

    run(scenario())
