# SPDX-License-Identifier: Apache-2.0
"""The requests of a consumer, from its options: SUBSCRIBE and SEEK, and how ids are read from answers.

Decides.
"""

from typing import Protocol

from magnetar.client.incoming import position_of
from magnetar.client.message_id import TopicMessageId
from magnetar.client.options import ConsumerOptions, InitialPosition
from magnetar.ids import MessageId, Position
from magnetar.names import TopicName
from magnetar.wire import commands
from magnetar.wire.commands import Type
from magnetar.wire.proto import pulsar_api_pb2 as pb

_UINT64 = 2**64


class Subscriber(Protocol):
    """What a request says about the consumer that makes it."""

    topic: TopicName
    subscription: str
    name: str
    options: ConsumerOptions
    start: MessageId | None
    start_inclusive: bool


def write_id(target: pb.MessageIdData, message_id: MessageId) -> None:
    target.ledgerId = message_id.ledger_id % _UINT64
    target.entryId = message_id.entry_id % _UINT64
    if message_id.partition >= 0:
        target.partition = message_id.partition
    if message_id.batch_index >= 0:
        target.batch_index = message_id.batch_index


def subscribe_request(
    consumer: Subscriber, consumer_id: int, epoch: int, schema: pb.Schema | None
) -> pb.CommandSubscribe:
    options = consumer.options
    request = pb.CommandSubscribe(
        topic=str(consumer.topic),
        subscription=consumer.subscription,
        consumer_id=consumer_id,
        consumer_name=consumer.name,
        durable=options.durable,
        read_compacted=options.is_read_compacted,
        replicate_subscription_state=options.replicate_subscription_state_enabled,
        consumer_epoch=epoch,
        priority_level=options.priority_level,
    )
    request.subType = pb.CommandSubscribe.SubType.ValueType(int(options.consumer_type))
    if options.initial_position is InitialPosition.Earliest:
        request.initialPosition = pb.CommandSubscribe.Earliest
    if schema is not None:
        request.schema.CopyFrom(schema)
    if not options.durable and consumer.start is not None:
        write_id(request.start_message_id, consumer.start)
        if consumer.start_inclusive and consumer.start.batch_index < 0 <= consumer.start.ledger_id:
            # An id with a batch index makes brokers begin with that entry and not after it.
            request.start_message_id.batch_index = 0
    if options.start_rollback_seconds > 0:
        request.start_message_rollback_duration_sec = options.start_rollback_seconds
    for key, value in options.properties.items():
        request.metadata.add(key=key, value=value)
    for key, value in options.subscription_properties.items():
        request.subscription_properties.add(key=key, value=value)
    policy = options.key_shared_policy
    if policy is not None:
        request.keySharedMeta.keySharedMode = pb.KeySharedMode.ValueType(int(policy.mode))
        request.keySharedMeta.allowOutOfOrderDelivery = policy.allow_out_of_order_delivery
        for start, end in policy.sticky_ranges:
            request.keySharedMeta.hashRanges.add(start=start, end=end)
    return request


def seek_request(consumer_id: int, target: MessageId | int) -> pb.CommandSeek:
    """`target` is a message id, or a publish time in milliseconds."""
    request = pb.CommandSeek(consumer_id=consumer_id)
    if not isinstance(target, MessageId):
        request.message_publish_time = target
        return request
    first = target.first_chunk or target
    write_id(request.message_id, first)
    if target.batch_index >= 0 and target.batch_size > 0:
        # What is left of the batch from this message on.
        left = ((1 << target.batch_size) - 1) & (-1 << target.batch_index)
        for index in range((target.batch_size + 63) // 64):
            word = left >> (64 * index) & (_UINT64 - 1)
            request.message_id.ack_set.append(word - _UINT64 if word >= _UINT64 // 2 else word)
    return request


def last_id_of(answer: pb.CommandGetLastMessageIdResponse, topic: str, partition: int) -> TopicMessageId:
    position = position_of(answer.last_message_id)
    return TopicMessageId(topic, *position, partition, answer.last_message_id.batch_index)


def delivery(consumer_id: int, position: Position, partition: int) -> pb.CommandMessage:
    """The command that brought an entry whole and for the first time."""
    command = pb.CommandMessage(consumer_id=consumer_id)
    place = command.message_id
    place.ledgerId, place.entryId, place.partition = position.ledger_id, position.entry_id, partition
    return command


def redeliver_frame(command: pb.CommandRedeliverUnacknowledgedMessages) -> bytes:
    return commands.encode(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, command)
