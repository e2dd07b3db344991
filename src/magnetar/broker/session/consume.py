# SPDX-License-Identifier: Apache-2.0
"""SUBSCRIBE, FLOW, ACK, redelivery, SEEK, UNSUBSCRIBE, CLOSE_CONSUMER, CONSUMER_STATS, GET_LAST_MESSAGE_ID: messages on
their way out.

Carries.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Final

from magnetar.broker.compaction.view import CompactedView
from magnetar.broker.consumer import EPOCH_NONE, Consumer
from magnetar.broker.policies.admission import check_consumer, check_same_address
from magnetar.broker.replication.replicated import replicate_subscription
from magnetar.broker.served import ServedSubscription, ServedTopic
from magnetar.broker.session.schemas import check_consumer_schema
from magnetar.broker.session.session import OpenConsumer, Session
from magnetar.broker.session.transactions import ack_in_transaction
from magnetar.broker.stored_message import last_batch_index
from magnetar.broker.subscription import KeySharing, Subscription, SubscriptionType
from magnetar.broker.topic import Topic
from magnetar.broker.transactions.last_visible import last_visible
from magnetar.errors import (
    BadCommand,
    ConsumerNotFound,
    MetadataError,
    NotSupported,
    ServiceNotReady,
    SubscriptionNotFound,
    TooManyRequests,
)
from magnetar.ids import EARLIEST, LATEST, Position
from magnetar.managed_ledger.entry import Entry
from magnetar.names import TopicName, check_subscription
from magnetar.wire.hot import MessageEncoder, decode_ack
from magnetar.wire.proto import pulsar_api_pb2 as pb
from magnetar.wire.reader_words import shows_markers

# Twice what a consumer may hold unacknowledged unless told otherwise. More would keep the loop from everybody else.
IDS_PER_COMMAND_MAX: Final = 100_000


def position_of(message_id: pb.MessageIdData) -> Position:
    """Clients send -1 as the largest unsigned number."""
    ledger_id, entry_id = message_id.ledgerId, message_id.entryId
    return Position(
        ledger_id - 2**64 if ledger_id >= 2**63 else ledger_id, entry_id - 2**64 if entry_id >= 2**63 else entry_id
    )


async def subscribe(session: Session, request: pb.CommandSubscribe) -> None:
    consumer_id = request.consumer_id
    if consumer_id in session.consumers:
        if session.consumers[consumer_id] is None:
            raise ServiceNotReady("Consumer is already present on the connection and still being opened")
        session.succeed(request.request_id)
        return
    settings = session.broker.settings
    if len(session.consumers) >= settings.consumers_per_connection_max:
        raise TooManyRequests(f"This connection has {len(session.consumers)} consumers already")
    check_subscription(request.subscription)
    session.consumers[consumer_id] = None
    try:
        opened = await _open_consumer(session, request)
    except BaseException:
        if session.consumers.get(consumer_id, consumer_id) is None:
            del session.consumers[consumer_id]
        raise
    session.consumers[consumer_id] = opened
    session.succeed(request.request_id)


async def _open_consumer(session: Session, request: pb.CommandSubscribe) -> OpenConsumer:
    topic = await session.broker.topics.open(TopicName.parse(request.topic), create=request.force_topic_creation)
    if isinstance(topic, Topic):
        topic.check_subscribe_rate(f"{session.host}/{request.consumer_name}/{request.consumer_id}")
    await check_consumer_schema(session, topic, request)
    subscription = await _subscription(session, topic, request)
    if session.consumers.get(request.consumer_id, 0) is not None or not session.connection.is_open:
        raise ServiceNotReady("The consumer was closed while it was being opened")
    settings = topic.settings if isinstance(topic, Topic) else session.broker.settings
    label = SubscriptionType(request.subType).label
    on_topic = (len(other.consumers) for other in topic.subscriptions.values())
    check_consumer(settings, label, len(subscription.consumers), on_topic)
    if settings.consumers_per_topic_and_address_max:
        links = (consumer.link for other in topic.subscriptions.values() for consumer in other.consumers)
        same = sum(isinstance(link, Session) and link.host == session.host for link in links)
        check_same_address(settings.consumers_per_topic_and_address_max, same, "consumers")
    consumer = Consumer(
        session,
        request.consumer_id,
        request.consumer_name or session.broker.new_consumer_name(),
        priority=request.priority_level,
        unacked_max=settings.unacked_messages_per_consumer_max,
        epoch=request.consumer_epoch if request.HasField("consumer_epoch") else EPOCH_NONE,
        connected_ms=session.broker.clock.now_ms(),
        metadata={pair.key: pair.value for pair in request.metadata},
        key_ranges=[(part.start, part.end) for part in request.keySharedMeta.hashRanges],
    )
    if isinstance(topic, Topic) and isinstance(subscription, Subscription):
        _choose_view(topic, subscription, request)
        if not request.durable:
            subscription.pump.sieve.shows_markers = shows_markers(consumer.metadata)
    subscription.add_consumer(consumer, SubscriptionType(request.subType), _key_sharing(request))
    encoder = MessageEncoder(consumer.consumer_id, topic.name.partition_index)
    return OpenConsumer(consumer, subscription, topic, encoder, session.shows_broker_metadata)


def _choose_view(topic: Topic, subscription: Subscription, request: pb.CommandSubscribe) -> None:
    """The compacted view is for one active consumer alone: the entries of others could not be told apart."""
    if request.read_compacted and request.subType not in (pb.CommandSubscribe.Exclusive, pb.CommandSubscribe.Failover):
        raise NotSupported("readCompacted only allowed on failover or exclusive subscriptions")
    view = None
    if request.read_compacted:
        start = EARLIEST if request.durable else _reader_start(request)
        view = CompactedView(topic.managed_ledger, subscription.cursor, topic.compaction, start)
    subscription.read_compacted(view)


def _key_sharing(request: pb.CommandSubscribe) -> KeySharing:
    meta = request.keySharedMeta
    return KeySharing(
        is_sticky=request.HasField("keySharedMeta") and meta.keySharedMode == pb.STICKY,
        allow_out_of_order=meta.allowOutOfOrderDelivery,
    )


async def _subscription(session: Session, topic: ServedTopic, request: pb.CommandSubscribe) -> ServedSubscription:
    subscription = await _placed_subscription(session, topic, request)
    if request.replicate_subscription_state and isinstance(topic, Topic) and isinstance(subscription, Subscription):
        await replicate_subscription(topic, subscription)
    rollback_s = request.start_message_rollback_duration_sec
    if rollback_s > 0 and not subscription.consumers:
        await subscription.reset_to_time(session.broker.clock.now_ms() - 1000 * rollback_s)
    return subscription


async def _placed_subscription(
    session: Session, topic: ServedTopic, request: pb.CommandSubscribe
) -> ServedSubscription:
    present = topic.subscriptions.get(request.subscription)
    if isinstance(present, Subscription) and present.cursor.is_durable is not request.durable:
        kind = "Durable" if present.cursor.is_durable else "NonDurable"
        raise NotSupported(f"{kind} subscription with the same name already exists.")
    if not request.durable:
        return topic.open_reader_subscription(request.subscription, _reader_start(request))
    settings = topic.settings if isinstance(topic, Topic) else session.broker.settings
    if request.subscription not in topic.subscriptions and not settings.allow_auto_subscription_creation:
        raise SubscriptionNotFound(f"Subscription {request.subscription} does not exist and may not be created")
    initial = EARLIEST if request.initialPosition == pb.CommandSubscribe.Earliest else LATEST
    properties = {pair.key: pair.value for pair in request.subscription_properties}
    return await topic.open_subscription(request.subscription, initial=initial, properties=properties)


def _reader_start(request: pb.CommandSubscribe) -> Position:
    """The entry that a reader starts with. Its client skips what it has asked to be left out: all of the entry, or a
    part of its batch.
    """
    if not request.HasField("start_message_id"):
        return EARLIEST if request.initialPosition == pb.CommandSubscribe.Earliest else LATEST
    return position_of(request.start_message_id)


def on_flow(session: Session, flow: pb.CommandFlow) -> None:
    opened = session.consumers.get(flow.consumer_id)
    # Permits for a consumer that was just closed may still be on their way.
    if opened is not None:
        opened.subscription.on_flow(opened.consumer, flow.messagePermits)
        opened.consumer.flow_ms = session.broker.clock.now_ms()
        if isinstance(opened.subscription, Subscription):
            opened.subscription.flow_ms = opened.consumer.flow_ms


def on_ack(session: Session, ack: pb.CommandAck) -> None:
    opened = _opened(session, ack.consumer_id)
    if len(ack.message_id) > IDS_PER_COMMAND_MAX:
        raise NotSupported(f"An ACK of {len(ack.message_id)} messages; at most {IDS_PER_COMMAND_MAX} go into one")
    if ack.HasField("txnid_most_bits") and ack.HasField("txnid_least_bits"):
        session.start(ack_in_transaction(session, opened, ack), "ACK in a transaction")
        return
    _counted(opened, session.broker.clock.now_ms(), partial(_apply_ack, opened, ack))
    if ack.HasField("request_id"):
        _answer_ack(session, ack.consumer_id, ack.request_id)


def on_plain_ack(session: Session, command: bytes) -> bool:
    """An ACK of whole entries, each for itself; False, and nothing is done, where `on_ack` must look closer."""
    fields = decode_ack(command)
    if fields is None:
        return False
    consumer_id, request_id, positions = fields
    opened = session.consumers.get(consumer_id)
    if opened is None or not isinstance(opened.subscription, Subscription) or len(positions) > IDS_PER_COMMAND_MAX:
        return False
    apply = partial(opened.subscription.ack_run, opened.consumer, positions)
    if not _counted(opened, session.broker.clock.now_ms(), apply):
        return False
    if request_id is not None:
        _answer_ack(session, consumer_id, request_id)
    return True


def _answer_ack(session: Session, consumer_id: int, request_id: int) -> None:
    session.answer(pb.BaseCommand.ACK_RESPONSE, pb.CommandAckResponse(consumer_id=consumer_id, request_id=request_id))


def _counted(opened: OpenConsumer, now_ms: int, apply: Callable[[], bool]) -> bool:
    """Apply an ack and note what statistics tell of it. Consumers that hold single entries count for themselves."""
    consumer, subscription = opened.consumer, opened.subscription
    if not isinstance(subscription, Subscription):
        is_applied = apply()
        consumer.acked_ms = now_ms
        return is_applied
    mark = subscription.cursor.mark_delete
    before = subscription.cursor.backlog_entries() if subscription.is_ordered else 0
    if not apply():
        return False
    consumer.acked_ms = now_ms
    if subscription.is_ordered:
        entries = before - subscription.cursor.backlog_entries()
        consumer.messages_acked += round(entries * subscription.pump.messages_per_entry)
    if subscription.cursor.mark_delete != mark:
        subscription.mark_moved_ms = now_ms
    return True


def _apply_ack(opened: OpenConsumer, ack: pb.CommandAck) -> bool:
    consumer, subscription = opened.consumer, opened.subscription
    if ack.ack_type == pb.CommandAck.Cumulative:
        if len(ack.message_id) != 1:
            raise BadCommand(f"A cumulative ACK carries one message id, not {len(ack.message_id)}")
        message_id = ack.message_id[0]
        subscription.ack_cumulative(consumer, position_of(message_id), message_id.ack_set)
        return True
    for message_id in ack.message_id:
        subscription.ack(consumer, position_of(message_id), message_id.ack_set)
    return True


def on_redeliver(session: Session, request: pb.CommandRedeliverUnacknowledgedMessages) -> None:
    if len(request.message_ids) > IDS_PER_COMMAND_MAX:
        # There is no answer to say so; whoever comes back gets all of them again.
        raise BadCommand(f"{len(request.message_ids)} messages to redeliver; at most {IDS_PER_COMMAND_MAX} go into one")
    opened = session.consumers.get(request.consumer_id)
    if opened is not None:
        positions = [position_of(message_id) for message_id in request.message_ids]
        epoch = request.consumer_epoch if request.HasField("consumer_epoch") else EPOCH_NONE
        opened.subscription.redeliver(opened.consumer, positions or None, epoch)


async def seek(session: Session, request: pb.CommandSeek) -> None:
    opened = _opened(session, request.consumer_id)
    if request.HasField("message_id"):
        await opened.subscription.reset(position_of(request.message_id), request.message_id.ack_set)
    elif request.HasField("message_publish_time"):
        await opened.subscription.reset_to_time(request.message_publish_time)
    else:
        raise BadCommand("SEEK names neither a message id nor a publish time")
    session.succeed(request.request_id)


async def unsubscribe(session: Session, request: pb.CommandUnsubscribe) -> None:
    opened = _opened(session, request.consumer_id)
    if len(opened.subscription.consumers) > 1 and not request.force:
        raise MetadataError("Unconnected or shared consumer attempting to unsubscribe")
    session.consumers.pop(request.consumer_id, None)
    session.leave(opened)
    if opened.subscription.cursor.is_durable:
        await opened.topic.delete_subscription(opened.subscription.name)
    session.succeed(request.request_id)


async def close_consumer(session: Session, request: pb.CommandCloseConsumer) -> None:
    opened = session.consumers.pop(request.consumer_id, None)
    if opened is not None:
        session.leave(opened)
    session.succeed(request.request_id)


async def last_message_id(session: Session, request: pb.CommandGetLastMessageId) -> None:
    opened = _opened(session, request.consumer_id)
    if not isinstance(opened.topic, Topic):
        raise NotSupported("A non-persistent topic has no last message id")
    is_compacted = isinstance(opened.subscription, Subscription) and opened.subscription.is_compacted
    entry = await _last_entry(opened.topic, is_compacted=is_compacted)
    last = Position(-1, -1) if entry is None else entry.position
    batch_index = -1 if entry is None else last_batch_index(entry)
    answer = pb.CommandGetLastMessageIdResponse(request_id=request.request_id)
    _write_position(answer.last_message_id, last)
    answer.last_message_id.partition = opened.topic.name.partition_index
    answer.last_message_id.batch_index = batch_index
    _write_position(answer.consumer_mark_delete_position, opened.subscription.cursor.mark_delete)
    session.answer(pb.BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE, answer)


async def _last_entry(topic: Topic, *, is_compacted: bool) -> Entry | None:
    """The last one with a message that readers get: of the topic, or of its compacted ledger and what follows."""
    visible = await last_visible(topic)
    horizon = topic.compaction.horizon if is_compacted else None
    if horizon is not None and (visible is None or visible.position <= horizon.last):
        return await topic.compaction.last_entry()
    return visible


async def consumer_stats(session: Session, request: pb.CommandConsumerStats) -> None:
    opened = _opened(session, request.consumer_id)
    consumer, subscription = opened.consumer, opened.subscription
    now_ms = session.broker.clock.now_ms()
    # Rates are averages over the consumer's life; the admin interface has those of the last minute.
    seconds = max(1.0, (now_ms - consumer.connected_ms) / 1000)
    since = datetime.fromtimestamp(consumer.connected_ms / 1000, UTC)
    assert subscription.type is not None
    session.answer(
        pb.BaseCommand.CONSUMER_STATS_RESPONSE,
        pb.CommandConsumerStatsResponse(
            request_id=request.request_id,
            msgRateOut=consumer.messages_out / seconds,
            msgThroughputOut=consumer.bytes_out / seconds,
            msgRateRedeliver=consumer.messages_redelivered / seconds,
            messageAckRate=consumer.messages_acked / seconds,
            consumerName=consumer.name,
            availablePermits=max(0, consumer.permits),
            unackedMessages=consumer.unacked,
            blockedConsumerOnUnackedMsgs=consumer.is_blocked_by_unacked(),
            address=session.connection.peer,
            connectedSince=since.isoformat(timespec="milliseconds"),
            type=subscription.type.label,
            msgRateExpired=0.0,
            msgBacklog=subscription.cursor.backlog_entries(),
        ),
    )


def _write_position(target: pb.MessageIdData, position: Position) -> None:
    target.ledgerId = position.ledger_id % 2**64
    target.entryId = position.entry_id % 2**64


def _opened(session: Session, consumer_id: int) -> OpenConsumer:
    opened = session.consumers.get(consumer_id)
    if opened is None:
        raise ConsumerNotFound(f"Consumer {consumer_id} is not open on this connection")
    return opened
