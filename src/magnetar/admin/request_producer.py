# SPDX-License-Identifier: Apache-2.0
"""A producer that lives as long as one request: the messages of an HTTP request on their way into a topic.

Registered with the topic as any other, so that limits, quotas and exclusive access hold for it. Waits where the topic's
rate is used up, and for each message's receipt.
Carries.
"""

import asyncio
from types import TracebackType
from typing import Self

from magnetar.broker.broker import Broker
from magnetar.broker.policies.admission import check_producer
from magnetar.broker.producer import Producer
from magnetar.broker.served import ServedTopic
from magnetar.broker.topic import Topic
from magnetar.errors import MagnetarError, ServiceNotReady
from magnetar.ids import Position


class RequestProducer:
    """`async with RequestProducer(broker, topic) as producer`; the topic's side of it is `ProducerLink`."""

    def __init__(self, broker: Broker, topic: ServedTopic) -> None:
        self._broker = broker
        self._topic = topic
        self._producer = Producer(
            self, 0, broker.new_producer_name(), name_generated=True, epoch=0, connected_ms=broker.clock.now_ms()
        )
        self._waiting: dict[int, asyncio.Future[Position]] = {}
        self._hold_s = 0.0

    async def __aenter__(self) -> Self:
        topic = self._topic
        check_producer(topic.settings if isinstance(topic, Topic) else self._broker.settings, encrypts=False)
        await topic.add_producer(self._producer)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._topic.remove_producer(self._producer)

    async def publish(self, sequence_id: int, body: bytes) -> "asyncio.Future[Position]":
        """The promise of where the message is. Sequence ids rise; at most one second is waited for a rate."""
        if self._hold_s > 0:
            hold_s, self._hold_s = self._hold_s, 0.0
            await asyncio.sleep(hold_s)
        promise = self._waiting[sequence_id] = asyncio.get_running_loop().create_future()
        try:
            self._topic.publish(self._producer, sequence_id, 0, 1, body)
        except MagnetarError as error:
            self._fail(sequence_id, error)
        return promise

    # --- ProducerLink ----------------------------------------------------------------------------

    def send_receipts(
        self, producer: Producer, receipts: list[tuple[int, int]], ledger_id: int, first_entry_id: int, size: int
    ) -> None:
        for entry_id, (sequence_id, _) in enumerate(receipts, first_entry_id):
            promise = self._waiting.pop(sequence_id, None)
            if promise is not None and not promise.done():
                promise.set_result(Position(ledger_id, entry_id))

    def send_duplicate_receipt(self, producer: Producer, sequence_id: int, highest_sequence_id: int, size: int) -> None:
        """Cannot be: the name is new with each request."""
        self._fail(sequence_id, ServiceNotReady("The message was taken for one that is stored already"))

    def send_refusal(self, producer: Producer, sequence_id: int, size: int, error: MagnetarError) -> None:
        self._fail(sequence_id, error)

    def hold_back(self, seconds: float) -> None:
        self._hold_s = max(self._hold_s, seconds)

    async def is_alive(self) -> bool:
        return True

    def disconnect_producer(self, producer: Producer) -> None:
        """The topic closes: what is not stored by now has an unknown outcome."""
        for sequence_id in list(self._waiting):
            self._fail(sequence_id, ServiceNotReady(f"Topic {self._topic.name} was closed meanwhile; try again"))

    def _fail(self, sequence_id: int, error: MagnetarError) -> None:
        promise = self._waiting.pop(sequence_id, None)
        if promise is not None and not promise.done():
            promise.set_exception(error)
