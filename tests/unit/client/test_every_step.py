# SPDX-License-Identifier: Apache-2.0
"""Everything a client does, with the connection cut after each arrival in turn, and each answer turned into each error.

The broker is real and in memory; what stands between it and the client is `Meddler`. Whatever happens, a call ends:
with what it is for, or with an error of ours; nothing that was acknowledged is lost, and nothing is left behind.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from magnetar import Client, InitialPosition
from magnetar.client.message_id import MessageId
from magnetar.client.options import ConsumerType
from magnetar.client.schema import STRING
from magnetar.errors import MagnetarError
from magnetar.runtime.memory_transport import connect_in_memory
from magnetar.testing import LocalPulsar
from magnetar.wire import commands
from magnetar.wire.commands import Sender, Type
from magnetar.wire.error_codes import error_of_server_error
from magnetar.wire.frame import FrameCutter, join
from magnetar.wire.proto import pulsar_api_pb2 as pb

QUICK: dict[str, Any] = {"initial_backoff_ms": 1, "backoff_ms_max": 5, "operation_timeout_seconds": 5}

Meddle = Callable[["Meddler", bytes, bytes], bytes | None]


class Meddler(asyncio.Protocol):
    """The client's end of a connection. `meddle` sees each frame of the broker: what it returns is heard instead."""

    def __init__(self, inner: asyncio.Protocol, meddle: Meddle) -> None:
        self._inner = inner
        self._meddle = meddle
        self._cutter = FrameCutter()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        for command, body in self._cutter.feed(data):
            heard = self._meddle(self, command, body)
            if heard is None:
                self.transport.abort()
                return
            if heard:
                self._inner.data_received(heard)

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


def client_through(pulsar: LocalPulsar, meddle: Meddle) -> Client:
    async def connect(protocol: Callable[[], asyncio.Protocol], target: object, tls: object) -> object:
        return connect_in_memory(
            lambda: Meddler(protocol(), meddle), pulsar.standalone.broker.new_connection, "meddled"
        )

    return Client(pulsar.service_url, connect=connect, **QUICK)


async def work(client: Client) -> list[bytes]:
    """Something of everything. Returns what was sent and confirmed, in order."""
    consumer = await client.subscribe(
        "t",
        "s",
        schema=STRING,
        consumer_type=ConsumerType.Shared,
        initial_position=InitialPosition.Earliest,
        ack_receipt_enabled=True,
        ack_group_time_ms=0,
    )
    producer = await client.create_producer("t", schema=STRING)
    confirmed = []
    for number in range(3):
        await producer.send(f"{number}")
        confirmed.append(b"%d" % number)
    message = await consumer.receive(5_000)
    await consumer.acknowledge(message)
    consumer.negative_acknowledge(await consumer.receive(5_000))
    await consumer.get_last_message_id()
    await client.core.retried(lambda: client.core.lookup.schema(producer_topic(producer)))
    await consumer.seek(MessageId.earliest)
    assert (await consumer.receive(5_000)).value() == "0"
    async with await client.create_reader("t", MessageId.earliest) as reader:
        assert await reader.has_message_available()
        assert (await reader.read_next(5_000)).data() == b"0"
    await consumer.unsubscribe()
    await producer.close()
    return confirmed


async def outcome_of_work(client: Client) -> tuple[list[bytes], MagnetarError | None]:
    try:
        return await work(client), None
    except MagnetarError as error:
        return [], error


def producer_topic(producer: Any) -> Any:
    from magnetar.names import TopicName

    return TopicName.parse(producer.topic())


async def stored(pulsar: LocalPulsar) -> list[bytes]:
    """As an undisturbed client reads it, without copies."""
    async with pulsar.client() as client, await client.create_reader("t", MessageId.earliest) as reader:
        found: dict[bytes, None] = {}
        while await reader.has_message_available():
            found[(await reader.read_next(5_000)).data()] = None
        return list(found)


@pytest.mark.feature("F-CLNT-08", "F-PROD-25")
def test_a_cut_at_every_step_is_mended_or_told() -> None:
    async def scenario() -> None:
        steps = ended_well = 0
        while True:
            steps += 1
            left = [steps]

            def cut(_: Meddler, command: bytes, body: bytes, left: list[int] = left) -> bytes | None:
                left[0] -= 1
                return None if left[0] == 0 else join(command, body)

            async with LocalPulsar(transport="memory") as pulsar:
                async with client_through(pulsar, cut) as client, asyncio.timeout(30):
                    confirmed, failure = await outcome_of_work(client)
                # Only requests whose outcome a client cannot know are not repeated by it.
                assert failure is None or failure.retryable, failure
                ended_well += failure is None
                assert (await stored(pulsar))[: len(confirmed)] == confirmed
            if left[0] > 0:
                break
        assert steps > 20
        # Producers and consumers mend themselves; single questions are told.
        assert ended_well > steps / 2

    asyncio.run(scenario())


ANSWERS = {
    Type.PARTITIONED_METADATA_RESPONSE: "partitionMetadataResponse",
    Type.LOOKUP_RESPONSE: "lookupTopicResponse",
    Type.PRODUCER_SUCCESS: "producer_success",
    Type.SUCCESS: "success",
    Type.GET_LAST_MESSAGE_ID_RESPONSE: "getLastMessageIdResponse",
    Type.GET_SCHEMA_RESPONSE: "getSchemaResponse",
    Type.ACK_RESPONSE: "ack_response",
}


@pytest.mark.parametrize("kind", list(ANSWERS), ids=[Type.Name(kind) for kind in ANSWERS])
def test_every_error_as_every_answer_ends_the_call_or_is_tried_again(kind: "Type.ValueType") -> None:
    async def scenario() -> None:
        async with LocalPulsar(transport="memory") as pulsar:
            for code in pb.ServerError.values():
                refused: list[int] = []

                def refuse(
                    _: Meddler, command: bytes, body: bytes, code: Any = code, refused: list[int] = refused
                ) -> bytes:
                    parsed = commands.parse(command, Sender.BROKER)
                    if parsed.type != kind or refused:
                        return join(command, body)
                    refused.append(code)
                    answer: Any = commands.body_of(parsed)
                    error = pb.CommandError(request_id=answer.request_id, error=code, message="because")
                    return bytes(commands.encode(Type.ERROR, error))

                async with client_through(pulsar, refuse) as client, asyncio.timeout(30):
                    _, failure = await outcome_of_work(client)
                wanted = type(error_of_server_error(code, "because"))
                assert failure is None or type(failure) is wanted, f"{pb.ServerError.Name(code)}: {failure!r}"
                assert failure is None or "because" in str(failure)
                assert refused, "the answer was never given"

    asyncio.run(scenario())


@pytest.mark.feature("F-CLNT-08")
def test_what_only_a_newer_broker_says_is_passed_over() -> None:
    """F202: a command of an unknown type before each answer; the connection stays, and everything is done."""
    unknown = join(b"\x08\xbc\x05\x9a\x04\x00")
    connections: set[Meddler] = set()

    def meddle(meddler: Meddler, command: bytes, body: bytes) -> bytes:
        connections.add(meddler)
        return unknown + join(command, body)

    async def scenario() -> None:
        async with LocalPulsar(transport="memory") as pulsar, client_through(pulsar, meddle) as client:
            confirmed = await work(client)
            assert len(connections) == 1
            assert await stored(pulsar) == confirmed

    asyncio.run(scenario())
