# SPDX-License-Identifier: Apache-2.0
"""A topic that goes while its logs of pending acknowledgements open: whoever loads it next can open them."""

import asyncio
from typing import Any

import pytest

from magnetar.broker.transactions.pending_ack_log import PendingAckLog
from magnetar.broker.transactions.subscription_acks import open_pending_acks
from magnetar.errors import MagnetarError, ServiceNotReady
from magnetar.names import TopicName
from tests.unit.broker.transactions.world import SOURCE, TransactionWorld


async def _claimed(world: TransactionWorld) -> None:
    """One acknowledgement waits for its transaction."""
    await world.open()
    position = await world.send_plain(SOURCE, 1)
    await world.subscription()
    _, txn = await world.begin()
    await world.ack(txn, position)


@pytest.mark.feature("F-TXN-15")
def test_a_topic_that_does_not_load_after_all_leaves_no_log_open(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world = TransactionWorld()
        await _claimed(world)
        await world.topics.unload(SOURCE)

        asked = []

        async def lost(name: TopicName) -> None:
            asked.append(name)
            if len(asked) > 1:
                raise ServiceNotReady("the bundle went while the topic loaded")

        with monkeypatch.context() as patch:
            patch.setattr(world.topics, "check_served", lost)
            with pytest.raises(MagnetarError, match="the bundle went"):
                await world.topic(SOURCE)
        pending = (await world.subscription()).pending_acks
        assert pending is not None
        assert len(list(pending.acks.claims())) == 1
        await world.stop()

    asyncio.run(test())


@pytest.mark.feature("F-TXN-15")
def test_a_log_that_opens_after_its_topic_closed_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world = TransactionWorld()
        await world.open()
        await world.send_plain(SOURCE, 1)
        subscription = await world.subscription()
        managed_ledgers, tasks = world.topics.managed_ledgers, world.transactions._tasks
        plainly = PendingAckLog.open

        async def late(*arguments: Any, **named: Any) -> PendingAckLog:
            opened = await plainly(*arguments, **named)
            await world.topics.unload(SOURCE)
            return opened

        with monkeypatch.context() as patch:
            patch.setattr(PendingAckLog, "open", late)
            with pytest.raises(ServiceNotReady, match="look it up again"):
                await open_pending_acks(SOURCE, subscription, managed_ledgers, tasks, world.settings)
        again = await open_pending_acks(SOURCE, await world.subscription(), managed_ledgers, tasks, world.settings)
        assert list(again.acks.claims()) == []
        await world.stop()

    asyncio.run(test())
