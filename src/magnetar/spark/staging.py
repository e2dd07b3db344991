# SPDX-License-Identifier: Apache-2.0
"""One task attempt's batches on their way to the staging topic, or straight to their targets where doubles are taken.

An attempt has a producer name of its own, so that what losing attempts leave behind is told apart. Nothing here is
visible in a target. Never decides which attempt wins.
Carries.
"""

import zlib
from typing import Final

from magnetar.client.client import Client
from magnetar.client.options import ConsumerType, InitialPosition
from magnetar.client.outgoing import OutgoingMessage
from magnetar.client.producer import Producer
from magnetar.client.receipt import Receipt
from magnetar.client.schema import BYTES, Schema
from magnetar.client.schema_info import SchemaInfo
from magnetar.errors import BadSetting
from magnetar.ids import EARLIEST, MessageId, Position
from magnetar.names import TopicName
from magnetar.runtime.chance import fresh_seed
from magnetar.spark.cluster import Cluster
from magnetar.spark.encoding import EncodedSchema
from magnetar.spark.manifest import StagedAttempt
from magnetar.spark.offsets import BEFORE_ALL, Place
from magnetar.spark.packing import EncodedRow, PackedBatch, text_key
from magnetar.wire.key_hash import java_string_hash

TARGET: Final = "__spark.target"
"""The property of a staged batch that says where it goes."""

SUBSCRIPTION: Final = "spark-sink"
BATCHES_PENDING_MAX: Final = 64
"""Of half a megabyte each at most, but for rows that are larger."""

ANNOUNCED_MAX: Final = 10_000


def fresh_name(front: str) -> str:
    return f"{front}-{fresh_seed():016x}"


async def packing_producer(
    client: Client, topic: str, name: str | None = None, schema: Schema[bytes] = BYTES
) -> Producer[bytes]:
    """One that sends batches as they are packed."""
    return await client.create_producer(
        topic,
        schema=schema,
        producer_name=name,
        send_timeout_millis=0,
        block_if_queue_full=True,
        max_pending_messages=BATCHES_PENDING_MAX,
        batching_enabled=False,
    )


class Routing:
    """Which partition a row goes to: of the topic that is given, or else of the row's own; by its key, or in turn."""

    def __init__(self, here: Cluster, topic: str | None, start: int) -> None:
        self._here = here
        self._topic = topic
        self._partitions: dict[str, list[str]] = {}
        self._next = start

    def target(self, row: EncodedRow) -> str:
        partitions = self._partitions_of(self._topic or row.topic)
        if len(partitions) == 1:
            return partitions[0]
        key = text_key(row.key)
        return self._in_turn(partitions) if key is None else partitions[java_string_hash(key) % len(partitions)]

    def any_target(self) -> str:
        """Where rows may go that have no key: a partition of the topic that is given."""
        return self._in_turn(self._partitions_of(self._topic))

    def _in_turn(self, partitions: list[str]) -> str:
        self._next += 1
        return partitions[self._next % len(partitions)]

    def _partitions_of(self, topic: str | None) -> list[str]:
        if not topic:
            raise BadSetting("a row has nothing in __topic, and the option topic is not given: where should it go?")
        found = self._partitions.get(topic)
        if found is None:
            name = TopicName.parse(topic)
            asked = self._here.client.get_topic_partitions
            found = [str(name)] if name.is_partition else self._here.run(asked(str(name)))
            self._partitions[topic] = found
        return found


class StagingAttempt:
    """Append batches, then `finish`."""

    def __init__(self, here: Cluster, staging_topic: str, subscription: str, info: SchemaInfo, part: int) -> None:
        self._here = here
        self._info = info
        self._staging_topic = staging_topic
        self._subscription = subscription
        self._name = fresh_name(f"spark-stage-{part}")
        self._producer: Producer[bytes] | None = None
        self._counts: dict[str, int] = {}
        self._checksum = 0
        self._first: Receipt | None = None
        self._last: Receipt | None = None

    async def append(self, batch: PackedBatch) -> None:
        """Returns when it is taken; back-pressure is the producer's. Raises IncompatibleSchema before anything is."""
        await announce(self._here, batch.target, self._info)
        if self._producer is None:
            await hold(self._here.client, self._staging_topic, self._subscription)
            self._producer = await packing_producer(self._here.client, self._staging_topic, self._name)
        staged = OutgoingMessage(batch.payload, {TARGET: batch.target}, packed=batch.messages)
        receipt = await self._producer.submit_message(staged)
        self._counts[batch.target] = self._counts.get(batch.target, 0) + batch.messages
        self._checksum = zlib.crc32(batch.payload, self._checksum)
        self._first = self._first or receipt
        self._last = receipt

    async def finish(self) -> StagedAttempt:
        """Everything is durable in the staging topic, in the range that is returned, which may be wider than needed."""
        first = last = BEFORE_ALL
        if self._producer is not None and self._first is not None and self._last is not None:
            await self._producer.flush()
            first, last = _entry(await self._first), _entry(await self._last)
            if last == BEFORE_ALL:
                # It came a second time over a new connection, and the broker says of such only that it has it.
                end, _ = await _ends(self._here.client, self._staging_topic, self._subscription)
                last = _entry(end)
        await self.close()
        return StagedAttempt(self._name, first, last, dict(self._counts), self._checksum)

    async def close(self) -> None:
        if self._producer is not None:
            await self._producer.close()
            self._producer = None


class DirectAttempt:
    """For `delivery=at-least-once`: a task's batches go straight to their targets."""

    def __init__(self, here: Cluster, info: SchemaInfo) -> None:
        self._here = here
        self._info = info
        self._producers: dict[str, Producer[bytes]] = {}
        self._last: dict[str, Receipt] = {}

    async def append(self, batch: PackedBatch) -> None:
        producer = self._producers.get(batch.target)
        if producer is None:
            made = packing_producer(self._here.client, batch.target, schema=EncodedSchema(self._info))
            producer = self._producers[batch.target] = await made
        sent = OutgoingMessage(batch.payload, packed=batch.messages)
        self._last[batch.target] = await producer.submit_message(sent)

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


async def announce(here: Cluster, target: str, info: SchemaInfo) -> None:
    """Register the schema of what will be written, where it is new to this process; the target may refuse it."""
    known = (target, info.definition)
    if known in here.announced:
        return
    producer = await packing_producer(here.client, target, schema=EncodedSchema(info))
    await producer.close()
    if len(here.announced) >= ANNOUNCED_MAX:
        here.announced.clear()
    here.announced.add(known)


async def hold(client: Client, topic: str, subscription: str) -> Position:
    """Make sure that nothing staged is trimmed: a subscription from the beginning on, made once.

    Returns how far it is acknowledged.
    """
    _, reached = await _ends(client, topic, subscription)
    return EARLIEST if reached is None else reached


async def _ends(client: Client, topic: str, subscription: str) -> tuple[MessageId, Position | None]:
    """The last message of a topic, and how far a subscription is acknowledged."""
    consumer = await client.subscribe(
        topic,
        subscription,
        consumer_type=ConsumerType.Shared,
        initial_position=InitialPosition.Earliest,
        receiver_queue_size=0,
    )
    try:
        return await client.core.retried(consumer.partitions[0].last_message_id)
    finally:
        await consumer.close()


def _entry(message_id: MessageId) -> Place:
    return Place(*message_id.position)
