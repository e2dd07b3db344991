# SPDX-License-Identifier: Apache-2.0
"""Deduplication is recovered once, whoever asks for it meanwhile: a second recovery would forget what came since."""

import asyncio

import pytest

from magnetar.broker.deduplication_cursor import DeduplicationCursor
from magnetar.broker.topic import Topic
from tests.unit.broker.publishers import Brokers, Client, body_of, producer_of

SENDS = 10


@pytest.mark.feature("F-PROD-30")
def test_who_asks_for_deduplication_twice_gets_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """F90: two policies arrive while a topic is open; a recovery that lasts longer takes nothing from the other."""
    recover = DeduplicationCursor.recover
    recoveries: list[asyncio.Event] = []

    async def recover_slowly(self: DeduplicationCursor) -> None:
        may_end = asyncio.Event()
        recoveries.append(may_end)
        await recover(self)
        await may_end.wait()

    monkeypatch.setattr(DeduplicationCursor, "recover", recover_slowly)

    async def scenario() -> None:
        brokers = Brokers()
        await brokers.start()
        topic = await brokers.topic()
        client = Client()
        producer = producer_of(client)
        await topic.add_producer(producer)

        async def send_all(answers: int) -> list[tuple[str, int]]:
            for number in range(SENDS):
                topic.publish(producer, number, 0, 1, body_of("p", number))
            await client.until_answers(answers)
            return client.answers[-SENDS:]

        first, second = switch_on(topic), switch_on(topic)
        while not recoveries or (len(recoveries) < 2 and not has_turns(topic)):  # noqa: ASYNC110
            await asyncio.sleep(0)
        recoveries[0].set()
        await first
        assert await send_all(SENDS) == [("stored", number) for number in range(SENDS)]
        for each in recoveries:
            each.set()
        await second
        assert await send_all(2 * SENDS) == [("again", number) for number in range(SENDS)]
        await brokers.stop()

    asyncio.run(scenario())


def switch_on(topic: Topic) -> asyncio.Task[None]:
    return asyncio.get_running_loop().create_task(topic.set_deduplication(True))


def has_turns(topic: Topic) -> bool:
    """One of the two has the turn, and the other waits for it."""
    return topic._deduplication_turn is not None and topic._deduplication_turn.locked()
