# SPDX-License-Identifier: Apache-2.0
"""The service on a broker in this process: sessions, their number, their statistics, and the end of all."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from magnetar.broker.broker import Broker
from magnetar.client.encryption import KeysByName, MessageEncryption
from magnetar.config.websocket import WebSocketSettings
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.memory_transport import connect_in_memory
from magnetar.runtime.metrics import Metrics
from magnetar.testing import LocalPulsar
from magnetar.websocket.caller import AtBroker, Caller
from magnetar.websocket.handshake import Handshake
from magnetar.websocket.opening import opener
from magnetar.websocket.service import WebSocketService
from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.conftest import RunOnLoop
from tests.unit.websocket.plain_client import HEADERS, PlainClient

NAMESPACE = "persistent/public/default"
HELLO = base64.b64encode(b"hello").decode()


@asynccontextmanager
async def served(disk_ms: float = 0, **settings: Any) -> AsyncIterator[WebSocketService]:
    async with LocalPulsar() as pulsar:
        pulsar.slow_disk(disk_ms)
        async with serving(pulsar, **settings) as service:
            yield service


@asynccontextmanager
async def serving(pulsar: LocalPulsar, **settings: Any) -> AsyncIterator[WebSocketService]:
    wanted = WebSocketSettings(**settings)
    service = WebSocketService(wanted, AtBroker(pulsar.standalone.broker, wanted, SystemClock()), Metrics())
    service.start()
    try:
        yield service
    finally:
        await service.stop()


async def opened(service: WebSocketService, path: str) -> PlainClient:
    client = PlainClient()
    connect_in_memory(
        lambda: client, lambda: service.new_connection("GET", path, HEADERS, ("10.0.0.1", 7), None), "test"
    )
    await client.until(lambda: client.answer)
    return client


@pytest.mark.feature("F-PH-10", "B-27")
def test_a_message_goes_through_and_is_counted(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        async with served() as service:
            taking = await opened(service, f"/ws/v2/consumer/{NAMESPACE}/t/s")
            making = await opened(service, f"/ws/v2/producer/{NAMESPACE}/t")
            making.say(payload=HELLO, context="c")
            assert (await making.heard())["context"] == "c"
            message = await taking.heard()
            assert message["payload"] == HELLO
            taking.say(messageId=message["messageId"])
            taking.say(type="isEndOfTopic")
            assert await taking.heard() == {"endOfTopic": False}
            stats = service.statistics()["persistent://public/default/t"]
            assert stats["producerStats"] == [{"remoteConnection": "10.0.0.1:7", "numberOfMsgPublished": 1}]
            assert stats["consumerStats"][0]["numberOfMsgDelivered"] == 1
            assert service.metrics() == ()
            service.close_interval()
            (row,) = service.metrics()
            assert row["dimensions"] == {"namespace": "public/default"}
            found = row["metrics"]
            assert (found["ns_msg_publish_rate"], found["ns_byte_publish_rate"]) == (1, 5)
            assert (found["ns_msg_deliver_rate"], found["ns_msg_ack_rate"]) == (1, 1)
            assert sum(count for name, count in found.items() if name.startswith("ns_msg_publish_latency_")) == 1
            service.close_interval()
            assert service.metrics()[0]["metrics"]["ns_msg_publish_rate"] == 0

    loop_run(scenario())


@pytest.mark.feature("B-27")
def test_sessions_are_bounded_and_make_room_when_they_end(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        async with served(sessions_max=1) as service:
            first = await opened(service, f"/ws/v2/producer/{NAMESPACE}/t")
            second = await opened(service, f"/ws/v2/producer/{NAMESPACE}/t")
            assert second.answer.startswith(b"HTTP/1.1 503")
            first.protocol.send_close(1000)
            first.flush()
            await first.is_gone.wait()
            answer = b""
            while not answer.startswith(b"HTTP/1.1 101"):
                answer = (await opened(service, f"/ws/v2/producer/{NAMESPACE}/t")).answer

    loop_run(scenario())


class NeverAdmitting(AtBroker):
    """Fails in its own way, or does not come to a decision."""

    def __init__(self, broker: Broker, settings: WebSocketSettings, failure: Exception | None) -> None:
        super().__init__(broker, settings, SystemClock())
        self.failure = failure
        self.is_asked = asyncio.Event()

    async def admit(self, handshake: Handshake) -> Caller:
        self.is_asked.set()
        if self.failure is not None:
            raise self.failure
        await asyncio.Event().wait()
        raise AssertionError("nobody sets that event")


@pytest.mark.feature("B-27")
@pytest.mark.parametrize("failure", [RuntimeError("a bug"), None])
def test_who_was_not_let_in_yet_at_the_end_is_answered_and_let_go(
    failure: Exception | None, loop_run: RunOnLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("magnetar.websocket.service._STOP_PATIENCE_S", 0.01)

    async def scenario() -> None:
        async with asyncio.timeout(20), LocalPulsar() as pulsar:
            settings = WebSocketSettings()
            backend = NeverAdmitting(pulsar.standalone.broker, settings, failure)
            service = WebSocketService(settings, backend, Metrics())
            client = PlainClient()
            path = f"/ws/v2/producer/{NAMESPACE}/t"
            connect_in_memory(
                lambda: client, lambda: service.new_connection("GET", path, HEADERS, ("10.0.0.1", 7), None), "test"
            )
            await backend.is_asked.wait()
            if failure is None:
                assert client.answer == b""
                await service.stop()
            await client.is_gone.wait()
            assert client.answer.startswith(b"HTTP/1.1 503" if failure is None else b"HTTP/1.1 500")
            await service.stop()

    loop_run(scenario())


@pytest.mark.feature("B-27")
def test_what_was_said_before_the_end_is_stored(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        async with served() as service:
            making = await opened(service, f"/ws/v2/producer/{NAMESPACE}/t?batchingEnabled=true")
            for number in range(100):
                making.say(payload=base64.b64encode(str(number).encode()).decode())
            making.protocol.send_close(1000)
            making.flush()
            reading = await opened(service, f"/ws/v2/reader/{NAMESPACE}/t?messageId=earliest")
            found = [base64.b64decode((await reading.heard())["payload"]) for _ in range(100)]
            assert found == [str(number).encode() for number in range(100)]
            stopped = await opened(service, f"/ws/v2/consumer/{NAMESPACE}/t/s")
        await stopped.is_gone.wait()
        assert stopped.close_code == 1001

    loop_run(scenario())


@pytest.mark.feature("B-27")
def test_who_sends_faster_than_messages_are_stored_is_not_read_from(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        async with served(disk_ms=30, pending_bytes_max=200_000) as service:
            making = await opened(service, f"/ws/v2/producer/{NAMESPACE}/t")
            for _ in range(12):
                making.say(payload=base64.b64encode(b"x" * 100_000).decode())
            assert (await making.heard())["result"] == "ok"
            assert making.transport.get_write_buffer_size() > 500_000, "most of it waits with the client"
            for _ in range(11):
                assert (await making.heard())["result"] == "ok"

    loop_run(scenario())


@pytest.mark.feature("B-27")
def test_a_reader_that_never_reads_costs_what_its_bounds_say(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        async with served(unsent_bytes_max=20_000) as service:
            making = await opened(service, f"/ws/v2/producer/{NAMESPACE}/t")
            for _ in range(200):
                making.say(payload=base64.b64encode(b"x" * 1_000).decode())
            for _ in range(200):
                await making.heard()
            client = PlainClient()
            near, far = connect_in_memory(
                lambda: client,
                lambda: service.new_connection(
                    "GET", f"/ws/v2/reader/{NAMESPACE}/t?messageId=earliest", HEADERS, None, None
                ),
                "test",
            )
            await client.until(lambda: client.texts)
            near.pause_reading()
            seen = -1
            while far.get_write_buffer_size() != seen:
                seen = far.get_write_buffer_size()
                await asyncio.sleep(0.01)
            assert 20_000 <= seen < 25_000
            near.resume_reading()
            await client.until(lambda: len(client.texts) == 200)

    loop_run(scenario())


@pytest.mark.feature("B-27")
def test_what_a_client_has_encrypted_is_opened_by_a_consumer_and_shown_sealed_to_who_has_no_key(
    loop_run: RunOnLoop,
) -> None:
    pair = rsa.generate_private_key(public_exponent=65_537, key_size=2048)
    private = pair.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = pair.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    metadata = pb.MessageMetadata()
    sealed = MessageEncryption(["mine"], KeysByName({"mine": public}), SystemClock()).encrypt(b"secret", metadata)
    wrapped = {"mine": {"keyValue": base64.b64encode(metadata.encryption_keys[0].value).decode(), "metadata": {}}}
    keys = base64.urlsafe_b64encode(json.dumps(wrapped).encode()).decode().replace("-", "%2B").replace("_", "/")

    async def scenario() -> None:
        async with LocalPulsar() as pulsar, serving(pulsar) as service, pulsar.client() as client:
            reader = KeysByName(private={"mine": private})
            opening = await client.subscribe("t", "opening", crypto_key_reader=reader)
            looking = await opened(service, f"/ws/v2/consumer/{NAMESPACE}/t/looking?cryptoFailureAction=CONSUME")
            making = await opened(service, f"/ws/v2/producer/{NAMESPACE}/t?batchingEnabled=true&encryptionKeys={keys}")
            making.say(
                payload=base64.b64encode(sealed).decode(),
                encryptionParam=base64.b64encode(metadata.encryption_param).decode(),
            )
            assert (await making.heard())["result"] == "ok"
            assert (await opening.receive()).data() == b"secret"
            shown = await looking.heard()
            assert base64.b64decode(shown["payload"]) == sealed
            context = shown["encryptionContext"]
            assert context["keys"] == wrapped
            assert base64.b64decode(context["param"]) == metadata.encryption_param
            assert (context["compressionType"], context["batchSize"]) == ("NONE", None)

    loop_run(scenario())


@pytest.mark.feature("B-27")
def test_the_service_is_loaded_when_the_first_comes_and_all_who_wait_are_served(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        async with LocalPulsar() as pulsar:
            settings = WebSocketSettings(sessions_max=3)
            open_service = opener(pulsar.standalone.broker, settings, SystemClock(), Metrics())
            assert open_service is not None
            late = open_service()
            late.start()
            assert (late.statistics(), late.metrics()) == ({}, ())
            path = f"/ws/v2/producer/{NAMESPACE}/t"
            clients = [PlainClient() for _ in range(4)]
            for client in clients:
                connect_in_memory(
                    lambda client=client: client,  # type: ignore[misc]
                    lambda: late.new_connection("GET", path, HEADERS, None, None),
                    "test",
                )
            await clients[3].is_gone.wait()
            for client in clients[:3]:
                await client.until(lambda client=client: client.answer)  # type: ignore[misc]
                client.say(payload=HELLO)
                assert (await client.heard())["result"] == "ok"
            assert len(late.statistics()["persistent://public/default/t"]["producerStats"]) == 3
            await late.stop()
            unused = open_service()
            await unused.stop()
            assert opener(pulsar.standalone.broker, WebSocketSettings(enabled=False), SystemClock(), Metrics()) is None

    loop_run(scenario())
