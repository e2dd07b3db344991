# SPDX-License-Identifier: Apache-2.0
"""Reading a topic from a place of one's own, without a subscription that stays.

A consumer that is exclusive and not durable, and the question whether there is more to read. The application keeps the
place: the last message id that it read.
Carries.
"""

from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Generic, Self, TypeVar

from magnetar.client.consumer import Consumer
from magnetar.client.message import Message
from magnetar.client.partition_consumer import PartitionConsumer
from magnetar.errors import AlreadyClosed
from magnetar.ids import LATEST_MESSAGE, MessageId, Position

T = TypeVar("T")


class Reader(Generic[T]):
    """Made by `Client.create_reader`. `async for` goes on for ever; see has_message_available for the end."""

    def __init__(self, consumer: Consumer[T]) -> None:
        self._consumer = consumer

    async def read_next(self, timeout_millis: int | None = None) -> Message[T]:
        """The next message. It counts as read. Raises TimedOut, AlreadyClosed."""
        message = await self._consumer.receive(timeout_millis)
        await self._consumer.acknowledge_cumulative(message)
        return message

    async def has_message_available(self) -> bool:
        """Whether read_next would return without waiting for a message that is not published yet."""
        if not self._consumer.queue_is_empty():
            return True
        for partition in self._consumer.partitions:
            if await _has_more(partition):
                return True
        return False

    async def seek(self, target: "MessageId | int | datetime | Callable[[str], MessageId | int]") -> None:
        await self._consumer.seek(target)

    async def get_last_message_id(self) -> MessageId:
        return await self._consumer.get_last_message_id()

    def topic(self) -> str:
        return self._consumer.topic()

    def is_connected(self) -> bool:
        return self._consumer.is_connected()

    @property
    def consumer(self) -> Consumer[T]:
        return self._consumer

    async def close(self) -> None:
        await self._consumer.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message[T]:
        try:
            return await self.read_next()
        except AlreadyClosed:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


async def _has_more(partition: PartitionConsumer) -> bool:
    last, mark_delete = await partition.last_message_id()
    if last.entry_id < 0:
        return False
    if partition.last_taken is not None:
        return _order(last) > _order(partition.last_taken.message_id())
    start = partition.start
    if start is None or start == LATEST_MESSAGE:
        # Where "latest" was when it subscribed, or where a seek by time went, only the broker's cursor knows.
        if mark_delete is None:
            return False
        return last.position >= mark_delete if partition.start_inclusive else last.position > mark_delete
    return _order(last) >= _order(start) if partition.start_inclusive else _order(last) > _order(start)


def _order(message_id: MessageId) -> tuple[Position, int]:
    return message_id.position, message_id.batch_index


def reader_subscription(prefix: str | None, random_bits: int) -> str:
    """The name that a reader's passing subscription has."""
    return f"{prefix or 'reader'}-{random_bits:010x}"
