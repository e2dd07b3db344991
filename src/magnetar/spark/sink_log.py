# SPDX-License-Identifier: Apache-2.0
"""A sink's log topic: one writer at a time, and its last record.

Whoever opens the log shuts out the one before. A driver that was thought dead and comes back all the same may still
write; its record then has a number that another has already, and counts for nothing.
Carries.
"""

import asyncio
from typing import Final

from magnetar.client.client import Client
from magnetar.client.message_id import MessageId
from magnetar.client.options import ProducerAccessMode
from magnetar.client.producer import Producer
from magnetar.errors import ProducerFenced
from magnetar.ids import EARLIEST
from magnetar.names import TopicName
from magnetar.spark.cursors import move
from magnetar.spark.entry_feed import EntryFeed
from magnetar.spark.manifest import Manifest, following
from magnetar.spark.offsets import Offset, Place
from magnetar.spark.staging import SUBSCRIPTION, hold

# Two that both live shut each other out in turn; the one that is wanted asks again.
_TRIES_MAX: Final = 10
_TRY_AGAIN_S: Final = 0.1


class SinkLog:
    """Open before use; `last` is what the sink did last."""

    def __init__(self, client: Client, topic: str, timeout_s: float) -> None:
        self._client = client
        self._topic = topic
        self._timeout_s = timeout_s
        self._producer: Producer[bytes] | None = None
        self._read = EARLIEST
        self.last: Manifest | None = None

    async def open(self) -> None:
        self._read = await hold(self._client, self._topic, SUBSCRIPTION)
        for tries_left in range(_TRIES_MAX - 1, -1, -1):
            try:
                self._producer = await self._client.create_producer(
                    self._topic, access_mode=ProducerAccessMode.ExclusiveWithFencing, batching_enabled=False
                )
                break
            except ProducerFenced:
                if not tries_left:
                    raise
                await asyncio.sleep(_TRY_AGAIN_S)
        await self.catch_up()

    async def catch_up(self) -> None:
        """Read what was written since the last time, in order."""
        feed = EntryFeed(self._client.core, TopicName.parse(self._topic), self._read)
        await feed.open()
        try:
            last = (await feed.end()).last.position
            while self._read < last:
                for entry in await feed.take(self._timeout_s):
                    if entry.position > self._read:
                        self.last = following(self.last, Manifest.from_bytes(bytes(entry.payload)))
                        self._read = max(self._read, entry.position)
        finally:
            await feed.close()

    async def write(self, record: Manifest) -> MessageId:
        """Raises ProducerFenced where another has taken over."""
        assert self._producer is not None
        written = await self._producer.send(record.to_bytes())
        await self.catch_up()
        if self.last != record:
            raise ProducerFenced(f"{self._topic}: another driver has written record {record.serial}")
        return written

    async def trim(self, before: MessageId) -> None:
        """What lies before the last record is of no more use."""
        await move(self._client, SUBSCRIPTION, {self._topic: Offset(None, _before(before))})

    async def close(self) -> None:
        if self._producer is not None:
            await self._producer.close()


def _before(message_id: MessageId) -> Place:
    return Place(message_id.ledger_id, message_id.entry_id - 1)
