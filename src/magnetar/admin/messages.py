# SPDX-License-Identifier: Apache-2.0
"""Single messages of a topic: peeked for a subscription, examined from an end, read by id; and the ids themselves.

A position is read only if it lies in a ledger of this very topic. The payload comes decompressed as it was produced
(a batch as a batch), its metadata in headers.
Carries.
"""

import json
from typing import Annotated, Final

from fastapi import APIRouter, Query, Response

from magnetar.admin.answers import AdminRefused, answered
from magnetar.admin.bodies import Body
from magnetar.admin.names_asked import decoded_subscription
from magnetar.admin.partitions import TOPIC
from magnetar.admin.parts import AdminParts, Parts, Topic
from magnetar.admin.subscriptions import SUBSCRIPTION, place_of, refuse_partitioned
from magnetar.admin.topic_loading import stored_topic, subscription_of
from magnetar.admin.topic_stats import iso_time
from magnetar.admin.topics import message_id
from magnetar.broker.message_search import message_by_index, message_by_time
from magnetar.broker.stored_message import last_batch_index
from magnetar.broker.topic import Topic as StoredTopic
from magnetar.errors import BadFrame, BadPayload, BadPosition
from magnetar.ids import Position
from magnetar.managed_ledger.entry import Entry
from magnetar.names import TopicName
from magnetar.wire import broker_entry, compression, message
from magnetar.wire.proto.pulsar_api_pb2 import CompressionType, MessageMetadata

router = APIRouter(tags=["messages"])

_POSITION_MAX: Final = 1_000_000
_HEADER_BYTES_MAX: Final = 8_000


@router.get(SUBSCRIPTION + "/position/{number}")
async def peek(parts: Parts, topic: Topic, subscription: str, number: int) -> Response:
    """The so-manieth unacknowledged message of a subscription, from 1."""
    await refuse_partitioned(parts, topic, "Peek messages")
    stored = await stored_topic(parts, topic)
    cursor = subscription_of(stored, decoded_subscription(subscription)).cursor
    _check_number(number)
    start = stored.managed_ledger.next_position(cursor.mark_delete)
    waiting = cursor.unacked(start, count_max=number)
    if len(waiting) < number:
        raise AdminRefused(404, "Message not found")
    return await _answer(parts, stored, waiting[-1])


@router.get(TOPIC + "/examinemessage")
async def examine(
    parts: Parts,
    topic: Topic,
    initial: Annotated[str, Query(alias="initialPosition")] = "latest",
    number: Annotated[int, Query(alias="messagePosition")] = 1,
) -> Response:
    await refuse_partitioned(parts, topic, "Examine messages")
    stored = await stored_topic(parts, topic)
    log = stored.managed_ledger
    _check_number(number)
    if number > log.entries:
        raise AdminRefused(412, "Could not examine messages due to the total message is zero")
    if initial == "earliest":
        position = log.position_after(log.previous_position(log.first_position), number)
    else:
        position = log.ledgers.position_of(log.ledgers.last_ordinal - number + 1)
    return await _answer(parts, stored, position)


@router.get(TOPIC + "/ledger/{ledger_id}/entry/{entry_id}")
async def by_id(parts: Parts, topic: Topic, ledger_id: int, entry_id: int) -> Response:
    await refuse_partitioned(parts, topic, "GetMessageById")
    return await _answer(parts, await stored_topic(parts, topic), Position(ledger_id, entry_id))


@router.get(TOPIC + "/messageid/{moment}")
async def id_by_time(parts: Parts, topic: Topic, moment: int) -> Response:
    """The first message that was published at a moment or later; where it will be when there is none yet."""
    stored = await stored_topic(parts, topic)
    return answered(message_id((await message_by_time(stored, moment)).position, partition=topic.partition_index))


@router.get(TOPIC + "/getMessageIdByIndex")
async def id_by_index(parts: Parts, topic: Topic, index: int) -> Response:
    """The message of an index, with its place in a batch; the first that is left when it was trimmed."""
    try:
        found = await message_by_index(await stored_topic(parts, topic), index)
    except BadPosition as error:
        raise AdminRefused(404, str(error)) from error
    return answered(message_id(found.position, partition=topic.partition_index, batch_index=found.batch_index))


@router.get(TOPIC + "/lastMessageId")
async def last_id(parts: Parts, topic: Topic) -> Response:
    stored = await stored_topic(parts, topic)
    last = stored.managed_ledger.last_confirmed
    read = await stored.managed_ledger.read(last, entries_max=1, bytes_max=1) if last.entry_id >= 0 else []
    batch_index = last_batch_index(read[0]) if read else -1
    return answered(message_id(last, partition=topic.partition_index, batch_index=batch_index))


@router.put(TOPIC + "/backlogSize")
async def backlog_size(parts: Parts, topic: Topic, body: Body) -> Response:
    """Bytes that lie behind a message id."""
    position, _ = place_of(body)
    return answered((await stored_topic(parts, topic)).managed_ledger.bytes_after(position))


# --- inside -------------------------------------------------------------------------------------


def _check_number(number: int) -> None:
    if not 1 <= number <= _POSITION_MAX:
        raise AdminRefused(412, f"The message's number should be between 1 and {_POSITION_MAX}")


async def _answer(parts: AdminParts, topic: StoredTopic, position: Position) -> Response:
    log = topic.managed_ledger
    if not log.ledgers.contains(position):
        raise AdminRefused(404, "Message id not found")
    read = await log.read(position, entries_max=1, bytes_max=1)
    if not read or read[0].position != position:
        raise AdminRefused(404, "Message not found")
    return _shown(read[0], topic.name, parts.broker.settings.message_bytes_max)


def _shown(entry: Entry, topic: TopicName, bytes_max: int) -> Response:
    try:
        metadata, payload = message.split(entry.body, broker_entry.message_start(entry.body))
        content = bytes(payload)
        if metadata.compression != CompressionType.NONE and not metadata.encryption_keys:
            content = compression.decompress(metadata.compression, payload, metadata.uncompressed_size, bytes_max)
    except (BadFrame, BadPayload) as error:
        raise AdminRefused(500, f"Message {entry.ledger_id}:{entry.entry_id} of {topic} cannot be read") from error
    return Response(content, headers=_headers(entry, metadata, len(content)), media_type="application/octet-stream")


def _headers(entry: Entry, metadata: MessageMetadata, size: int) -> dict[str, str]:
    properties = {each.key: each.value for each in metadata.properties}
    headers = {
        "X-Pulsar-Message-ID": f"{entry.ledger_id}:{entry.entry_id}",
        "X-Pulsar-PROPERTY": json.dumps(properties, separators=(",", ":")),
        "X-Pulsar-publish-time": iso_time(metadata.publish_time),
        "X-Pulsar-Is-Encrypted": "true" if metadata.encryption_keys else "false",
        "X-Pulsar-producer-name": metadata.producer_name,
        "X-Pulsar-sequence-id": str(metadata.sequence_id),
    }
    if metadata.HasField("event_time"):
        headers["X-Pulsar-event-time"] = iso_time(metadata.event_time)
    if metadata.HasField("partition_key"):
        headers["X-Pulsar-partition-key"] = metadata.partition_key
    if metadata.HasField("replicated_from"):
        headers["X-Pulsar-replicated-from"] = metadata.replicated_from
    if metadata.HasField("deliver_at_time"):
        headers["X-Pulsar-deliver-at-time"] = iso_time(metadata.deliver_at_time)
    if metadata.HasField("uncompressed_size"):
        headers["X-Pulsar-uncompressed-size"] = str(metadata.uncompressed_size)
    if metadata.compression != CompressionType.NONE:
        headers["X-Pulsar-compression"] = CompressionType.Name(metadata.compression)
    if message.is_batch(metadata):
        headers["X-Pulsar-num-batch-message"] = str(message.messages_in(metadata))
        headers["X-Pulsar-batch-size"] = str(size)
    return {name: _header_text(value) for name, value in headers.items() if len(value) <= _HEADER_BYTES_MAX}


def _header_text(value: str) -> str:
    """Producers choose these texts: no line break may end the header, and what is not Latin travels as UTF-8 bytes."""
    return "".join(each if each.isprintable() else "?" for each in value).encode().decode("latin-1")
