# SPDX-License-Identifier: Apache-2.0
"""When an acknowledgement is answered: applied, not yet saved; and it is saved soon after."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from magnetar.broker.consumer import Consumer
from magnetar.broker.session.consume import on_ack
from magnetar.broker.session.session import OpenConsumer
from magnetar.broker.subscription import SubscriptionType
from magnetar.errors import BadPosition, ConsumerNotFound
from magnetar.ids import EARLIEST
from magnetar.wire.hot import MessageEncoder
from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.unit.broker.publishers import Brokers, Client, body_of, producer_of
from tests.unit.broker.worlds import ClientTwin


@pytest.mark.feature("B-11")
def test_the_answer_comes_when_the_ack_is_applied_and_it_is_saved_soon_after() -> None:
    async def main() -> None:
        brokers = Brokers(cursor_flush_interval_ms=20)
        await brokers.start()
        topic = await brokers.topic()
        subscription = await topic.open_subscription("s", initial=EARLIEST)
        client = Client()
        producer = producer_of(client)
        await topic.add_producer(producer)
        for sequence_id in range(2):
            topic.publish(producer, sequence_id, sequence_id, 1, body_of(sequence_id=sequence_id))
        await client.until_answers(2)
        consumer = Consumer(ClientTwin(), 1, "c")
        subscription.add_consumer(consumer, SubscriptionType.SHARED)
        answers: list[Any] = []
        opened = OpenConsumer(consumer, subscription, topic, MessageEncoder(1, -1))
        session = cast(
            "Any",
            SimpleNamespace(
                consumers={1: opened},
                answer=lambda kind, inside: answers.append(inside),
                broker=SimpleNamespace(clock=SimpleNamespace(now_ms=lambda: 1)),
            ),
        )
        # The first save puts the cursor into a ledger of its own.
        await subscription.cursor.set_properties({"n": 1})

        def ack(entry_id: int, consumer_id: int = 1) -> None:
            position = pb.MessageIdData(ledgerId=topic.managed_ledger.ledgers.last.ledger_id, entryId=entry_id)
            command = pb.CommandAck(consumer_id=consumer_id, request_id=7, ack_type=pb.CommandAck.Individual)
            command.message_id.append(position)
            on_ack(session, command)

        ack(0)
        assert [answer.request_id for answer in answers] == [7]
        assert not subscription.cursor.is_saved, "answered, and not on disk yet"
        with pytest.raises(BadPosition):
            ack(5)
        with pytest.raises(ConsumerNotFound):
            ack(1, consumer_id=2)
        assert len(answers) == 1
        async with asyncio.timeout(20):
            while not subscription.cursor.is_saved:  # noqa: ASYNC110 - saving has no event
                await asyncio.sleep(0.001)
        await brokers.die()
        await brokers.start()
        after = (await brokers.topic()).subscriptions["s"]
        assert after.cursor.backlog_entries() == 1, "what was saved does not come again"
        assert after.backlog_messages() == 1
        await brokers.stop()

    asyncio.run(main())
