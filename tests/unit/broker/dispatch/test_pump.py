# SPDX-License-Identifier: Apache-2.0
"""How much one wake-up of a subscription does before others have their turn."""

import asyncio
import heapq

import pytest

from magnetar.broker.dispatch import pump
from magnetar.broker.dispatch.hooks import Verdict
from magnetar.broker.dispatch.wake_measure import Measure, WakeMeasure
from magnetar.broker.subscription import SubscriptionType
from magnetar.runtime.turn_end import turn_end
from tests.unit.broker.worlds import World


class Nobodys:
    def verdict(self, *_: object) -> Verdict:
        return Verdict.REJECT


@pytest.mark.feature("F-DISP-04")
def test_what_is_read_and_nobody_gets_counts_for_a_wake_ups_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(pump, "USUAL", Measure(100, 1_000))
        world = World(dispatch_read_entries_max=1)
        monkeypatch.setattr(WakeMeasure, "of_one_behind", lambda *_: Measure(100, 1_000))
        for _ in range(8):
            world.publish(size=400)
        world.subscription.pump.filters = (Nobodys(),)
        world.join(SubscriptionType.EXCLUSIVE, permits=100)
        assert world.subscription.cursor.read_position.entry_id == 3, "others have their turn"
        for _ in range(3):
            await world.settle()
        assert world.subscription.cursor.read_position.entry_id == 8

    asyncio.run(scenario())


@pytest.mark.feature("F-PLAT-04")
def test_who_is_behind_sends_its_measure_in_a_turn_whatever_wakes_it_and_lets_the_journal_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        let_in: list[int] = []
        monkeypatch.setattr("os.sched_yield", lambda: let_in.append(1))
        monkeypatch.setattr(pump, "USUAL", Measure(4, 1_000_000))
        monkeypatch.setattr(WakeMeasure, "of_one_behind", lambda *_: Measure(2, 1_000_000))
        world = World(dispatch_read_entries_max=3)
        for _ in range(11):
            world.publish()
        world.join(SubscriptionType.EXCLUSIVE, permits=100)
        cursor = world.subscription.cursor
        read = [cursor.read_position.entry_id]
        world.subscription.pump.wake()
        world.subscription.pump.wake()
        assert cursor.read_position.entry_id == read[0], "it has had its measure of this turn"
        turn_end().threads_at_work = 1
        for _ in range(3):
            heapq.heappop(world.clock.timers)[2]()
            read.append(cursor.read_position.entry_id)
        assert read == [6, 8, 10, 11]
        assert let_in, "the journal's thread may stand behind the loop"
        turn_end().threads_at_work = 0

    asyncio.run(scenario())
