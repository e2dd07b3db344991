# SPDX-License-Identifier: Apache-2.0
"""Publishes what a manifest decided: copies the staged messages, in the order of the staging topic, to their targets.

The producer of a target has the sink's name, which shuts out a predecessor; what it sent before is found by scanning
the target from where it ended when the batch was decided, and is not sent again. Deduplication in the broker covers
what a lost connection makes the client send twice.
Carries.
"""

import zlib
from collections.abc import AsyncIterator, Mapping
from typing import Final

from magnetar.client.client import Client
from magnetar.client.incoming import decompressed
from magnetar.client.outgoing import OutgoingMessage
from magnetar.client.producer import Producer
from magnetar.client.receipt import Receipt
from magnetar.client.schema_info import SchemaInfo
from magnetar.names import TopicName
from magnetar.spark.encoding import EncodedSchema
from magnetar.spark.entry_feed import EntryFeed
from magnetar.spark.manifest import Manifest, StagedAttempt
from magnetar.spark.offsets import Place
from magnetar.spark.positions import Positions
from magnetar.spark.ranges import MessagesMissing
from magnetar.spark.rows import PAYLOAD_BYTES_MAX, Single, key_of
from magnetar.spark.staging import BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, PENDING_MAX, TARGET
from magnetar.spark.stored_entry import StoredEntry
from magnetar.wire import batch

_UNSETTLED_MAX: Final = 10_000


class StagedMessage:
    """One staged message, as it will be published."""

    __slots__ = ("attempt", "data", "sequence_id", "single", "target")

    def __init__(self, attempt: str, single: Single, sequence_id: int, data: bytes) -> None:
        self.attempt = attempt
        self.single = single
        self.sequence_id = sequence_id
        self.data = data
        self.target = next((pair.value for pair in single.properties if pair.key == TARGET), "")

    def outgoing(self, sequence_id: int) -> OutgoingMessage:
        single = self.single
        key: str | bytes | None = key_of(single)
        if key is not None and not single.partition_key_b64_encoded:
            key = single.partition_key
        return OutgoingMessage(
            self.data,
            properties={pair.key: pair.value for pair in single.properties if pair.key != TARGET},
            partition_key=key,
            sequence_id=sequence_id,
            event_time_ms=single.event_time,
            is_null=single.null_value,
        )


class Publisher:
    """For one manifest."""

    def __init__(
        self, client: Client, staging_topic: str, producer_name: str, info: SchemaInfo, timeout_s: float
    ) -> None:
        self._client = client
        self._staging_topic = TopicName.parse(staging_topic)
        self._producer_name = producer_name
        self._info = info
        self._timeout_s = timeout_s
        self._producers: dict[str, Producer[bytes]] = {}

    async def ends(self, targets: Mapping[str, object]) -> dict[str, Place]:
        """Where each target ends now; makes the topic if it is not there and may be made."""
        found = {}
        for topic in sorted(targets):
            self._producers[topic] = await self._open(topic)
            end = await Positions(self._client.core, topic, self._timeout_s).end()
            assert end.after is not None
            found[topic] = end.after
        return found

    async def _open(self, topic: str) -> Producer[bytes]:
        return await self._client.create_producer(
            topic,
            schema=EncodedSchema(self._info),
            producer_name=self._producer_name,
            send_timeout_millis=0,
            block_if_queue_full=True,
            max_pending_messages=PENDING_MAX,
            batching_enabled=True,
            batching_max_messages=BATCH_MESSAGES_MAX,
            batching_max_allowed_size_in_bytes=BATCH_BYTES_MAX,
        )

    async def publish(self, manifest: Manifest, *, is_new: bool) -> None:
        """Returns when everything is durable in the targets. `is_new`: decided just now, so nothing was sent before."""
        if not manifest.attempts:
            return
        sent: dict[str, int] = {}
        for topic, target in manifest.targets.items():
            if topic not in self._producers:
                self._producers[topic] = await self._open(topic)
            sent[topic] = target.first_sequence - 1
            if not is_new:
                found = await self._scan(topic, target.end)
                sent[topic] = max(sent[topic], found, self._producers[topic].last_sequence_id())
        following = {topic: target.first_sequence for topic, target in manifest.targets.items()}
        receipts: list[Receipt] = []
        async for message in self._staged(manifest):
            sequence_id = following[message.target]
            following[message.target] += 1
            if sequence_id > sent[message.target]:
                receipts.append(await self._producers[message.target].submit_message(message.outgoing(sequence_id)))
            if len(receipts) >= _UNSETTLED_MAX:
                await receipts[0]
                receipts = [one for one in receipts if not one.done() or one.exception() is not None]
                for failed in [one for one in receipts if one.done()]:
                    await failed
        for producer in self._producers.values():
            await producer.flush()
        for receipt in receipts:
            await receipt

    async def _scan(self, topic: str, behind: Place) -> int:
        """The last sequence id that this sink has stored behind a place; -1 if none."""
        positions = Positions(self._client.core, topic, self._timeout_s)
        end = (await positions.end()).after
        assert end is not None
        if end.order <= behind.order:
            return -1
        found = -1
        feed = EntryFeed(self._client.core, TopicName.parse(topic), behind.position)
        await feed.open()
        try:
            while True:
                for entry in await feed.take(self._timeout_s):
                    if entry.metadata.producer_name == self._producer_name and entry.position > behind.position:
                        highest = entry.metadata.highest_sequence_id or entry.metadata.sequence_id
                        found = max(found, highest)
                    if entry.position >= end.position:
                        return found
        finally:
            await feed.close()

    async def _staged(self, manifest: Manifest) -> AsyncIterator[StagedMessage]:
        """The winners' messages in the order of the staging topic, each once. Raises MessagesMissing."""
        winners = {one.producer: _Check(one) for one in manifest.attempts}
        last = manifest.last.position
        feed = EntryFeed(self._client.core, self._staging_topic, manifest.first.position)
        await feed.open()
        try:
            is_complete = False
            while not is_complete:
                for entry in await feed.take(self._timeout_s):
                    check = winners.get(entry.metadata.producer_name)
                    if check is not None:
                        for message in _messages(entry):
                            if check.takes(message):
                                yield message
                    is_complete = is_complete or entry.position >= last
        finally:
            await feed.close()
        for check in winners.values():
            check.end(str(self._staging_topic))

    async def close(self) -> None:
        for producer in self._producers.values():
            await producer.close()
        self._producers.clear()


class _Check:
    """That all of an attempt's messages are there, each once: a lost connection may have staged some twice."""

    __slots__ = ("_attempt", "_checksum", "_messages", "_sequence_id")

    def __init__(self, attempt: StagedAttempt) -> None:
        self._attempt = attempt
        self._sequence_id = -1
        self._messages = 0
        self._checksum = 0

    def takes(self, message: StagedMessage) -> bool:
        if message.sequence_id <= self._sequence_id:
            return False
        self._sequence_id = message.sequence_id
        self._messages += 1
        self._checksum = zlib.crc32(message.data, self._checksum)
        return True

    def end(self, topic: str) -> None:
        if self._messages != self._attempt.messages or self._checksum != self._attempt.checksum:
            raise MessagesMissing(
                f"{topic}: {self._messages} of {self._attempt.messages} messages of {self._attempt.producer} are there"
            )


def _messages(entry: StoredEntry) -> list[StagedMessage]:
    metadata = entry.metadata
    payload = decompressed(metadata, entry.payload, PAYLOAD_BYTES_MAX)
    if not entry.is_batch:
        return [StagedMessage(metadata.producer_name, metadata, metadata.sequence_id, bytes(payload))]
    return [
        StagedMessage(metadata.producer_name, one.metadata, one.metadata.sequence_id, bytes(one.payload))
        for one in batch.split(payload, entry.messages)
    ]
