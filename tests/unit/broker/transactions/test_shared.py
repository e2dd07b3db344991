# SPDX-License-Identifier: Apache-2.0
"""Transactions over two brokers: one keeps the coordinator, the other the topics; and each may have been replaced
without knowing it.
"""

import asyncio
from typing import Any

import pytest

from magnetar.broker.transactions.coordinator_state import CoordinatorState, Status
from magnetar.broker.transactions.txn_id import TxnId
from magnetar.errors import BadTransactionStatus, LedgerFenced, MagnetarError, NoTransactionCoordinator
from magnetar.names import TopicName
from magnetar.wire.commands import Type
from tests.unit.broker.transactions.world import SOURCE, TARGETS, TransactionWorld, visible


class Way:
    """In place of a connection: what one broker asks another, as that one's session carries it out."""

    def __init__(self, peer: TransactionWorld) -> None:
        self.peer = peer
        self.asked: list[int] = []

    async def request(self, kind: int, message: Any) -> None:
        self.asked.append(kind)
        transactions, txn_id = self.peer.transactions, TxnId(message.txnid_most_bits, message.txnid_least_bits)
        if kind == Type.ADD_PARTITION_TO_TXN:
            await (await transactions.of(txn_id)).add_partitions(txn_id, message.partitions)
        elif kind == Type.ADD_SUBSCRIPTION_TO_TXN:
            pairs = [(each.topic, each.subscription) for each in message.subscription]
            await (await transactions.of(txn_id)).add_subscriptions(txn_id, pairs)
        elif kind == Type.END_TXN_ON_PARTITION:
            await transactions.end_here(message.topic, txn_id, commit=not message.txn_action)
        else:
            assert kind == Type.END_TXN_ON_SUBSCRIPTION
            pair = message.subscription
            await transactions.end_here(
                pair.topic, txn_id, commit=not message.txn_action, subscription=pair.subscription
            )


class Peers:
    """Coordinators are one broker's, all other topics the other's."""

    def __init__(self, way: Way | None, *, has_coordinators: bool) -> None:
        self.way = way
        self.has_coordinators = has_coordinators

    async def owner_of(self, topic: TopicName) -> Way | None:
        is_coordinator = "transaction_coordinator_assign" in str(topic)
        return None if is_coordinator is self.has_coordinators else self.way

    async def close(self) -> None:
        """There is nothing to close."""


async def two_brokers() -> tuple[TransactionWorld, TransactionWorld]:
    """The one with the coordinators, and the one with the topics."""
    keeper, server = TransactionWorld(), TransactionWorld()
    server.world = keeper.world
    for broker, other in ((keeper, server), (server, keeper)):
        await broker.start()
        broker.peers = Peers(Way(other), has_coordinators=broker is keeper)  # type: ignore[assignment]
        await broker.open()
    return keeper, server


def peers_of(broker: TransactionWorld) -> Peers:
    assert isinstance(broker.peers, Peers)
    return broker.peers


async def stop(*brokers: TransactionWorld) -> None:
    for broker in brokers:
        await broker.stop()


@pytest.mark.feature("F-TXN-15", "F-TXN-08")
@pytest.mark.parametrize("commit", [True, False])
def test_an_end_reaches_topics_and_subscriptions_of_another_broker(commit: bool) -> None:
    async def test() -> None:
        keeper, server = await two_brokers()
        position = await server.send_plain(SOURCE, 1)
        coordinator, txn = await keeper.begin()
        for target in TARGETS:
            await server.send(target, txn, 1)
        await server.ack(txn, position)
        assert list(coordinator.state.find(txn).partitions) == [str(target) for target in TARGETS]
        assert list(coordinator.state.find(txn).subscriptions) == [(str(SOURCE), "s")]
        await coordinator.end(txn, commit=commit)
        for target in TARGETS:
            assert await visible(await server.topic(target)) == ([1] if commit else [])
        assert (await server.subscription()).cursor.is_acked(position) is commit
        await coordinator.log.synced()
        assert coordinator.state.find(txn).status is (Status.COMMITTED if commit else Status.ABORTED)
        with pytest.raises(BadTransactionStatus):
            await server.send(TARGETS[0], txn, 2)
        await stop(server, keeper)

    asyncio.run(test())


@pytest.mark.feature("F-TXN-15", "F-TXN-10")
def test_a_decision_reaches_a_participant_that_was_away() -> None:
    async def test() -> None:
        keeper, server = await two_brokers()
        coordinator, txn = await keeper.begin()
        await server.send(TARGETS[0], txn, 1)
        way = peers_of(keeper).way
        assert way is not None
        request, failures = way.request, 3

        async def fail_at_first(kind: int, message: Any) -> None:
            nonlocal failures
            failures -= 1
            if failures >= 0:
                raise NoTransactionCoordinator("the connection broke")
            await request(kind, message)

        way.request = fail_at_first  # type: ignore[method-assign]
        await coordinator.end(txn, commit=True)
        assert failures < 0
        assert await visible(await server.topic(TARGETS[0])) == [1]
        await stop(server, keeper)

    asyncio.run(test())


@pytest.mark.feature("F-TXN-15", "D-35")
def test_a_coordinator_that_was_replaced_lets_nobody_take_part() -> None:
    """What it remembers may have ended at its successor: only its log can tell."""

    async def test() -> None:
        keeper, server = await two_brokers()
        coordinator, txn = await keeper.begin()
        await coordinator.add_partitions(txn, [str(TARGETS[0])])
        peers_of(server).has_coordinators = True
        successor = await server.transactions.coordinator(0)
        await successor.end(txn, commit=False)
        assert not coordinator.is_closed
        with pytest.raises(MagnetarError):
            await coordinator.add_partitions(txn, [str(TARGETS[0])])
        assert coordinator.is_closed
        await stop(server, keeper)

    asyncio.run(test())


@pytest.mark.feature("F-TXN-15")
def test_nobody_says_that_there_is_nothing_to_end_who_was_replaced() -> None:
    """The next owner has the messages and the acknowledgements; a yes of the former would leave them open for ever."""

    async def test() -> None:
        keeper, server = await two_brokers()
        former = TransactionWorld()
        former.world = keeper.world
        await former.start()
        former.peers = Peers(None, has_coordinators=False)  # type: ignore[assignment]
        await former.open()
        position = await former.send_plain(SOURCE, 1)
        await former.subscription()
        await former.topic(TARGETS[0])
        coordinator, txn = await keeper.begin()
        await server.send(TARGETS[0], txn, 1)
        await server.ack(txn, position)
        with pytest.raises(LedgerFenced):
            await former.transactions.end_here(str(TARGETS[0]), txn, commit=True)
        with pytest.raises(MagnetarError):
            await former.transactions.end_here(str(SOURCE), txn, commit=True, subscription="s")
        await coordinator.end(txn, commit=True)
        assert await visible(await server.topic(TARGETS[0])) == [1]
        assert (await server.subscription()).cursor.is_acked(position)
        await former.die()
        await stop(server, keeper)

    asyncio.run(test())


def test_what_is_registered_already_is_logged_again_where_that_is_asked_for() -> None:
    state = CoordinatorState(0)
    state.new(60_000, 1)
    txn = TxnId(0, 1)
    assert state.add_partitions(txn, ["a", "b"], 1) is not None
    assert state.add_partitions(txn, ["a"], 1) is None
    again = state.add_partitions(txn, ["a"], 1, again=True)
    assert again is not None
    assert list(again.partitions) == ["a"]
    assert state.add_subscriptions(txn, [("a", "s")], 1) is not None
    assert state.add_subscriptions(txn, [("a", "s")], 1) is None
    assert state.add_subscriptions(txn, [("a", "s")], 1, again=True) is not None
    state.apply(again)
    assert list(state.find(txn).partitions) == ["a", "b"]
