# SPDX-License-Identifier: Apache-2.0
"""Transactions whole or not at all: at every step, and over brokers that die at any moment."""

import asyncio
from dataclasses import replace
from random import Random

import pytest

from magnetar.broker.transactions.coordinator_state import Status, decode
from magnetar.broker.transactions.txn_id import TxnId
from magnetar.errors import (
    BadTransactionStatus,
    MagnetarError,
    NoTransactionCoordinator,
    NotSupported,
    ServiceNotReady,
    TransactionConflict,
    TransactionNotFound,
)
from magnetar.ids import Position
from magnetar.wire.broker_entry import message_start
from magnetar.wire.message import read_metadata
from magnetar.wire.proto.transaction_metadata_pb2 import TransactionMetadataEntry as Record
from tests.unit.broker.transactions.world import SOURCE, TARGETS, TransactionWorld, visible


@pytest.mark.feature("F-TXN-06", "F-TXN-08")
def test_the_log_is_ahead_of_what_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registered before the first message and acknowledgement; decided before anyone is told; ended after all were."""

    async def test() -> None:
        world = TransactionWorld()
        await world.open()
        position = await world.send_plain(SOURCE, 1)
        coordinator, txn = await world.begin()
        logged_at: list[tuple[str, list[str]]] = []

        async def note(step: str) -> None:
            records = [decode(data) async for _, data in coordinator.log.records()]
            logged_at.append((step, [_name(record) for record in records]))

        async def end_here(topic: str, txn_id: TxnId, *, commit: bool, subscription: str | None = None) -> None:
            await note(f"end on {subscription or topic}")
            await plain_end(topic, txn_id, commit=commit, subscription=subscription)

        plain_end = world.transactions.end_here
        monkeypatch.setattr(world.transactions, "end_here", end_here)
        topic = await world.topic(TARGETS[0])
        await world.transactions.admit(topic, txn)
        await note("before the first message")
        await world.send(TARGETS[0], txn, 1)
        await world.transactions.pending_acks(await world.topic(SOURCE), await world.subscription(), txn)
        await note("before the first acknowledgement")
        await world.ack(txn, position)
        await coordinator.end(txn, commit=True)
        await coordinator.log.synced()
        await note("ended")
        registered = ["NEW", "ADD_PARTITION", "ADD_SUBSCRIPTION"]
        assert logged_at == [
            ("before the first message", registered[:2]),
            ("before the first acknowledgement", registered),
            (f"end on {TARGETS[0]}", [*registered, "COMMITTING"]),
            ("end on s", [*registered, "COMMITTING"]),
            ("ended", [*registered, "COMMITTING", "COMMITTED"]),
        ]
        [marker] = await topic.managed_ledger.read(topic.managed_ledger.last_confirmed, entries_max=1, bytes_max=1)
        assert read_metadata(marker.body, message_start(marker.body)).marker_type == 21
        await world.stop()

    asyncio.run(test())


def _name(record: Record) -> str:
    if record.metadata_op == Record.UPDATE:
        return Status(record.new_status).name
    return Record.TransactionMetadataOp.Name(record.metadata_op)


@pytest.mark.feature("F-TXN-10")
def test_a_participant_that_is_away_at_the_commit_hears_of_it_later(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world = TransactionWorld()
        world.settings = replace(world.settings, transaction_participant_timeout_ms=50)
        await world.open()
        coordinator, txn = await world.begin()
        for target in TARGETS:
            await world.send(target, txn, 1)
        is_away = True

        async def end_here(topic: str, txn_id: TxnId, *, commit: bool, subscription: str | None = None) -> None:
            if is_away and topic == str(TARGETS[1]):
                raise ServiceNotReady("away")
            await plain_end(topic, txn_id, commit=commit, subscription=subscription)

        plain_end = world.transactions.end_here
        monkeypatch.setattr(world.transactions, "end_here", end_here)
        await coordinator.end(txn, commit=True)
        assert await visible(await world.topic(TARGETS[0])) == [1]
        assert await visible(await world.topic(TARGETS[1])) == []
        with pytest.raises(BadTransactionStatus):
            await coordinator.end(txn, commit=False)
        is_away = False
        async with asyncio.timeout(20):
            while coordinator.state.active:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        assert await visible(await world.topic(TARGETS[1])) == [1]
        await world.stop()

    asyncio.run(test())


def test_a_transaction_counts_on_all_topics_and_subscriptions_at_once() -> None:
    async def test() -> None:
        world = TransactionWorld()
        await world.open()
        position = await world.send_plain(SOURCE, 1)
        coordinator, txn = await world.begin()
        for target in TARGETS:
            await world.send(target, txn, 7)
        await world.ack(txn, position)
        transaction = coordinator.state.find(txn)
        assert list(transaction.partitions) == [str(target) for target in TARGETS]
        assert list(transaction.subscriptions) == [(str(SOURCE), "s")]
        assert [await visible(await world.topic(target)) for target in TARGETS] == [[], []]
        assert not (await world.subscription()).cursor.is_acked(position)
        await coordinator.end(txn, commit=True)
        assert [await visible(await world.topic(target)) for target in TARGETS] == [[7], [7]]
        assert (await world.subscription()).cursor.is_acked(position)
        assert coordinator.state.find(txn).status is Status.COMMITTED
        await world.stop()

    asyncio.run(test())


@pytest.mark.feature("F-TXN-12", "F-TXN-13")
def test_what_is_open_hides_what_follows_until_its_time_is_up() -> None:
    async def test() -> None:
        world = TransactionWorld()
        await world.open()
        coordinator, txn = await world.begin(timeout_ms=1_000)
        topic = await world.topic(TARGETS[0])
        await world.send_plain(TARGETS[0], 1)
        await world.send(TARGETS[0], txn, 2)
        await world.send_plain(TARGETS[0], 3)
        assert await visible(topic) == [1]
        world.world.clock.time_ms += 1_000
        assert coordinator.abort_expired() == 1
        await coordinator.end(txn, commit=False)
        assert await visible(topic) == [1, 3]
        with pytest.raises(BadTransactionStatus):
            await world.send(TARGETS[0], txn, 4)
        with pytest.raises(BadTransactionStatus):
            await coordinator.end(txn, commit=True)
        await world.stop()

    asyncio.run(test())


@pytest.mark.feature("F-TXN-13")
def test_a_commit_and_a_time_out_at_once_have_one_outcome_whoever_is_first() -> None:
    """F160: the time is up at each turn of the loop, from before the commit is looked at until it is answered."""

    async def is_committed_though_the_time_is_up_after(turns: int) -> bool:
        world = TransactionWorld()
        await world.open()
        position = await world.send_plain(SOURCE, 1)
        coordinator, txn = await world.begin(timeout_ms=1_000)
        for target in TARGETS:
            await world.send(target, txn, 2)
        await world.ack(txn, position)
        commit = asyncio.ensure_future(coordinator.end(txn, commit=True))
        for _ in range(turns):
            await asyncio.sleep(0)
        world.world.clock.time_ms += 1_000
        coordinator.abort_expired()
        (refused,) = await asyncio.gather(commit, return_exceptions=True)
        assert refused is None or isinstance(refused, BadTransactionStatus)
        # Whoever asks again is told the same; this waits for the participants, too.
        await coordinator.end(txn, commit=refused is None)
        with pytest.raises(BadTransactionStatus):
            await coordinator.end(txn, commit=refused is not None)
        for is_restarted in (False, True):
            if is_restarted:
                await world.restart()
            seen = [await visible(await world.topic(target)) for target in TARGETS]
            assert seen == [[2] if refused is None else []] * len(TARGETS)
            assert (await world.subscription()).cursor.is_acked(position) == (refused is None)
        await world.stop()
        return refused is None

    async def test() -> None:
        outcomes = [await is_committed_though_the_time_is_up_after(turns) for turns in range(40)]
        assert set(outcomes) == {True, False}

    asyncio.run(test())


def test_late_messages_and_acknowledgements_are_refused() -> None:
    async def test() -> None:
        world = TransactionWorld()
        await world.open()
        position = await world.send_plain(SOURCE, 1)
        coordinator, txn = await world.begin()
        _, later = await world.begin()
        await coordinator.end(txn, commit=True)
        with pytest.raises(BadTransactionStatus):
            await world.send(TARGETS[0], txn, 1)
        with pytest.raises(BadTransactionStatus):
            await world.ack(txn, position)
        with pytest.raises(TransactionNotFound):
            await world.send(TARGETS[0], TxnId(0, 999), 1)
        with pytest.raises(NoTransactionCoordinator):
            await world.send(TARGETS[0], TxnId(77, 1), 1)
        await world.send(TARGETS[0], later, 5)
        # Known to be over at the topic itself, whatever a coordinator would say.
        topic = await world.topic(TARGETS[0])
        await coordinator.end(later, commit=True)
        with pytest.raises(BadTransactionStatus):
            await topic.transactions.admit(later)
        await world.stop()

    asyncio.run(test())


@pytest.mark.feature("F-TXN-14")
def test_two_transactions_do_not_acknowledge_the_same_message() -> None:
    async def test() -> None:
        world = TransactionWorld()
        await world.open()
        position = await world.send_plain(SOURCE, 1)
        coordinator, one = await world.begin()
        _, other = await world.begin()
        await world.ack(one, position)
        with pytest.raises(TransactionConflict):
            await world.ack(other, position)
        await coordinator.end(one, commit=False)
        await world.ack(other, position)
        await coordinator.end(other, commit=True)
        assert (await world.subscription()).cursor.is_acked(position)
        await world.stop()

    asyncio.run(test())


@pytest.mark.feature("F-TXN-04")
def test_a_decision_is_carried_out_by_the_next_owner() -> None:
    """The coordinator's broker dies when the decision is durable and nobody was told."""

    async def test() -> None:
        world = TransactionWorld()
        await world.open()
        position = await world.send_plain(SOURCE, 1)
        coordinator, txn = await world.begin()
        await world.send(TARGETS[0], txn, 1)
        await world.ack(txn, position)
        record = coordinator.state.end(txn, commit=True, now_ms=1)
        assert record is not None
        await coordinator._logged(record)
        await world.restart()
        topic = await world.topic(TARGETS[0])
        async with asyncio.timeout(20):
            while await visible(topic) != [1]:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            while not (await world.subscription()).cursor.is_acked(position):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        again = await world.transactions.coordinator(0)
        await again.end(txn, commit=True)
        with pytest.raises(BadTransactionStatus):
            await again.end(txn, commit=False)
        await world.stop()

    asyncio.run(test())


@pytest.mark.feature("F-TXN-09")
def test_what_waits_is_known_after_a_restart_and_decided_then() -> None:
    async def test() -> None:
        for commit in (True, False):
            world = TransactionWorld()
            await world.open()
            position = await world.send_plain(SOURCE, 1)
            _, txn = await world.begin()
            await world.send(TARGETS[0], txn, 1)
            await world.ack(txn, position)
            await world.restart()
            _, other = await world.begin()
            with pytest.raises(TransactionConflict):
                await world.ack(other, position)
            assert await visible(await world.topic(TARGETS[0])) == []
            await (await world.transactions.coordinator(0)).end(txn, commit=commit)
            assert await visible(await world.topic(TARGETS[0])) == ([1] if commit else [])
            assert (await world.subscription()).cursor.is_acked(position) is commit
            await world.restart()
            assert await visible(await world.topic(TARGETS[0])) == ([1] if commit else [])
            assert (await world.subscription()).cursor.is_acked(position) is commit
            await world.stop()

    asyncio.run(test())


def test_a_seek_is_not_undone_by_what_was_committed_before() -> None:
    async def test() -> None:
        world = TransactionWorld()
        await world.open()
        first, second = [await world.send_plain(SOURCE, number) for number in (1, 2)]
        coordinator, txn = await world.begin()
        _, waiting = await world.begin()
        await world.ack(waiting, second)
        await world.ack(txn, first)
        await coordinator.end(txn, commit=True)
        await (await world.subscription()).reset(first)
        await world.restart()
        subscription = await world.subscription()
        assert not subscription.cursor.is_acked(first)
        await (await world.transactions.coordinator(0)).end(waiting, commit=True)
        assert subscription.cursor.is_acked(second)
        assert not subscription.cursor.is_acked(first)
        await world.stop()

    asyncio.run(test())


def test_a_terminated_topic_lets_its_transactions_end() -> None:
    async def test() -> None:
        world = TransactionWorld()
        await world.open()
        coordinator, txn = await world.begin()
        _, other = await world.begin()
        topic = await world.topic(TARGETS[0])
        await world.send(TARGETS[0], txn, 1)
        await world.send(TARGETS[0], other, 2)
        await topic.terminate()
        await coordinator.end(txn, commit=True)
        await coordinator.end(other, commit=False)
        assert await visible(topic) == [1]
        await world.restart()
        assert await visible(await world.topic(TARGETS[0])) == [1]
        await world.stop()

    asyncio.run(test())


def test_a_deleted_participant_does_not_keep_the_others_from_ending() -> None:
    async def test() -> None:
        world = TransactionWorld()
        await world.open()
        position = await world.send_plain(SOURCE, 1)
        coordinator, txn = await world.begin()
        for target in TARGETS:
            await world.send(target, txn, 1)
        await world.ack(txn, position)
        await world.topics.delete(TARGETS[0], force=True)
        await (await world.topic(SOURCE)).delete_subscription("s")
        await coordinator.end(txn, commit=True)
        assert await visible(await world.topic(TARGETS[1])) == [1]
        assert coordinator.state.find(txn).status is Status.COMMITTED
        await world.stop()

    asyncio.run(test())


def test_nothing_is_served_where_transactions_are_off() -> None:
    async def test() -> None:
        world = TransactionWorld()
        await world.start(transactions_enabled=False)
        await world.open()
        with pytest.raises(NotSupported):
            await world.transactions.coordinator(0)
        await world.stop()

    asyncio.run(test())


class Story:
    """One client's transactions, each of which publishes to both targets and acknowledges one source message."""

    def __init__(self, world: TransactionWorld, chance: Random) -> None:
        self.world = world
        self.chance = chance
        self.told: dict[int, bool] = {}
        self.positions: dict[int, Position] = {}

    async def live(self, number: int) -> None:
        """One transaction; what the client is told of its end is noted, also when the broker dies meanwhile."""
        world = self.world
        try:
            self.positions[number] = await world.send_plain(SOURCE, number)
            coordinator, txn = await world.begin(timeout_ms=100, coordinator=number % 2)
            for target in TARGETS:
                await world.send(target, txn, number)
            await world.ack(txn, self.positions[number])
            commit = self.chance.random() < 0.6
            await coordinator.end(txn, commit=commit)
            self.told[number] = commit
        except (MagnetarError, AssertionError, TimeoutError):
            return


@pytest.mark.feature("F-TXN-01", "F-TXN-11")
@pytest.mark.parametrize("seed", range(6))
def test_random_transactions_with_crashes_are_atomic_and_exactly_once(seed: int) -> None:
    async def test() -> None:
        chance = Random(seed)
        world = TransactionWorld()
        await world.open()
        await world.subscription()
        story = Story(world, chance)
        number = 0
        for _ in range(8):
            tasks = []
            for _ in range(chance.randint(1, 3)):
                number += 1
                tasks.append(asyncio.create_task(story.live(number)))
            for _ in range(chance.randint(1, 250)):
                await asyncio.sleep(0)
            if chance.random() < 0.3:
                await asyncio.wait(tasks)
            await world.die()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            world.world.clock.time_ms += 50
            await world.open()
        world.world.clock.time_ms += 1_000
        await until_quiet(world)
        seen = [await visible(await world.topic(target)) for target in TARGETS]
        cursor = (await world.subscription()).cursor
        for target in seen:
            assert len(target) == len(set(target)), "delivered twice"
        for each in range(1, number + 1):
            counted = [each in target for target in seen]
            assert counted[0] == counted[1], f"transaction {each} counts in part"
            position = story.positions.get(each)
            if position is not None:
                assert cursor.is_acked(position) is counted[0], f"transaction {each}: its acknowledgement differs"
            if each in story.told:
                assert counted[0] is story.told[each], f"transaction {each} was told {story.told[each]}"
        await world.stop()

    asyncio.run(test())


async def until_quiet(world: TransactionWorld) -> None:
    """Every transaction has ended: by its decision, or by its time."""
    async with asyncio.timeout(30):
        for number in range(2):
            coordinator = await world.transactions.coordinator(number)
            coordinator.abort_expired()
            while coordinator.state.active:  # noqa: ASYNC110
                await asyncio.sleep(0.005)


@pytest.mark.feature("F-TOP-17")
def test_a_transaction_that_is_open_while_its_topic_is_truncated_stays_hidden() -> None:
    async def test() -> None:
        world = TransactionWorld()
        await world.open()
        _, txn = await world.begin()
        # Nothing that was truncated: the first message of the transaction comes while that is under way.
        await world.send_plain(TARGETS[0], 1)
        topic = await world.topic(TARGETS[0])
        subscription = await world.subscription(TARGETS[0])
        await world.transactions.admit(topic, txn)
        reset = subscription.reset

        async def busy_reset(place: Position) -> None:
            await world.send(TARGETS[0], txn, 2)
            await reset(place)

        subscription.reset = busy_reset  # type: ignore[assignment, method-assign]
        await topic.truncate()
        await world.restart()
        topic = await world.topic(TARGETS[0])
        assert await visible(topic) == [1]
        await (await world.transactions.of(txn)).end(txn, commit=False)
        assert await visible(topic) == [1]
        await world.stop()

    asyncio.run(test())
