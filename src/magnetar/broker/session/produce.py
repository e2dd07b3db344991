# SPDX-License-Identifier: Apache-2.0
"""PRODUCER, SEND, CLOSE_PRODUCER: a client's messages on their way in.

SEND is the hottest command: a plain function, no object per message beyond what the topic queues.
Carries.
"""

import asyncio
from functools import partial

from magnetar.broker.deduplication import NO_SEQUENCE
from magnetar.broker.policies.admission import check_producer, check_same_address
from magnetar.broker.producer import AccessMode, Producer
from magnetar.broker.publish_budget import MESSAGE_OVERHEAD_BYTES
from magnetar.broker.served import ServedTopic
from magnetar.broker.session.schemas import producer_version
from magnetar.broker.session.session import OpeningProducer, OpenProducer, Session
from magnetar.broker.session.transactions import hold, is_dropped, publish_in_transaction, refuse_send
from magnetar.broker.shadow_topic import ShadowTopic
from magnetar.broker.topic import Topic
from magnetar.errors import BadCommand, MagnetarError, NotSupported, ServiceNotReady, TooManyRequests
from magnetar.ids import EARLIEST, Position
from magnetar.names import TopicName, check_subscription
from magnetar.wire import commands
from magnetar.wire.commands import Sender
from magnetar.wire.hot import ReceiptEncoder, decode_send
from magnetar.wire.message import check_intact
from magnetar.wire.proto import pulsar_api_pb2 as pb
from magnetar.wire.runs import Frame, Send, read_sends

# --- opening ----------------------------------------------------------------------------------------


async def open_producer(session: Session, request: pb.CommandProducer) -> None:
    producer_id = request.producer_id
    present = session.producers.get(producer_id)
    if present is not None:
        # The same PRODUCER twice: the first registration stands.
        _succeed(session, request, present)
        return
    if producer_id in session.opening_producers:
        raise ServiceNotReady("Producer is already present on the connection")
    if len(session.producers) + len(session.opening_producers) >= session.broker.settings.producers_per_connection_max:
        raise TooManyRequests(f"This connection has {len(session.producers)} producers already")
    opening = session.opening_producers[producer_id] = OpeningProducer()
    try:
        await _open(session, request, opening)
    except MagnetarError:
        # Whoever closed it was answered already.
        if not opening.is_abandoned:
            raise
    finally:
        if session.opening_producers.get(producer_id) is opening:
            del session.opening_producers[producer_id]


async def _open(session: Session, request: pb.CommandProducer, opening: OpeningProducer) -> None:
    topic = await session.broker.topics.open(TopicName.parse(request.topic), create=True)
    if request.initial_subscription_name:
        await _open_initial_subscription(session, topic, request.initial_subscription_name)
    schema_version = await producer_version(session, topic.name, request)
    _check_wanted(opening)
    check_producer(topic.settings if isinstance(topic, Topic) else session.broker.settings, encrypts=request.encrypted)
    _check_address(session, topic)
    producer = _new_producer(session, request)

    def on_waiting() -> None:
        opening.on_abandoned = lambda: topic.forget_waiting_producer(producer)
        session.answer(
            pb.BaseCommand.PRODUCER_SUCCESS,
            pb.CommandProducerSuccess(
                request_id=request.request_id,
                producer_name=producer.name,
                last_sequence_id=NO_SEQUENCE,
                producer_ready=False,
            ),
        )

    await topic.add_producer(producer, on_waiting)
    try:
        last_sequence_id = await topic.last_sequence_id(producer.name)
        _check_wanted(opening)
        if producer.is_closed:
            raise ServiceNotReady("The topic closed the producer while it was being opened; look it up again")
    except BaseException:
        topic.remove_producer(producer)
        raise
    opened = OpenProducer(producer, topic, ReceiptEncoder(request.producer_id), schema_version)
    session.producers[request.producer_id] = opened
    session.closed_producers.forget(request.producer_id)
    _succeed(session, request, opened, last_sequence_id)


def _check_address(session: Session, topic: ServedTopic) -> None:
    limit = session.broker.settings.producers_per_topic_and_address_max
    if limit:
        links = (producer.link for producer in topic.producers.values())
        same = sum(isinstance(link, Session) and link.host == session.host for link in links)
        check_same_address(limit, same, "producers")


async def _open_initial_subscription(session: Session, topic: ServedTopic, name: str) -> None:
    """A producer may bring a subscription into being, so that nothing it sends is without a reader."""
    if not topic.name.is_persistent or name in topic.subscriptions:
        return
    settings = topic.settings if isinstance(topic, Topic) else session.broker.settings
    if not settings.allow_auto_subscription_creation:
        raise NotSupported(
            "Could not create the initial subscription due to the auto subscription creation is not allowed."
        )
    await topic.open_subscription(check_subscription(name), initial=EARLIEST)


def _new_producer(session: Session, request: pb.CommandProducer) -> Producer:
    return Producer(
        session,
        request.producer_id,
        request.producer_name or session.broker.new_producer_name(),
        name_generated=not (request.producer_name and request.user_provided_producer_name),
        epoch=request.epoch,
        access_mode=AccessMode(request.producer_access_mode),
        topic_epoch=request.topic_epoch if request.HasField("topic_epoch") else None,
        connected_ms=session.broker.clock.now_ms(),
        metadata={pair.key: pair.value for pair in request.metadata},
    )


def _check_wanted(opening: OpeningProducer) -> None:
    if opening.is_abandoned:
        raise ServiceNotReady("The producer was closed while it was being opened")


def _succeed(session: Session, request: pb.CommandProducer, opened: OpenProducer, last_sequence_id: int = -1) -> None:
    session.answer(
        pb.BaseCommand.PRODUCER_SUCCESS,
        pb.CommandProducerSuccess(
            request_id=request.request_id,
            producer_name=opened.producer.name,
            last_sequence_id=last_sequence_id,
            topic_epoch=opened.topic.epoch,
            schema_version=opened.schema_version,
            producer_ready=True,
        ),
    )


# --- messages ---------------------------------------------------------------------------------------


def on_sends(session: Session, frames: list[Frame], at: int) -> int:
    """The frame there has a body: a SEND, or a broken protocol. Those of one producer that follow it are one run.

    Returns where the next frame is.
    """
    run: list[Send] = []
    until, producer_id = read_sends(frames, at, run)
    if until == at:
        _on_single_send(session, *frames[at])
        return at + 1
    opened = session.producers.get(producer_id)
    if opened is None:
        _on_stray_send(session, producer_id)
        return until
    count = len(run)
    size = len(run[0][3]) if count == 1 else sum([len(send[3]) for send in run])
    session.connection.take_publish_bytes(size + MESSAGE_OVERHEAD_BYTES * count)
    if session.held_sends and producer_id in session.held_sends:
        for send in run:
            hold(session, opened, partial(_publish, session, opened, *send), len(send[3]))
        return until
    if count > 1 and opened.topic.publish_run(opened.producer, run):
        return until
    for send in run:
        _publish(session, opened, *send)
    return until


def _publish(
    session: Session, opened: OpenProducer, sequence_id: int, highest_sequence_id: int, messages: int, payload: bytes
) -> None:
    producer = opened.producer
    if producer.is_closed and is_dropped(session, opened, len(payload)):
        return
    try:
        opened.topic.publish(producer, sequence_id, highest_sequence_id, messages, payload)
    except MagnetarError as error:
        refuse_send(session, producer.producer_id, sequence_id, len(payload), error)


def _on_single_send(session: Session, command: bytes, payload: bytes) -> None:
    """A SEND that has more than the usual fields, or no checksum, or a wrong one."""
    fields = decode_send(command)
    if fields is None:
        _on_unusual_send(session, command, payload)
        return
    producer_id, sequence_id, messages, highest_sequence_id = fields
    opened = session.producers.get(producer_id)
    if opened is None:
        _on_stray_send(session, producer_id)
        return
    session.connection.take_publish_bytes(len(payload) + MESSAGE_OVERHEAD_BYTES)
    try:
        check_intact(payload)
    except MagnetarError as error:
        refuse_send(session, producer_id, sequence_id, len(payload), error)
        return
    publish = partial(_publish, session, opened, sequence_id, highest_sequence_id, messages, payload)
    if producer_id in session.held_sends:
        hold(session, opened, publish, len(payload))
    else:
        publish()


def _on_unusual_send(session: Session, data: bytes, payload: bytes) -> None:
    """A SEND with more than the usual fields: batches, chunks, markers, and what only other brokers send."""
    command = commands.parse(data, Sender.CLIENT)
    if command.type != pb.BaseCommand.SEND:
        raise BadCommand(f"{commands.name_of(command)} came with a message")
    send = command.send
    opened = session.producers.get(send.producer_id)
    if opened is None:
        _on_stray_send(session, send.producer_id)
        return
    session.connection.take_publish_bytes(len(payload) + MESSAGE_OVERHEAD_BYTES)
    if send.producer_id in session.held_sends:
        hold(session, opened, partial(_publish_unusual, session, opened, send, payload), len(payload))
    else:
        _publish_unusual(session, opened, send, payload)


def _publish_unusual(session: Session, opened: OpenProducer, send: pb.CommandSend, payload: bytes) -> None:
    if is_dropped(session, opened, len(payload)):
        return
    try:
        if send.HasField("message_id"):
            if not isinstance(opened.topic, ShadowTopic):
                raise NotSupported("Only shadow topic supports sending messages with messageId")
            position = Position(send.message_id.ledgerId, send.message_id.entryId)
            opened.topic.on_shown(opened.producer, send.sequence_id, send.highest_sequence_id, position, len(payload))
            return
        check_intact(payload)
        if send.HasField("txnid_most_bits") and send.HasField("txnid_least_bits"):
            publish_in_transaction(session, opened, send, payload)
            return
        opened.topic.publish(
            opened.producer,
            send.sequence_id,
            # One that is below the first is no range; the official broker ignores it too.
            send.highest_sequence_id if send.highest_sequence_id >= send.sequence_id else 0,
            send.num_messages,
            payload,
            is_chunk=send.is_chunk,
            is_marker=send.marker,
        )
        opened.producer.chunks_in += send.is_chunk
    except MagnetarError as error:
        refuse_send(session, send.producer_id, send.sequence_id, len(payload), error)


def on_empty_send(session: Session, send: pb.CommandSend) -> None:
    raise BadCommand(f"SEND of producer {send.producer_id} came without a message")


def _on_stray_send(session: Session, producer_id: int) -> None:
    """Dropped if the broker has just closed that producer: its client sends it again. Else the protocol is broken."""
    if not session.is_connected:
        raise BadCommand("SEND came before CONNECT")
    if not session.closed_producers.knows(producer_id, session.connection.now_s()):
        raise BadCommand(f"SEND for producer {producer_id}, which is not open on this connection")


# --- closing ----------------------------------------------------------------------------------------


async def close_producer(session: Session, request: pb.CommandCloseProducer) -> None:
    """Answered when the producer's last message is stored, so that no receipt comes after it."""
    producer_id = request.producer_id
    opening = session.opening_producers.pop(producer_id, None)
    if opening is not None:
        opening.abandon()
    session.closed_producers.forget(producer_id)
    opened = session.producers.get(producer_id)
    if opened is not None:
        producer = opened.producer
        if producer.pending:
            await _drained(producer)
        opened.topic.remove_producer(producer)
        if session.producers.get(producer_id) is opened:
            del session.producers[producer_id]
    session.succeed(request.request_id)


async def _drained(producer: Producer) -> None:
    """Wait until every message of this producer is stored or refused."""
    drained = asyncio.Event()
    producer.on_drained.append(drained.set)
    await drained.wait()
