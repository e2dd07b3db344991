# SPDX-License-Identifier: Apache-2.0
"""One topic over real ledgers: receipts in order, dense indexes, deduplication that outlives its owner, limits."""

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

from magnetar.broker.consumer import Consumer
from magnetar.broker.deduplication_cursor import CURSOR
from magnetar.broker.rate_limit import Rate
from magnetar.broker.stored_message import stored_index
from magnetar.broker.subscription import Subscription, SubscriptionType
from magnetar.broker.topic import Topic
from magnetar.config.broker import BrokerSettings
from magnetar.errors import (
    BadPayload,
    BadSequence,
    MagnetarError,
    MessageTooLarge,
    NotSupported,
    ServiceNotReady,
    TopicBusy,
    TopicNotFound,
    TopicTerminated,
)
from magnetar.ids import EARLIEST
from tests.unit.broker.publishers import Brokers, Client, body_of, producer_of, stored
from tests.unit.broker.worlds import ClientTwin, client_of

DEDUPLICATED = BrokerSettings(deduplication_enabled=True)


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


def send(topic: Topic, producer: Any, sequence_id: int, highest: int = 0, messages: int = 1, **fields: Any) -> None:
    body = body_of(producer.name, sequence_id, highest or None, **fields)
    topic.publish(producer, sequence_id, highest, messages, body, is_chunk="uuid" in fields)


async def indexes(topic: Topic) -> list[int]:
    entries = await topic.managed_ledger.read(EARLIEST, entries_max=1_000, bytes_max=1 << 24)
    return [stored_index(entry) for entry in entries]


@pytest.mark.feature("F-ML-04", "F-ML-15")
def test_receipts_come_in_order_and_indexes_are_dense_over_owners() -> None:
    async def main() -> None:
        brokers = Brokers()
        await brokers.start()
        topic = await brokers.topic()
        clients = [Client(), Client()]
        producers = [producer_of(client, f"p{number}") for number, client in enumerate(clients)]
        for producer in producers:
            await topic.add_producer(producer)
        for number in range(40):
            send(topic, producers[number % 3 % 2], number, messages=1 + number % 4)
        for client in clients:
            await client.until(lambda: sum(len(each.answers) for each in clients) == 40)
            assert [sequence_id for _, sequence_id in client.answers] == sorted(client.positions)
        expected = []
        last = -1
        for number in range(40):
            last += 1 + number % 4
            expected.append(last)
        assert await indexes(topic) == expected
        assert topic.messages_in == last + 1
        await brokers.die()

        await brokers.start()
        topic = await brokers.topic()
        producer = producer_of(clients[0], "p")
        await topic.add_producer(producer)
        send(topic, producer, 99)
        await clients[0].until(lambda: ("stored", 99) in clients[0].answers)
        assert topic.last_index == last + 1
        await brokers.stop()

    run(main())


@pytest.mark.feature("F-ML-15")
@pytest.mark.parametrize("ending", ["die", "stop"])
def test_indexes_go_on_when_everything_was_consumed_and_let_go(ending: str) -> None:
    """The last ledger is empty, those before it are gone: no entry is left that could tell."""

    async def main() -> None:
        brokers = Brokers(ledger_entries_max=4, retention_ms=0, retention_bytes=0)
        await brokers.start()
        topic = await brokers.topic()
        client = Client()
        producer = producer_of(client)
        await topic.add_producer(producer)
        subscription = await topic.open_subscription("s", initial=EARLIEST)
        for number in range(4):
            send(topic, producer, number, messages=2)
        await client.until_answers(4)
        first = topic.managed_ledger.ledgers.first.ledger_id
        async with asyncio.timeout(20):
            while len(topic.managed_ledger.ledgers) < 2:  # noqa: ASYNC110 - rolling has no event
                await asyncio.sleep(0.001)
        subscription.skip_through(topic.managed_ledger.last_confirmed)
        await subscription.cursor.flush()
        await topic.managed_ledger.trim()
        assert first not in topic.managed_ledger.ledgers
        assert not topic.managed_ledger.entries
        await (brokers.die() if ending == "die" else brokers.stop())

        await brokers.start()
        topic = await brokers.topic()
        assert (topic.last_index, topic.stored_index) == (7, 7)
        producer = producer_of(client)
        await topic.add_producer(producer)
        send(topic, producer, 4)
        await client.until_answers(5)
        assert await indexes(topic) == [8]
        assert topic.subscriptions["s"].backlog_messages() == 1
        await brokers.stop()

    run(main())


@pytest.mark.parametrize("entries_max", [7, 50_000])
def test_a_run_is_stored_as_its_messages_one_by_one(entries_max: int) -> None:
    async def main() -> None:
        brokers = Brokers(ledger_entries_max=entries_max, rollover_age_min_ms=0)
        await brokers.start()
        topic = await brokers.topic()
        client = Client()
        producer = producer_of(client)
        await topic.add_producer(producer)
        number, taken = 0, []
        for size in (2, 3, 5, 20, 1):
            sends = [(number + i, 0, 1 + i % 3, body_of("p", number + i)) for i in range(size)]
            if topic.publish_run(producer, sends):
                taken.append(size)
            else:
                for sequence_id, highest, messages, body in sends:
                    topic.publish(producer, sequence_id, highest, messages, body)
            number += size
        await client.until_answers(number)
        assert client.answers == [("stored", sequence_id) for sequence_id in range(number)]
        assert (5 in taken) == (entries_max > 10), "a run that would fill the ledger is not taken as one"
        assert await stored(topic) == [("p", sequence_id) for sequence_id in range(number)]
        assert topic.messages_in == topic.last_index + 1
        assert producer.pending == 0
        await brokers.stop()

    run(main())


def test_what_must_be_looked_at_is_not_taken_as_a_run() -> None:
    async def main() -> None:
        for settings, messages, size in (
            (DEDUPLICATED, 1, 0),
            (BrokerSettings(delayed_delivery_delay_max_ms=1_000), 1, 0),
            (BrokerSettings(message_bytes_max=1_000), 1, 1_000),
            (BrokerSettings(), 0, 0),
        ):
            brokers = Brokers(settings)
            await brokers.start()
            topic = await brokers.topic()
            producer = producer_of(Client())
            await topic.add_producer(producer)
            run_of_two = [(0, 0, 1, body_of()), (1, 0, messages, body_of() + bytes(size))]
            assert not topic.publish_run(producer, run_of_two)
            assert topic.last_index == -1
            assert producer.pending == 0
            await brokers.stop()

    run(main())


def test_bad_entries_are_refused_and_take_nothing() -> None:
    async def main() -> None:
        brokers = Brokers(BrokerSettings(message_bytes_max=1_000))
        await brokers.start()
        topic = await brokers.topic()
        client = Client()
        producer = producer_of(client)
        await topic.add_producer(producer)
        with pytest.raises(MessageTooLarge):
            topic.publish(producer, 0, 0, 1, body_of() + b"x" * 1_000)
        topic.publish(producer, 1, 0, 1, body_of() + b"x" * (1_000 - len(b"payload")))
        for messages in (0, -1):
            with pytest.raises(BadPayload):
                topic.publish(producer, 2, 0, messages, body_of())
        await client.until_answers(1)
        assert topic.last_index == 0
        assert client.answers == [("stored", 1)]
        await brokers.stop()

    run(main())


@pytest.mark.feature("F-PROD-26")
def test_duplicates_are_answered_in_their_turn_and_stored_once() -> None:
    async def main() -> None:
        brokers = Brokers(DEDUPLICATED)
        await brokers.start()
        topic = await brokers.topic()
        client = Client()
        producer = producer_of(client)
        await topic.add_producer(producer)
        send(topic, producer, 0)
        await client.until_answers(1)
        send(topic, producer, 5)
        send(topic, producer, 0)
        send(topic, producer, 5)
        assert client.answers == [("stored", 0)], "a duplicate does not overtake"
        await client.until_answers(4)
        assert client.answers == [("stored", 0), ("stored", 5), ("again", 0), ("again", 5)]
        sequence_ids = [10, 11, 10, 12, 12, 11, 13, 5]
        for sequence_id in sequence_ids:
            send(topic, producer, sequence_id)
        await client.until_answers(12)
        assert [sequence_id for _, sequence_id in client.answers[4:]] == sequence_ids
        send(topic, producer, 3)
        assert client.answers[-1] == ("again", 3), "nothing is on its way: at once"
        with pytest.raises(BadSequence):
            send(topic, producer, 12, highest=18, messages=7)
        send(topic, producer, 16, highest=18, messages=3)
        await client.until_answers(14)
        assert [sequence_id for _, sequence_id in await stored(topic)] == [0, 5, 10, 11, 12, 13, 16]
        assert topic.last_index == 8
        assert producer.pending == 0
        await brokers.stop()

    run(main())


@pytest.mark.feature("F-PROD-27", "F-PROD-29")
@pytest.mark.parametrize("ending", ["die", "stop"])
@pytest.mark.parametrize("interval", [3, 1_000])
def test_the_next_owner_knows_every_id_that_is_stored(ending: str, interval: int) -> None:
    async def main() -> None:
        brokers = Brokers(BrokerSettings(deduplication_enabled=True, deduplication_entries_interval=interval))
        last: dict[str, int] = {}
        for generation in range(3):
            await brokers.start()
            topic = await brokers.topic()
            client = Client()
            for name in ("p", "q"):
                producer = producer_of(client, name)
                await topic.add_producer(producer)
                assert await topic.last_sequence_id(name) == last.get(name, -1)
                for sequence_id in range(generation * 10 + 5):
                    send(topic, producer, sequence_id)
                last[name] = generation * 10 + 4
            await client.until_answers(2 * (generation * 10 + 5))
            await (brokers.die() if ending == "die" else brokers.stop())
        await brokers.start()
        topic = await brokers.topic()
        found = await stored(topic)
        assert len(found) == len(set(found)) == 50
        await brokers.stop()

    run(main())


def test_a_long_replay_saves_its_progress() -> None:
    async def main() -> None:
        brokers = Brokers(BrokerSettings(deduplication_enabled=True, deduplication_entries_interval=10_000))
        await brokers.start()
        topic = await brokers.topic()
        client = Client()
        producer = producer_of(client)
        await topic.add_producer(producer)
        for sequence_id in range(450):
            send(topic, producer, sequence_id)
        await client.until_answers(450)
        await brokers.die()
        await brokers.start(deduplication_entries_interval=100)
        topic = await brokers.topic()
        assert topic.managed_ledger.cursors[CURSOR].mark_delete.entry_id >= 299
        assert await topic.last_sequence_id("p") == 449
        await brokers.stop()

    run(main())


@pytest.mark.feature("F-PROD-21")
def test_chunks_of_one_message_are_stored_once_as_a_group() -> None:
    async def main() -> None:
        brokers = Brokers(DEDUPLICATED)
        await brokers.start()
        topic = await brokers.topic()
        client = Client()
        producer = producer_of(client)
        await topic.add_producer(producer)
        for chunk_id in (0, 1):
            send(topic, producer, 4, uuid="u", chunk_id=chunk_id, num_chunks_from_msg=3)
        await client.until_answers(2)
        await brokers.die()
        await brokers.start()
        topic = await brokers.topic()
        client = Client()
        producer = producer_of(client)
        await topic.add_producer(producer)
        assert await topic.last_sequence_id("p") == -1
        for chunk_id in (1, 2, 2, 0):
            send(topic, producer, 4, uuid="u", chunk_id=chunk_id, num_chunks_from_msg=3)
        await client.until_answers(4)
        assert client.answers == [("again", 4), ("stored", 4), ("again", 4), ("again", 4)]
        assert len(await stored(topic)) == 3
        assert await topic.last_sequence_id("p") == 4
        await brokers.stop()

    run(main())


def test_messages_from_another_cluster_are_known_by_their_own_producers() -> None:
    async def main() -> None:
        brokers = Brokers(DEDUPLICATED)
        for generation in range(2):
            await brokers.start()
            topic = await brokers.topic()
            client = Client()
            replicator = producer_of(client, "pulsar.repl.east-->west")
            await topic.add_producer(replicator)
            for number, name in enumerate(("p", "q", "p", "q", "p")):
                sequence_id = (0, 0, 1, 1, 1)[number]
                topic.publish(replicator, number, 0, 1, body_of(name, sequence_id))
            await client.until_answers(5)
            answers = [kind for kind, _ in client.answers]
            assert answers == (["stored"] * 4 + ["again"] if generation == 0 else ["again"] * 5)
            assert await stored(topic) == [("p", 0), ("q", 0), ("p", 1), ("q", 1)]
            if generation == 1:
                brokers.world.clock.time_ms += 361 * 60_000
                topic.upkeep()
                assert await topic.last_sequence_id("q") == -1, "names that were not seen for long are forgotten"
            await brokers.die()

    run(main())


def test_deduplication_can_be_switched_while_messages_come() -> None:
    async def main() -> None:
        brokers = Brokers()
        await brokers.start()
        topic = await brokers.topic()
        client = Client()
        producer = producer_of(client)
        await topic.add_producer(producer)
        for sequence_id in (0, 1, 1):
            send(topic, producer, sequence_id)
        switching = asyncio.get_running_loop().create_task(topic.set_deduplication(True))
        await asyncio.sleep(0)
        send(topic, producer, 2)
        await switching
        assert topic.is_deduplicated
        assert CURSOR in topic.managed_ledger.cursors
        assert CURSOR not in topic.subscriptions
        send(topic, producer, 3)
        send(topic, producer, 3)
        await client.until_answers(6)
        assert client.answers[-1] == ("again", 3)
        await topic.set_deduplication(False)
        assert CURSOR not in topic.managed_ledger.cursors
        send(topic, producer, 3)
        await client.until_answers(7)
        assert client.answers[-1] == ("stored", 3)
        await brokers.stop()

    run(main())


def test_what_waits_for_an_append_that_fails_is_refused_and_the_retry_is_stored() -> None:
    async def main() -> None:
        brokers = Brokers(DEDUPLICATED)
        await brokers.start()
        topic = await brokers.topic()
        client = Client()
        producer = producer_of(client)
        await topic.add_producer(producer)
        send(topic, producer, 0)
        await client.until_answers(1)
        topic.publish(producer, 1, 0, 1, body_of("p", 1))
        send(topic, producer, 1)
        send(topic, producer, 0)
        topic.on_append_failed(1, ServiceNotReady("fenced"))
        assert client.answers == [("stored", 0), ("refused", 1), ("refused", 1), ("again", 0)]
        assert topic.last_index == 0
        assert producer.pending == 0
        await brokers.die()
        await brokers.start()
        topic = await brokers.topic()
        await topic.add_producer(producer_of(Client()))
        assert await topic.last_sequence_id("p") in (0, 1)
        await brokers.stop()

    run(main())


def test_random_resends_over_dying_brokers_are_stored_exactly_once() -> None:
    async def main() -> None:
        chance = Random(11)
        brokers = Brokers(BrokerSettings(deduplication_enabled=True, deduplication_entries_interval=7))
        acknowledged = -1
        for _ in range(8):
            await brokers.start()
            topic = await brokers.topic()
            client = Client()
            producer = producer_of(client)
            await topic.add_producer(producer)
            start = max(0, acknowledged - chance.randrange(5))
            for sequence_id in range(start, start + chance.randrange(1, 20)):
                send(topic, producer, sequence_id)
                if chance.random() < 0.3:
                    send(topic, producer, max(0, sequence_id - chance.randrange(4)))
            await client.until_answers(chance.randrange(1, 4) if chance.random() < 0.5 else 1)
            acknowledged = max([acknowledged, *(sequence_id for _, sequence_id in client.answers)])
            await brokers.die()
        await brokers.start()
        found = [sequence_id for _, sequence_id in await stored(await brokers.topic())]
        assert found == sorted(set(found))
        assert set(range(acknowledged + 1)) <= set(found)
        await brokers.stop()

    run(main())


def test_a_producer_that_is_too_fast_is_held_back() -> None:
    async def main() -> None:
        brokers = Brokers(BrokerSettings(topic_publish_messages_per_s=10))
        await brokers.start()
        topic = await brokers.topic()
        client = Client()
        producer = producer_of(client)
        await topic.add_producer(producer)
        for sequence_id in range(9):
            send(topic, producer, sequence_id)
        assert client.held_back_s == 0.0
        send(topic, producer, 9, messages=5)
        assert 0.3 < client.held_back_s < 0.7
        client.held_back_s = 0.0
        topic.publish_rates.limit_topic(Rate())
        brokers.topics.limit_publishing(Rate(bytes=10))
        send(topic, producer, 10)
        assert client.held_back_s > 1.0
        await brokers.stop()

    run(main())


@pytest.mark.feature("F-TOP-17")
def test_a_terminated_topic_takes_no_more_and_says_so_after_a_restart_too() -> None:
    async def main() -> None:
        brokers = Brokers()
        await brokers.start()
        topic = await brokers.topic()
        client = Client()
        producer = producer_of(client)
        await topic.add_producer(producer)
        send(topic, producer, 0)
        last = await topic.terminate()
        assert client.positions[0] == last
        assert client.disconnected == [producer]
        assert await topic.terminate() == last
        for _ in range(2):
            with pytest.raises(TopicTerminated):
                await topic.add_producer(producer_of(Client(), "late"))
            await brokers.stop()
            await brokers.start()
            topic = await brokers.topic()
        await brokers.stop()

    run(main())


@pytest.mark.feature("F-TOP-17")
def test_nobody_is_told_of_an_end_that_is_not_on_record() -> None:
    """The store is away when a topic is terminated: producers come back to a topic that goes on."""

    async def main() -> None:
        brokers = Brokers(append_timeout_ms=50)
        topics = await brokers.start()
        topic = await brokers.topic()
        client = Client()
        producer = producer_of(client)
        await topic.add_producer(producer)
        send(topic, producer, 0)
        await client.until_answers(1)
        assert brokers._owner is not None
        store = brokers._owner.store
        met: set[type[MagnetarError]] = set()

        def away(operation: str, path: str) -> str | None:
            if not path.startswith("/managed-ledgers"):
                return None
            try:
                send(topic, producer, 1)
            except MagnetarError as error:
                met.add(type(error))
            return "refused"

        store.fault = away
        with pytest.raises(MagnetarError):
            await topic.terminate()
        assert met == {ServiceNotReady}, "not that it was terminated"
        store.fault = lambda operation, path: None
        while not topic.is_closing:  # noqa: ASYNC110 - a task of its own closes it
            await asyncio.sleep(0)
        again = await topics.load(topic.name, create=False)
        assert again is not topic
        assert client.disconnected == [producer]
        later = Client()
        await again.add_producer(producer_of(later))
        send(again, producer_of(later), 1)
        await later.until_answers(1)
        assert not later.errors
        await brokers.stop()

    run(main())


@pytest.mark.feature("F-TOP-17")
def test_deleting_waits_for_clients_unless_it_is_forced() -> None:
    async def main() -> None:
        brokers = Brokers()
        topics = await brokers.start()
        topic = await brokers.topic()
        client = Client()
        producer = producer_of(client)
        await topic.add_producer(producer)
        send(topic, producer, 0)
        await client.until_answers(1)
        with pytest.raises(TopicBusy, match="1 producers"):
            await topics.delete(topic.name)
        await topics.delete(topic.name, force=True)
        assert client.disconnected == [producer]
        with pytest.raises(TopicNotFound):
            await topics.delete(topic.name)
        assert await brokers.world.existing_ledgers() == set()
        fresh = await brokers.topic()
        assert fresh is not topic
        assert fresh.last_index == -1
        await brokers.stop()

    run(main())


def test_subscriptions_are_limited_and_may_not_take_the_brokers_own_names() -> None:
    async def main() -> None:
        brokers = Brokers(BrokerSettings(subscriptions_per_topic_max=1))
        await brokers.start()
        topic = await brokers.topic()
        for name in (CURSOR, "__compaction", "pulsar.repl.east"):
            with pytest.raises(NotSupported, match="reserved"):
                await topic.open_subscription(name, initial=EARLIEST)
        await topic.open_subscription("one", initial=EARLIEST)
        await topic.open_subscription("one", initial=EARLIEST)
        with pytest.raises(NotSupported, match="maximum number of subscriptions"):
            await topic.open_subscription("two", initial=EARLIEST)
        await brokers.stop()

    run(main())


@pytest.mark.feature("F-TOP-17", "F-PROD-27")
def test_what_is_stored_while_a_topic_is_truncated_is_known_to_the_next_owner() -> None:
    """The cursor of deduplication may not pass a message whose id it does not keep."""

    async def main() -> None:
        brokers = Brokers(DEDUPLICATED)
        await brokers.start()
        topic = await brokers.topic()
        client = Client()
        producer = producer_of(client)
        await topic.add_producer(producer)
        send(topic, producer, 1)
        subscription = await topic.open_subscription("s", initial=EARLIEST)
        reset = subscription.reset

        async def busy_reset(*arguments: Any) -> None:
            send(topic, producer, 2)
            await client.until_answers(2)
            await reset(*arguments)

        subscription.reset = busy_reset  # type: ignore[assignment, method-assign]
        await topic.truncate()
        assert subscription.cursor.backlog_entries() == 0
        await brokers.die()
        await brokers.start()
        topic = await brokers.topic()
        assert await topic.last_sequence_id("p") == 2
        await brokers.stop()

    run(main())


def test_new_messages_wake_the_subscriptions_that_have_consumers_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    woken: list[str] = []

    def wake(subscription: Subscription) -> None:
        woken.append(subscription.name)
        subscription.pump.wake()

    async def main() -> None:
        brokers = Brokers()
        await brokers.start()
        topic = await brokers.topic()
        subscriptions = {
            name: await topic.open_subscription(name, initial=EARLIEST) for name in ("idle", "read", "left")
        }
        readers = {name: Consumer(ClientTwin(), 1, name, unacked_max=0) for name in ("read", "left")}
        for name, reader in readers.items():
            subscriptions[name].add_consumer(reader, SubscriptionType.EXCLUSIVE)
            subscriptions[name].on_flow(reader, 10)
        subscriptions["left"].remove_consumer(readers["left"])
        monkeypatch.setattr(Subscription, "wake", wake)
        client = Client()
        producer = producer_of(client, "p")
        await topic.add_producer(producer)
        send(topic, producer, 0)
        await client.until(lambda: len(client.answers) == 1)
        await asyncio.sleep(0)
        assert woken == ["read"]
        assert len(client_of(readers["read"]).delivered) == 1
        # Whoever comes back finds what came meanwhile, and what comes next.
        late = Consumer(ClientTwin(), 1, "late", unacked_max=0)
        subscriptions["left"].add_consumer(late, SubscriptionType.SHARED)
        subscriptions["left"].on_flow(late, 10)
        send(topic, producer, 1)
        await client.until(lambda: len(client.answers) == 2)
        await asyncio.sleep(0)
        assert len(client_of(late).delivered) == 2
        await brokers.stop()

    run(main())
