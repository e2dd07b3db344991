# SPDX-License-Identifier: Apache-2.0
"""Producers of one topic: names, successors, clients that are gone, exclusive access and its epochs."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from magnetar.broker.producer import AccessMode, Producer
from magnetar.broker.topic import EPOCH_PROPERTY, Topic
from magnetar.errors import MagnetarError, OwnerClosed, ProducerBusy, ProducerFenced, ServiceNotReady
from tests.unit.broker.publishers import Brokers, Client, body_of, producer_of

EXCLUSIVE, WAITING = AccessMode.EXCLUSIVE, AccessMode.WAIT_FOR_EXCLUSIVE
FENCING = AccessMode.EXCLUSIVE_WITH_FENCING


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


async def waiting(topic: Topic, producer: Producer) -> "asyncio.Task[None]":
    """A task that waits for exclusive access and has been told so."""
    told = asyncio.Event()
    task = asyncio.get_running_loop().create_task(topic.add_producer(producer, told.set))
    async with asyncio.timeout(10):
        await told.wait()
    return task


@pytest.mark.feature("F-PROD-43")
def test_a_name_is_taken_while_its_client_answers() -> None:
    async def main() -> None:
        brokers = Brokers()
        await brokers.start()
        topic = await brokers.topic()
        first, second = Client(), Client()
        present = producer_of(first, "p")
        await topic.add_producer(present)
        with pytest.raises(ProducerBusy, match="Producer with name 'p' is already connected to topic"):
            await topic.add_producer(producer_of(second, "p", epoch=9))
        with pytest.raises(ProducerBusy):
            await topic.add_producer(producer_of(first, "p"))
        assert topic.producers == {"p": present}
        assert first.alive_asked == 1, "a client is not asked about itself"
        await brokers.stop()

    run(main())


def test_the_name_of_a_client_that_does_not_answer_goes_to_the_newcomer() -> None:
    async def main() -> None:
        brokers = Brokers()
        await brokers.start()
        topic = await brokers.topic()
        gone = Client()
        gone.alive = False
        old = producer_of(gone, "p")
        await topic.add_producer(old)
        newcomers = [producer_of(Client(), "p") for _ in range(3)]
        outcomes = await asyncio.gather(*map(topic.add_producer, newcomers), return_exceptions=True)
        assert outcomes.count(None) == 1
        assert sum(isinstance(outcome, ProducerBusy) for outcome in outcomes) == 2
        assert old.is_closed
        assert topic.producers["p"] is newcomers[outcomes.index(None)]
        await brokers.stop()

    run(main())


def test_a_client_with_a_generated_name_replaces_its_former_self() -> None:
    async def main() -> None:
        brokers = Brokers()
        await brokers.start()
        topic = await brokers.topic()
        first, second = Client(), Client()
        old = producer_of(first, "standalone-0-1", generated=True)
        await topic.add_producer(old)
        with pytest.raises(ProducerBusy):
            await topic.add_producer(producer_of(second, "standalone-0-1", generated=True))
        successor = producer_of(second, "standalone-0-1", generated=True, epoch=1)
        await topic.add_producer(successor)
        assert first.disconnected == [old]
        topic.remove_producer(old)
        assert topic.producers == {"standalone-0-1": successor}, "its late end does not end the successor"
        await brokers.stop()

    run(main())


def test_the_number_of_producers_is_limited() -> None:
    async def main() -> None:
        brokers = Brokers()
        await brokers.start(producers_per_topic_max=2)
        topic = await brokers.topic()
        client = Client()
        first = producer_of(client, "p0", producer_id=0)
        await topic.add_producer(first)
        await topic.add_producer(producer_of(client, "p1"))
        with pytest.raises(ProducerBusy, match="reached max producers limit"):
            await topic.add_producer(producer_of(client, "p2"))
        await topic.add_producer(producer_of(client, "p0", epoch=1, producer_id=0))
        await brokers.stop()

    run(main())


@pytest.mark.feature("F-PROD-05", "F-PROD-07")
def test_epochs_are_durable_and_the_displaced_stay_out_even_after_a_crash() -> None:
    async def main() -> None:
        brokers = Brokers()
        await brokers.start()
        topic = await brokers.topic()
        first = producer_of(Client(), "first", mode=EXCLUSIVE)
        await topic.add_producer(first)
        assert first.topic_epoch == 0
        with pytest.raises(ProducerFenced):
            await topic.add_producer(producer_of(Client(), "second", mode=EXCLUSIVE))
        second = producer_of(Client(), "second", mode=FENCING)
        await topic.add_producer(second)
        assert second.topic_epoch == 1
        assert topic.managed_ledger.properties[EPOCH_PROPERTY] == "1"
        await brokers.die()

        await brokers.start()
        topic = await brokers.topic()
        with pytest.raises(ProducerFenced, match="Current epoch: 1, Producer epoch: 0"):
            await topic.add_producer(producer_of(Client(), "first", mode=EXCLUSIVE, topic_epoch=0))
        back = producer_of(Client(), "second", mode=FENCING, topic_epoch=1)
        await topic.add_producer(back)
        assert back.topic_epoch == 1
        await brokers.stop()

    run(main())


@pytest.mark.feature("F-PROD-06")
def test_waiting_for_exclusive_access_ends_when_the_last_one_leaves() -> None:
    async def main() -> None:
        brokers = Brokers()
        await brokers.start()
        topic = await brokers.topic()
        shared = [producer_of(Client(), f"s{number}") for number in range(2)]
        for producer in shared:
            await topic.add_producer(producer)
        heirs = [producer_of(Client(), f"w{number}", mode=WAITING) for number in range(3)]
        tasks = [await waiting(topic, heir) for heir in heirs]
        topic.remove_producer(shared[0])
        await asyncio.sleep(0)
        assert list(topic.producers) == ["s1"]
        topic.forget_waiting_producer(heirs[0])
        topic.remove_producer(shared[1])
        with pytest.raises(OwnerClosed):
            await tasks[0]
        await tasks[1]
        assert list(topic.producers) == ["w1"]
        assert not tasks[2].done()
        topic.remove_producer(heirs[1])
        await tasks[2]
        assert [heir.topic_epoch for heir in heirs] == [None, 0, 1]
        await brokers.stop()

    run(main())


@pytest.mark.parametrize("ending", ["cancelled", "topic closed", "fenced"])
def test_whoever_waits_learns_that_it_is_over(ending: str) -> None:
    async def main() -> None:
        brokers = Brokers()
        await brokers.start()
        topic = await brokers.topic()
        holder = producer_of(Client(), "holder", mode=EXCLUSIVE)
        await topic.add_producer(holder)
        task = await waiting(topic, producer_of(Client(), "heir", mode=WAITING))
        if ending == "cancelled":
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            topic.remove_producer(holder)
            await topic.add_producer(producer_of(Client(), "next", mode=EXCLUSIVE))
        elif ending == "topic closed":
            await brokers.topics.unload(topic.name)
            with pytest.raises(ServiceNotReady):
                await task
        else:
            await topic.add_producer(producer_of(Client(), "fencing", mode=FENCING))
            with pytest.raises(ProducerFenced, match="Fenced out"):
                await task
        await brokers.stop()

    run(main())


@pytest.mark.feature("B-10")
def test_what_a_fenced_producer_has_on_its_way_is_never_acknowledged() -> None:
    async def main() -> None:
        brokers = Brokers()
        await brokers.start()
        topic = await brokers.topic()
        client = Client()
        old = producer_of(client, "old", mode=EXCLUSIVE)
        await topic.add_producer(old)
        topic.publish(old, 0, 0, 1, body_of("old"))
        fencing = producer_of(Client(), "new", mode=FENCING)
        await topic.add_producer(fencing)
        assert client.disconnected == [old]
        await client.until(lambda: client.bytes_given_back > 0)
        assert client.answers == []
        await brokers.stop()

    run(main())


def test_an_epoch_that_cannot_be_saved_lets_no_one_in_and_the_next_one_can_come() -> None:
    async def main() -> None:
        brokers = Brokers()
        await brokers.start()
        topic = await brokers.topic()
        save = topic.managed_ledger.update_properties

        async def fail(changes: object) -> None:
            raise ServiceNotReady("the store is away")

        topic.managed_ledger.update_properties = fail  # type: ignore[method-assign]
        outcomes: list[MagnetarError] = []
        try:
            await topic.add_producer(producer_of(Client(), "p", mode=EXCLUSIVE))
        except MagnetarError as error:
            outcomes.append(error)
        assert len(outcomes) == 1
        assert not topic.producers
        topic.managed_ledger.update_properties = save  # type: ignore[method-assign]
        await topic.add_producer(producer_of(Client(), "q", mode=EXCLUSIVE))
        await brokers.stop()

    run(main())


def test_a_client_that_leaves_while_its_epoch_is_saved_does_not_keep_the_topic() -> None:
    async def main() -> None:
        brokers = Brokers()
        await brokers.start()
        topic = await brokers.topic()
        task = asyncio.get_running_loop().create_task(topic.add_producer(producer_of(Client(), "p", mode=EXCLUSIVE)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await topic.add_producer(producer_of(Client(), "q", mode=EXCLUSIVE))
        assert list(topic.producers) == ["q"]
        await brokers.stop()

    run(main())
