# SPDX-License-Identifier: Apache-2.0
"""PRODUCER, SEND, CLOSE_PRODUCER: a client's messages on their way in.

SEND is the hottest command: a plain function, no object per message beyond what the topic queues.
Carries.
"""

import asyncio

from magnetar.broker.producer import Producer
from magnetar.broker.session.session import OpenProducer, Session
from magnetar.errors import BadCommand, MagnetarError, ServiceNotReady, TooManyRequests
from magnetar.names import TopicName
from magnetar.wire import commands
from magnetar.wire.commands import Sender
from magnetar.wire.error_codes import codes_of
from magnetar.wire.hot import ReceiptEncoder, SendFields, decode_send
from magnetar.wire.message import check_intact
from magnetar.wire.proto import pulsar_api_pb2 as pb


async def open_producer(session: Session, request: pb.CommandProducer) -> None:
    producer_id = request.producer_id
    if producer_id in session.producers:
        await _answer_again(session, request)
        return
    if len(session.producers) >= session.broker.settings.producers_per_connection_max:
        raise TooManyRequests(f"This connection has {len(session.producers)} producers already")
    session.producers[producer_id] = None
    try:
        topic = await session.broker.topics.load(TopicName.parse(request.topic), create=True)
        if session.producers.get(producer_id, producer_id) is not None or not session.connection.is_open:
            raise ServiceNotReady("The producer was closed while it was being opened")
        producer = Producer(
            session,
            producer_id,
            request.producer_name or session.broker.new_producer_name(),
            name_generated=not (request.producer_name and request.user_provided_producer_name),
            epoch=request.epoch,
            connected_ms=session.broker.clock.now_ms(),
            metadata={pair.key: pair.value for pair in request.metadata},
        )
        topic.add_producer(producer)
    except BaseException:
        if session.producers.get(producer_id, producer_id) is None:
            del session.producers[producer_id]
        raise
    session.producers[producer_id] = OpenProducer(producer, topic, ReceiptEncoder(producer_id))
    _succeed(session, request, producer)


async def _answer_again(session: Session, request: pb.CommandProducer) -> None:
    """The same PRODUCER twice: the first registration stands."""
    present = session.producers[request.producer_id]
    if present is None:
        raise ServiceNotReady("Producer is already present on the connection and still being opened")
    _succeed(session, request, present.producer)


def _succeed(session: Session, request: pb.CommandProducer, producer: Producer) -> None:
    session.answer(
        pb.BaseCommand.PRODUCER_SUCCESS,
        pb.CommandProducerSuccess(request_id=request.request_id, producer_name=producer.name, last_sequence_id=-1),
    )


def on_send(session: Session, command: bytes, payload: bytes) -> None:
    """A frame with a body: a SEND, or a broken protocol."""
    fields = decode_send(command)
    if fields is None:
        fields = _decode_other_send(command)
    producer_id, sequence_id, messages, highest_sequence_id = fields
    opened = session.producers.get(producer_id)
    if opened is None:
        raise BadCommand(f"SEND for producer {producer_id}, which is not open on this connection")
    try:
        check_intact(payload)
        opened.topic.publish(opened.producer, sequence_id, highest_sequence_id, messages, payload)
    except MagnetarError as error:
        session.connection.send(commands.send_error(producer_id, sequence_id, codes_of(error).server_error, str(error)))
        return
    session.connection.take_publish_bytes(len(payload))


def _decode_other_send(data: bytes) -> SendFields:
    command = commands.parse(data, Sender.CLIENT)
    if command.type != pb.BaseCommand.SEND:
        raise BadCommand(f"{commands.name_of(command)} came with a message")
    send = command.send
    return send.producer_id, send.sequence_id, send.num_messages, send.highest_sequence_id


async def close_producer(session: Session, request: pb.CommandCloseProducer) -> None:
    """Answered when the producer's last message is stored, so that no receipt comes after it."""
    opened = session.producers.get(request.producer_id)
    if opened is not None:
        producer = opened.producer
        if producer.pending:
            await _drained(producer)
        opened.topic.remove_producer(producer)
    if session.producers.get(request.producer_id) is opened:
        session.producers.pop(request.producer_id, None)
    session.succeed(request.request_id)


async def _drained(producer: Producer) -> None:
    """Wait until every message of this producer is stored or refused."""
    drained = asyncio.Event()
    producer.on_drained = drained.set
    await drained.wait()
