# SPDX-License-Identifier: Apache-2.0
"""A message that is refused for now: nothing of its producer that came behind it may be stored before it."""

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from magnetar.broker.producer import Producer
from magnetar.broker.publish_budget import PublishBudget
from magnetar.broker.session.produce import on_sends
from magnetar.broker.session.session import OpenProducer, Session
from magnetar.broker.session.transactions import HeldSends, _go_on, hold
from magnetar.broker.topic import Topic
from magnetar.config.broker import BrokerSettings
from magnetar.runtime.tasks import Tasks
from magnetar.wire import commands, message
from magnetar.wire.commands import Sender
from magnetar.wire.frame import FrameCutter
from magnetar.wire.hot import Receipt, ReceiptEncoder, encode_receipts, encode_send
from magnetar.wire.proto import pulsar_api_pb2 as pb
from magnetar.wire.proto.pulsar_api_pb2 import MessageMetadata
from tests.unit.broker.publishers import Brokers, Client, body_of, producer_of, stored

_PRODUCER_ID = 7


class Wire:
    """A connection that keeps what goes out."""

    is_open = True
    peer = "127.0.0.1:1"

    def __init__(self) -> None:
        self.budget = PublishBudget(1 << 20).connection(1 << 20, lambda: None)
        self._cutter = FrameCutter(1 << 20)
        self.sent: list[pb.BaseCommand] = []

    def send(self, data: bytes) -> None:
        self.sent += [commands.parse(command, Sender.BROKER) for command, _ in self._cutter.feed(bytes(data))]

    def send_receipt(self, receipt: Receipt, size: int) -> None:
        self.send(encode_receipts([receipt]))
        self.budget.give_back(size)

    def take_publish_bytes(self, size: int) -> None:
        self.budget.take(size)

    def now_s(self) -> float:
        return 0.0

    def kinds(self) -> list[int]:
        return [command.type for command in self.sent]


async def connected(topic: Topic) -> tuple[Session, Wire]:
    broker = SimpleNamespace(
        settings=BrokerSettings(), ownership=SimpleNamespace(moved_to=lambda name: None), topics=None
    )
    wire = Wire()
    tasks = Tasks("session", lambda *_: None)
    session = Session(cast("Any", broker), cast("Any", wire), tasks, {}, on_sends, lambda *_: None)
    session.is_connected = True
    producer = Producer(session, _PRODUCER_ID, "p", name_generated=False, epoch=0)
    await topic.add_producer(producer)
    session.producers[_PRODUCER_ID] = OpenProducer(producer, topic, ReceiptEncoder(_PRODUCER_ID))
    return session, wire


def sends(*messages: tuple[int, int]) -> list[tuple[bytes, bytes]]:
    """Frames of messages: sequence id, and how many bytes they have beside their metadata."""
    return [
        (encode_send(_PRODUCER_ID, number, 1), body_of("p", number, properties=[{"key": "k", "value": "x" * size}]))
        for number, size in messages
    ]


@pytest.mark.feature("F-PROD-26")
def test_what_was_refused_for_now_is_stored_when_it_comes_again() -> None:
    """With deduplication a later id that is stored says that the refused one is, too: then it would be lost."""

    async def main() -> None:
        brokers = Brokers(BrokerSettings(deduplication_enabled=True), queued_bytes_max=400)
        await brokers.start()
        first = Client()
        (await brokers.topic()).publish(producer_of(first), 0, 0, 1, body_of("p", 0))
        await first.until_answers(1)
        await brokers.stop()
        await brokers.start()
        topic = await brokers.topic()
        session, wire = await connected(topic)
        # This owner has no ledger to write to yet: what comes before it has waits, within bounds.
        session.on_frames(sends((1, 10), (2, 1_000), (3, 10)))
        assert wire.kinds() == [pb.BaseCommand.SEND_ERROR, pb.BaseCommand.CLOSE_PRODUCER]
        assert wire.sent[0].send_error.sequence_id == 2
        assert wire.sent[0].send_error.error == pb.TooManyRequests
        # What the client sent before it learned of that is dropped, and takes no room.
        session.on_frames(sends((4, 10)))
        settled = asyncio.Event()
        topic.answers.call_when_settled(settled.set)
        await settled.wait()
        assert wire.budget.bytes_pending == 0
        assert await stored(topic) == [("p", 0), ("p", 1)]
        client = Client()
        again = producer_of(client)
        await topic.add_producer(again)
        assert await topic.last_sequence_id("p") == 1
        for number in (2, 3, 4):
            topic.publish(again, number, 0, 1, body_of("p", number))
        await client.until_answers(3)
        assert [answer for answer, _ in client.answers] == ["stored"] * 3
        await brokers.stop()

    asyncio.run(main())


@pytest.mark.feature("F-PROD-26")
def test_what_was_damaged_on_its_way_is_stored_when_it_comes_again() -> None:
    async def main() -> None:
        brokers = Brokers(BrokerSettings(deduplication_enabled=True))
        await brokers.start()
        topic = await brokers.topic()
        session, wire = await connected(topic)
        first, damaged, third = sends((1, 10), (2, 10), (3, 10))
        session.on_frames([first, (damaged[0], damaged[1][:-1] + b"?"), third])
        assert wire.kinds()[:2] == [pb.BaseCommand.SEND_ERROR, pb.BaseCommand.CLOSE_PRODUCER]
        assert wire.sent[0].send_error.error == pb.ChecksumError
        settled = asyncio.Event()
        topic.answers.call_when_settled(settled.set)
        await settled.wait()
        assert await stored(topic) == [("p", 1)]
        assert wire.budget.bytes_pending == 0
        await brokers.stop()

    asyncio.run(main())


def test_what_can_never_be_stored_is_refused_and_its_producer_goes_on() -> None:
    async def main() -> None:
        brokers = Brokers(BrokerSettings(message_bytes_max=100))
        await brokers.start()
        topic = await brokers.topic()
        session, wire = await connected(topic)
        metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1).SerializeToString()
        too_large = encode_send(_PRODUCER_ID, 1, 1), b"".join(message.join(metadata, b"x" * 500))
        [small] = sends((2, 10))
        session.on_frames([too_large, small])
        assert wire.kinds()[0] == pb.BaseCommand.SEND_ERROR
        assert wire.sent[0].send_error.error == pb.NotAllowedError
        assert _PRODUCER_ID in session.producers
        settled = asyncio.Event()
        topic.answers.call_when_settled(settled.set)
        await settled.wait()
        assert await stored(topic) == [("p", 2)]
        assert wire.budget.bytes_pending == 0
        await brokers.stop()

    asyncio.run(main())


@pytest.mark.feature("F-TXN-06")
def test_what_is_held_counts_for_the_producer_that_sent_it() -> None:
    """One comes back under its id while a coordinator is asked: what waited is not counted for the one before it."""

    async def main() -> None:
        brokers = Brokers()
        await brokers.start()
        topic = await brokers.topic()
        session, _ = await connected(topic)
        before = session.producers[_PRODUCER_ID]
        after = before._replace(producer=Producer(session, _PRODUCER_ID, "p", name_generated=False, epoch=1))
        taken: list[int] = []
        held = session.held_sends[_PRODUCER_ID] = HeldSends()
        for number, opened in enumerate((before, after, after)):
            hold(session, opened, partial(taken.append, number), 10)
        assert (before.producer.pending, after.producer.pending) == (1, 2)
        del session.held_sends[_PRODUCER_ID]
        _go_on(session, _PRODUCER_ID, held)
        assert taken == [0, 1, 2]
        assert (before.producer.pending, after.producer.pending) == (0, 0)
        await brokers.stop()

    asyncio.run(main())
