# SPDX-License-Identifier: Apache-2.0
"""A sink's log topic: one writer at a time, and its last record.

Whoever opens the log shuts out the one before: a driver that was thought dead cannot decide anything any more.
Carries.
"""

from magnetar.client.client import Client
from magnetar.client.message_id import MessageId
from magnetar.client.options import ProducerAccessMode
from magnetar.client.producer import Producer
from magnetar.ids import EARLIEST
from magnetar.names import TopicName
from magnetar.spark.cursors import move
from magnetar.spark.entry_feed import EntryFeed
from magnetar.spark.manifest import Manifest
from magnetar.spark.offsets import Offset, Place
from magnetar.spark.staging import SUBSCRIPTION, hold


class SinkLog:
    """Open before use; `last` is what the sink did last."""

    def __init__(self, client: Client, topic: str, timeout_s: float) -> None:
        self._client = client
        self._topic = topic
        self._timeout_s = timeout_s
        self._producer: Producer[bytes] | None = None
        self.last: Manifest | None = None

    async def open(self) -> None:
        await hold(self._client, self._topic, SUBSCRIPTION)
        self._producer = await self._client.create_producer(
            self._topic, access_mode=ProducerAccessMode.ExclusiveWithFencing, batching_enabled=False
        )
        self.last = await self._read_last()

    async def _read_last(self) -> Manifest | None:
        core = self._client.core
        topic = TopicName.parse(self._topic)
        feed = EntryFeed(core, topic, EARLIEST, permits=1)
        await feed.open()
        try:
            end = await feed.end()
        finally:
            await feed.close()
        if end.last.entry_id < 0:
            return None
        feed = EntryFeed(core, topic, end.last.position, permits=1)
        await feed.open()
        try:
            entry = (await feed.take(self._timeout_s))[0]
        finally:
            await feed.close()
        return Manifest.from_bytes(bytes(entry.payload))

    async def write(self, record: Manifest) -> MessageId:
        """Raises ProducerFenced where another has taken over."""
        assert self._producer is not None
        written = await self._producer.send(record.to_bytes())
        self.last = record
        return written

    async def trim(self, before: MessageId) -> None:
        """What lies before the last record is of no more use."""
        await move(self._client, SUBSCRIPTION, {self._topic: Offset(None, _before(before))})

    async def close(self) -> None:
        if self._producer is not None:
            await self._producer.close()


def _before(message_id: MessageId) -> Place:
    return Place(message_id.ledger_id, message_id.entry_id - 1)
