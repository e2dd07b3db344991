# SPDX-License-Identifier: Apache-2.0
"""Publishes what a manifest decided: copies the staged batches, in the order of the staging topic, to their targets.

The producer of a target has the sink's name, which shuts out a predecessor; what it sent before is found by scanning
the target from where it ended when the batch was decided, and is not sent again. Deduplication in the broker covers
what a lost connection makes the client send twice.
Carries.
"""

import zlib
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Final, NamedTuple

from magnetar.client.client import Client
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
from magnetar.spark.staging import TARGET, packing_producer
from magnetar.spark.stored_entry import StoredEntry

_UNSETTLED_MAX: Final = 1_000


class StagedBatch(NamedTuple):
    """Messages of one target, as they were staged and as they will be published."""

    target: str
    payload: bytes
    messages: int


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

    def ahead(self, manifest: Manifest) -> dict[str, int]:
        """Targets that have messages of this sink which a new manifest would send: up to which sequence id.

        The broker would take what is sent for what it has, and drop it.
        """
        stored = {topic: self._producers[topic].last_sequence_id() for topic in manifest.targets}
        return {topic: last for topic, last in stored.items() if last >= manifest.targets[topic].first_sequence}

    async def _open(self, topic: str) -> Producer[bytes]:
        return await packing_producer(self._client, topic, self._producer_name, EncodedSchema(self._info))

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
        receipts: deque[Receipt] = deque()
        async for batch in self._staged(manifest):
            first = following[batch.target]
            following[batch.target] = first + batch.messages
            if following[batch.target] - 1 <= sent[batch.target]:
                continue
            if first <= sent[batch.target]:
                raise MessagesMissing(f"{batch.target} has a part of a batch that was staged whole")
            copy = OutgoingMessage(batch.payload, sequence_id=first, packed=batch.messages)
            receipts.append(await self._producers[batch.target].submit_message(copy))
            while len(receipts) > _UNSETTLED_MAX:
                await receipts.popleft()
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

    async def _staged(self, manifest: Manifest) -> AsyncIterator[StagedBatch]:
        """The winners' batches in the order of the staging topic, each once. Raises MessagesMissing."""
        winners = {one.producer: _Check(one) for one in manifest.attempts}
        last = manifest.last.position
        feed = EntryFeed(self._client.core, self._staging_topic, manifest.first.position)
        await feed.open()
        try:
            is_complete = False
            while not is_complete:
                for entry in await feed.take(self._timeout_s):
                    check = winners.get(entry.metadata.producer_name)
                    if check is not None and check.takes(entry):
                        target = next((pair.value for pair in entry.metadata.properties if pair.key == TARGET), "")
                        yield StagedBatch(target, bytes(entry.payload), entry.messages)
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

    def takes(self, entry: StoredEntry) -> bool:
        if entry.metadata.sequence_id <= self._sequence_id:
            return False
        self._sequence_id = entry.metadata.sequence_id
        self._messages += entry.messages
        self._checksum = zlib.crc32(entry.payload, self._checksum)
        return True

    def end(self, topic: str) -> None:
        if self._messages != self._attempt.messages or self._checksum != self._attempt.checksum:
            raise MessagesMissing(
                f"{topic}: {self._messages} of {self._attempt.messages} messages of {self._attempt.producer} are there"
            )
