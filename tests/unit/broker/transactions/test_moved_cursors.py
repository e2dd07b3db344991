# SPDX-License-Identifier: Apache-2.0
"""A cursor that is moved, or made anew, and the log of acknowledgements in transactions: what was committed before does
not count at the new place.
"""

import asyncio

import pytest

from magnetar.broker.subscription import Subscription
from magnetar.broker.transactions.pending_ack_log import log_name
from magnetar.errors import ServiceNotReady
from magnetar.ids import EARLIEST, Position
from tests.unit.broker.transactions.world import SOURCE, TransactionWorld


async def _committed(world: TransactionWorld) -> tuple[Subscription, list[Position]]:
    """Two messages, of which the first was acknowledged in a transaction that has committed."""
    await world.open()
    positions = [await world.send_plain(SOURCE, number) for number in (1, 2)]
    subscription = await world.subscription()
    coordinator, txn = await world.begin()
    await world.ack(txn, positions[0])
    await coordinator.end(txn, commit=True)
    assert subscription.cursor.mark_delete == positions[0]
    return subscription, positions


async def _log_fails(subscription: Subscription) -> None:
    """As when the log's bookies were away for too long: it is closed, and opened anew by whoever needs it next."""
    pending = subscription.pending_acks
    assert pending is not None
    pending.log.on_append_failed(0, ServiceNotReady("the bookies are away"))
    async with asyncio.timeout(20):
        while subscription.pending_acks is not None:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.001)


@pytest.mark.feature("F-TXN-15")
@pytest.mark.parametrize("log", ["open", "failed before"])
def test_what_was_committed_before_a_seek_is_not_acknowledged_again_after_a_crash(log: str) -> None:
    async def test() -> None:
        world = TransactionWorld(cursor_flush_interval_ms=60_000)
        subscription, positions = await _committed(world)
        assert subscription.pending_acks is not None
        # Saved just now, so that it saves nothing by itself for a while.
        await subscription.pending_acks.log.cursor.set_properties({"n": 1})
        if log != "open":
            await _log_fails(subscription)
        await subscription.reset(EARLIEST)
        await world.restart()
        topic, found = await world.topic(SOURCE), await world.subscription()
        assert not found.cursor.is_acked(positions[0])
        _, txn = await world.begin()
        await world.ack(txn, positions[1])
        assert not found.cursor.is_acked(positions[0])
        assert topic.subscriptions["s"] is found
        await world.stop()

    asyncio.run(test())


@pytest.mark.feature("F-TXN-15")
@pytest.mark.parametrize("log", ["open", "failed before"])
def test_a_subscription_that_is_made_anew_knows_nothing_of_the_one_before(log: str) -> None:
    async def test() -> None:
        world = TransactionWorld()
        subscription, positions = await _committed(world)
        if log != "open":
            await _log_fails(subscription)
        await (await world.topic(SOURCE)).delete_subscription("s")
        assert not await world.topics.managed_ledgers.exists(log_name(SOURCE, "s"))
        again = await world.subscription()
        _, txn = await world.begin()
        await world.ack(txn, positions[1])
        assert not again.cursor.is_acked(positions[0])
        await world.stop()

    asyncio.run(test())
