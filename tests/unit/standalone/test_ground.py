# SPDX-License-Identifier: Apache-2.0
"""The bookie of a standalone takes whatever its brokers may have on their way."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from random import Random

import pytest

from magnetar.config.load import load_settings
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.standalone.ground import open_ground
from magnetar.standalone.local_channel import LocalBookieChannel
from tests.unit.bookie.benches import KEY, OK, packed, run


class Codes:
    """A listener: how many entries had which outcome."""

    def __init__(self, wanted: int) -> None:
        self.counts: Counter[int] = Counter()
        self.are_all_told = asyncio.Event()
        self._wanted = wanted

    def on_added(self, bookie: str, first: int, last: int, code: int) -> None:
        self.counts[code] += last - first + 1
        if self.counts.total() >= self._wanted:
            self.are_all_told.set()


@pytest.mark.parametrize("in_runs", [False, True])
def test_all_that_may_be_published_at_once_to_a_new_ledger_is_taken(in_runs: bool) -> None:
    """Beyond ten thousand they were refused, which failed the ledger, and came again, all at once, for the next one."""

    async def scenario() -> None:
        settings = load_settings()
        failures: list[BaseException] = []
        async with AsyncExitStack() as opened:
            ground = await open_ground(
                opened, SimulatedDisk(), settings, clock=SystemClock(), random=Random(1), on_failed=failures.append
            )
            count = 3 * settings.bookie.held_adds_max
            channel, told = LocalBookieChannel(ground.storage), Codes(count)
            entries = [packed(7, entry_id) for entry_id in range(count)]
            if in_runs:
                for first in range(0, count, 100):
                    channel.add_run(7, first, entries[first : first + 100], KEY, told)
            else:
                for entry_id, entry in enumerate(entries):
                    channel.add(7, entry_id, entry, KEY, told)
            async with asyncio.timeout(60):
                await told.are_all_told.wait()
            assert told.counts == {OK: count}
        assert failures == []

    run(scenario())
