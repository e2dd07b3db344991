# SPDX-License-Identifier: Apache-2.0
"""How much one wake-up of a subscription does before others have their turn."""

import asyncio

import pytest

from magnetar.broker.dispatch.hooks import Verdict
from magnetar.broker.dispatch.pump import Pump
from magnetar.broker.subscription import SubscriptionType
from tests.unit.broker.worlds import World


class Nobodys:
    def verdict(self, *_: object) -> Verdict:
        return Verdict.REJECT


@pytest.mark.feature("F-DISP-04")
def test_what_is_read_and_nobody_gets_counts_for_a_wake_ups_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(Pump, "BYTES_PER_WAKE", 1_000)
        world = World(dispatch_read_entries_max=1)
        for _ in range(8):
            world.publish(size=400)
        world.subscription.pump.filters = (Nobodys(),)
        world.join(SubscriptionType.EXCLUSIVE, permits=100)
        assert world.subscription.cursor.read_position.entry_id == 3, "others have their turn"
        for _ in range(3):
            await world.settle()
        assert world.subscription.cursor.read_position.entry_id == 8

    asyncio.run(scenario())
