# SPDX-License-Identifier: Apache-2.0
"""A cursor of deduplication that is far behind: what a replay has done is done, whoever gives up meanwhile."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from magnetar.broker.deduplication_cursor import CURSOR
from magnetar.broker.topic import Topic
from magnetar.config.broker import BrokerSettings
from magnetar.managed_ledger.cursor_record import CursorRecord
from tests.simulation.world.loop import SimLoop
from tests.simulation.world.model_bookie import ModelBookie, Weather
from tests.simulation.world.schedule import Policy, Schedule
from tests.unit.broker.publishers import NAME, Brokers, Client, body_of, producer_of

ENTRIES = 1_000
INTERVAL = 100


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=lambda: SimLoop(Schedule(Policy.FIFO, Random(1)))) as runner:
        runner.run(coroutine)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - virtual time, and what changes it has no event
            await asyncio.sleep(0.001)


async def far_behind() -> tuple[Brokers, ModelBookie]:
    """A broker died before it had saved a single sequence id of a thousand messages of two producers."""
    brokers = Brokers(BrokerSettings(deduplication_enabled=True, deduplication_entries_interval=10 * ENTRIES))
    await brokers.start()
    topic = await brokers.topic()
    client = Client()
    producers = [producer_of(client, name) for name in ("p", "q")]
    for producer in producers:
        await topic.add_producer(producer)
    for number in range(ENTRIES):
        sequence_id = number // 2
        body = body_of(producers[number % 2].name, sequence_id)
        topic.publish(producers[number % 2], sequence_id, sequence_id, 1, body)
    await client.until_answers(ENTRIES)
    await brokers.die()
    bookie = brokers.world.cluster.bookies["b1"]
    bookie.weather = Weather(delay_max_ms=10)
    return brokers, bookie


async def saved_in(brokers: Brokers) -> int:
    """The cursor ledger that the record of the cursor names."""
    found = await brokers.store.get(f"/managed-ledgers/{NAME.persistence_name}/{CURSOR}")
    assert found is not None
    return CursorRecord.decode(found.value).ledger_id


async def assert_all_known(topic: Topic) -> None:
    client = Client()
    for name in ("p", "q"):
        producer = producer_of(client, name)
        await topic.add_producer(producer)
        assert await topic.last_sequence_id(name) == ENTRIES // 2 - 1
        topic.publish(producer, 7, 7, 1, body_of(name, 7))
    await client.until_answers(2)
    assert client.answers == [("again", 7)] * 2


@pytest.mark.feature("F-PROD-27", "F-PROD-29")
def test_a_replay_that_is_cut_off_three_times_goes_on_where_it_was() -> None:
    """F92: the broker dies in the middle each time, and nothing can be saved in its last moments."""

    async def main() -> None:
        brokers, bookie = await far_behind()
        for _ in range(3):
            await brokers.start(deduplication_entries_interval=INTERVAL)
            before = await saved_in(brokers)
            loading = asyncio.ensure_future(brokers.topic())
            while await saved_in(brokers) == before:
                assert not loading.done(), "nothing was saved on the way"
                await asyncio.sleep(0.001)
            bookie.is_up = False
            await brokers.die()
            await asyncio.gather(loading, return_exceptions=True)
            bookie.is_up = True
        await brokers.start()
        bookie.reads = 0
        topic = await brokers.topic()
        assert bookie.reads <= ENTRIES - 3 * INTERVAL
        await assert_all_known(topic)
        await brokers.stop()

    run(main())


@pytest.mark.feature("F-PROD-27")
def test_clients_that_give_up_waiting_for_a_replay_find_the_same_one_going_on() -> None:
    """F92: three clients in a row lose patience; the topic is loaded once."""

    async def main() -> None:
        brokers, bookie = await far_behind()
        await brokers.start(deduplication_entries_interval=INTERVAL)
        bookie.reads = 0
        for patience in (200, 400, 600):
            waiting = asyncio.ensure_future(brokers.topic())
            await until(lambda patience=patience: bookie.reads > patience)  # type: ignore[misc]
            assert not waiting.done()
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        topic = await brokers.topic()
        assert bookie.reads < 1.1 * ENTRIES
        await assert_all_known(topic)
        await brokers.stop()

    run(main())
