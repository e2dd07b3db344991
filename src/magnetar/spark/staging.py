# SPDX-License-Identifier: Apache-2.0
"""One task attempt's messages on their way to the staging topic, or straight to their targets where doubles are taken.

An attempt has a producer name of its own, so that what losing attempts leave behind is told apart. Nothing here is
visible in a target. Never decides which attempt wins.
Carries.
"""

import zlib
from collections.abc import Iterable
from typing import Final

from magnetar.client.client import Client
from magnetar.client.options import ConsumerType, InitialPosition
from magnetar.client.outgoing import OutgoingMessage
from magnetar.client.producer import Producer
from magnetar.client.receipt import Receipt
from magnetar.client.schema_info import SchemaInfo
from magnetar.errors import BadSetting
from magnetar.ids import EARLIEST, MessageId, Position
from magnetar.names import TopicName
from magnetar.runtime.chance import fresh_seed
from magnetar.spark.cluster import Cluster
from magnetar.spark.encoding import EncodedRow, EncodedSchema
from magnetar.spark.manifest import StagedAttempt
from magnetar.spark.offsets import BEFORE_ALL, Place
from magnetar.wire.key_hash import java_string_hash

TARGET: Final = "__spark.target"
"""The property of a staged message that says where it goes."""

SUBSCRIPTION: Final = "spark-sink"
PENDING_MAX: Final = 10_000
BATCH_MESSAGES_MAX: Final = 1_000
BATCH_BYTES_MAX: Final = 512 * 1024


def fresh_name(front: str) -> str:
    return f"{front}-{fresh_seed():016x}"


def message_of(row: EncodedRow, target: str | None = None, sequence_id: int | None = None) -> OutgoingMessage:
    properties = row.properties if target is None else {**row.properties, TARGET: target}
    return OutgoingMessage(
        row.payload or b"",
        properties=properties,
        partition_key=_key(row.key),
        sequence_id=sequence_id,
        event_time_ms=row.event_time_ms,
        is_null=row.payload is None,
    )


def _key(key: str | bytes | None) -> str | bytes | None:
    """Keys are read as bytes and are text for most; text stays text, so that it routes and compacts as before."""
    if isinstance(key, bytes):
        try:
            return key.decode()
        except UnicodeDecodeError:
            return key
    return key


class Routing:
    """Which partition a row goes to: of the topic that is given, or else of the row's own; by its key, or in turn."""

    def __init__(self, here: Cluster, topic: str | None, start: int) -> None:
        self._here = here
        self._topic = topic
        self._partitions: dict[str, list[str]] = {}
        self._next = start

    async def target(self, row: EncodedRow) -> str:
        topic = self._topic or row.topic
        if not topic:
            raise BadSetting("a row has nothing in __topic, and the option topic is not given: where should it go?")
        partitions = self._partitions.get(topic)
        if partitions is None:
            partitions = await self._learn(topic)
        if len(partitions) == 1:
            return partitions[0]
        key = _key(row.key)
        if isinstance(key, str):
            return partitions[java_string_hash(key) % len(partitions)]
        self._next += 1
        return partitions[self._next % len(partitions)]

    async def _learn(self, topic: str) -> list[str]:
        name = TopicName.parse(topic)
        found = await self._here.client.get_topic_partitions(str(name)) if not name.is_partition else [str(name)]
        self._partitions[topic] = found
        return found


class StagingAttempt:
    """Append batches of rows, then `finish`."""

    def __init__(self, here: Cluster, staging_topic: str, subscription: str, topic: str | None, part: int) -> None:
        self._here = here
        self._staging_topic = staging_topic
        self._subscription = subscription
        self._routing = Routing(here, topic, part)
        self._name = fresh_name(f"spark-stage-{part}")
        self._producer: Producer[bytes] | None = None
        self._counts: dict[str, int] = {}
        self._checksum = 0
        self._first: Receipt | None = None
        self._last: Receipt | None = None

    async def append(self, rows: Iterable[EncodedRow]) -> None:
        """Returns when all are taken; back-pressure is the producer's."""
        for row in rows:
            if self._producer is None:
                self._producer = await self._open()
            target = await self._routing.target(row)
            receipt = await self._producer.submit_message(message_of(row, target))
            self._counts[target] = self._counts.get(target, 0) + 1
            self._checksum = zlib.crc32(row.payload or b"", self._checksum)
            self._first = self._first or receipt
            self._last = receipt

    async def _open(self) -> Producer[bytes]:
        await hold(self._here.client, self._staging_topic, self._subscription)
        return await self._here.client.create_producer(
            self._staging_topic,
            producer_name=self._name,
            send_timeout_millis=0,
            block_if_queue_full=True,
            max_pending_messages=PENDING_MAX,
            batching_enabled=True,
            batching_max_messages=BATCH_MESSAGES_MAX,
            batching_max_allowed_size_in_bytes=BATCH_BYTES_MAX,
        )

    async def finish(self) -> StagedAttempt:
        """Everything is durable in the staging topic."""
        first = last = BEFORE_ALL
        if self._producer is not None and self._first is not None and self._last is not None:
            await self._producer.flush()
            first, last = _entry(await self._first), _entry(await self._last)
        await self.close()
        return StagedAttempt(self._name, first, last, dict(self._counts), self._checksum)

    async def close(self) -> None:
        if self._producer is not None:
            await self._producer.close()
            self._producer = None


class DirectAttempt:
    """For `delivery=at-least-once`: a task's rows go straight to their targets."""

    def __init__(self, here: Cluster, info: SchemaInfo, topic: str | None, part: int) -> None:
        self._here = here
        self._info = info
        self._routing = Routing(here, topic, part)
        self._producers: dict[str, Producer[bytes]] = {}
        self._last: dict[str, Receipt] = {}

    async def append(self, rows: Iterable[EncodedRow]) -> None:
        for row in rows:
            target = await self._routing.target(row)
            producer = self._producers.get(target)
            if producer is None:
                producer = self._producers[target] = await self._here.client.create_producer(
                    target,
                    schema=EncodedSchema(self._info),
                    send_timeout_millis=0,
                    block_if_queue_full=True,
                    max_pending_messages=PENDING_MAX,
                    batching_enabled=True,
                    batching_max_messages=BATCH_MESSAGES_MAX,
                    batching_max_allowed_size_in_bytes=BATCH_BYTES_MAX,
                )
            self._last[target] = await producer.submit_message(message_of(row))

    async def finish(self) -> None:
        for producer in self._producers.values():
            await producer.flush()
        for receipt in self._last.values():
            await receipt
        await self.close()

    async def close(self) -> None:
        for producer in self._producers.values():
            await producer.close()
        self._producers.clear()


async def hold(client: Client, topic: str, subscription: str) -> Position:
    """Make sure that nothing staged is trimmed: a subscription from the beginning on, made once.

    Returns how far it is acknowledged.
    """
    consumer = await client.subscribe(
        topic,
        subscription,
        consumer_type=ConsumerType.Shared,
        initial_position=InitialPosition.Earliest,
        receiver_queue_size=0,
    )
    try:
        _, reached = await consumer.partitions[0].last_message_id()
        return EARLIEST if reached is None else reached
    finally:
        await consumer.close()


def _entry(message_id: MessageId) -> Place:
    return Place(*message_id.position)
