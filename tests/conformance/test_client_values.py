# SPDX-License-Identifier: Apache-2.0
"""Schemas, encryption, interceptors and transactions of the client against a real broker."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from magnetar import (
    Client,
    CompressionType,
    Consumer,
    ConsumerCryptoFailureAction,
    ConsumerInterceptor,
    InitialPosition,
    Message,
    MessageId,
    Producer,
    ProducerInterceptor,
)
from magnetar.client.encryption import KeysByName
from magnetar.client.outgoing import OutgoingMessage
from magnetar.client.schema import INT64, STRING, Schema
from magnetar.client.schema_auto import AutoConsumeSchema, AutoProduceSchema
from magnetar.client.schema_avro import AvroSchema
from magnetar.client.schema_json import JsonSchema
from magnetar.client.schema_key_value import KeyValue, KeyValueEncoding, KeyValueSchema
from magnetar.errors import BadSchema, CryptoFailed, IncompatibleSchema, TimedOut
from tests.conformance.client_service import Service, run, service

__all__ = ["service"]


class Colour(Enum):
    RED = 1
    GREEN = 2


@dataclass
class Item:
    name: str
    count: int = 1


@dataclass
class Order:
    id: int
    customer: str | None = None
    items: list[Item] = field(default_factory=list)
    colour: Colour = Colour.RED
    price: float = 0.0


ORDER = Order(7, "Ada", [Item("pen"), Item("ink", 3)], Colour.GREEN, 2.5)


async def round_trip(service: Service, schema: Schema[Any], value: Any) -> Any:
    async with Client(service.url) as client:
        topic = service.topic("schema")
        producer = await client.create_producer(topic, schema=schema)
        consumer = await client.subscribe(topic, "s", schema=schema, initial_position=InitialPosition.Earliest)
        await producer.send(value)
        return (await consumer.receive(20_000)).value()


@pytest.mark.feature("F-SCH-01", "F-SCH-03")
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (STRING, "text"),
        (INT64, -5),
        (JsonSchema(Order), ORDER),
        (AvroSchema(Order), ORDER),
        (KeyValueSchema(STRING, AvroSchema(Order)), KeyValue("k", ORDER)),
        (KeyValueSchema(STRING, INT64, KeyValueEncoding.SEPARATED), KeyValue("k", 5)),
    ],
    ids=["string", "int64", "json", "avro", "inline", "separated"],
)
def test_a_value_comes_back_as_it_was(service: Service, schema: Schema[Any], value: Any) -> None:
    assert run(round_trip(service, schema, value)) == value


@dataclass
class Small:
    id: int
    customer: str | None = None


@dataclass
class Grown:
    id: int
    customer: str | None = None
    note: str | None = None


# A later version of the same record: Avro knows records by their names.
Grown.__name__ = "Small"


@pytest.mark.feature("F-SCH-05", "F-SCH-06", "F-SCH-09")
def test_messages_are_read_with_the_version_they_were_written_with(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("versions")
        async with Client(service.url) as client:
            await (await client.create_producer(topic, schema=AvroSchema(Small))).send(Small(1, "a"))
            await (await client.create_producer(topic, schema=AvroSchema(Grown))).send(Grown(2, "b", "n"))
            consumer = await client.subscribe(
                topic, "s", schema=AvroSchema(Grown), initial_position=InitialPosition.Earliest
            )
            first, second = await consumer.receive(20_000), await consumer.receive(20_000)
            assert [first.value(), second.value()] == [Grown(1, "a", None), Grown(2, "b", "n")]
            assert first.schema_version() != second.schema_version()
            auto = await client.subscribe(
                topic, "auto", schema=AutoConsumeSchema(), initial_position=InitialPosition.Earliest
            )
            values = [(await auto.receive(20_000)).value() for _ in range(2)]
            assert values == [{"id": 1, "customer": "a"}, {"id": 2, "customer": "b", "note": "n"}]

    run(test())


@pytest.mark.feature("F-SCH-06", "F-PROD-42")
def test_an_incompatible_schema_is_refused(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("incompatible")
        async with Client(service.url) as client:
            await client.create_producer(topic, schema=AvroSchema(Small))
            with pytest.raises(IncompatibleSchema):
                await client.create_producer(topic, schema=STRING)

    run(test())


@pytest.mark.feature("F-SCH-04")
def test_bytes_that_do_not_fit_the_topic_are_not_sent(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("auto-produce")
        async with Client(service.url) as client:
            await client.create_producer(topic, schema=AvroSchema(Small))
            producer = await client.create_producer(topic, schema=AutoProduceSchema())
            await producer.send(AvroSchema(Small).encode(Small(1)))
            with pytest.raises(BadSchema):
                await producer.send(b"\xff\xff\xff\xff")

    run(test())


def keys(kind: str) -> KeysByName:
    private: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
    private = rsa.generate_private_key(65_537, 2_048) if kind == "rsa" else ec.generate_private_key(ec.SECP256R1())
    return KeysByName(
        {"k": private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)},
        {"k": private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())},
    )


@pytest.mark.feature("F-SEC-10")
@pytest.mark.parametrize("kind", ["rsa", "ec"])
@pytest.mark.parametrize("batch", [False, True])
def test_encrypted_messages_are_read_by_those_who_have_the_key(service: Service, kind: str, batch: bool) -> None:
    async def test() -> None:
        topic = service.topic("encrypted")
        reader = keys(kind)
        async with Client(service.url) as client:
            producer = await client.create_producer(
                topic,
                encryption_key="k",
                crypto_key_reader=reader,
                batching_enabled=batch,
                compression_type=CompressionType.LZ4,
            )
            mine = await client.subscribe(topic, "mine", crypto_key_reader=reader)
            consume, discard = ConsumerCryptoFailureAction.CONSUME, ConsumerCryptoFailureAction.DISCARD
            stranger = await client.subscribe(topic, "stranger", crypto_failure_action=consume)
            deaf = await client.subscribe(topic, "deaf", crypto_key_reader=keys("rsa"), crypto_failure_action=discard)
            receipts = [await producer.submit(f"secret {number}".encode() * 1_000) for number in range(3)]
            await producer.flush()
            assert all(receipt.done() for receipt in receipts)
            contents = [(await mine.receive(20_000)).data() for _ in range(3)]
            assert contents == [f"secret {number}".encode() * 1_000 for number in range(3)]
            seen = await stranger.receive(20_000)
            assert b"secret" not in seen.data()
            context = seen.encryption_context()
            assert context is not None
            assert list(context.keys) == ["k"]
            with pytest.raises(TimedOut):
                await deaf.receive(200)

    run(test())


def test_a_producer_without_its_key_sends_nothing(service: Service) -> None:
    async def test() -> None:
        async with Client(service.url) as client:
            producer = await client.create_producer(
                service.topic("no-key"), encryption_key="missing", crypto_key_reader=KeysByName()
            )
            with pytest.raises(CryptoFailed):
                await producer.send(b"plain")

    run(test())


def test_interceptors_see_messages_on_both_ends(service: Service) -> None:
    seen: list[str] = []

    class Sending(ProducerInterceptor):
        def before_send(self, producer: Producer[Any], message: OutgoingMessage) -> OutgoingMessage:
            message.properties = {"stamp": "1"}
            return message

        def on_send_acknowledgement(
            self,
            producer: Producer[Any],
            message: OutgoingMessage,
            message_id: MessageId | None,  # type: ignore[override]
            error: BaseException | None,
        ) -> None:
            seen.append(f"sent {message_id is not None}")

    class Receiving(ConsumerInterceptor):
        def before_consume(self, consumer: Consumer[Any], message: Message[Any]) -> Message[Any]:
            seen.append(f"received {message.properties()['stamp']}")
            return message

        def on_acknowledge(self, consumer: Consumer[Any], message_id: Any) -> None:
            seen.append("acknowledged")

    async def test() -> None:
        topic = service.topic("intercepted")
        async with Client(service.url) as client:
            consumer = await client.subscribe(topic, "s", interceptors=[Receiving()])
            producer = await client.create_producer(topic, interceptors=[Sending()])
            await producer.send(b"x")
            await consumer.acknowledge(await consumer.receive(20_000))
        assert seen == ["sent True", "received 1", "acknowledged"]

    run(test())


def test_a_transaction_counts_as_a_whole_or_not_at_all(service: Service) -> None:
    async def test() -> None:
        source, target = service.topic("txn-in"), service.topic("txn-out")
        async with Client(service.url) as client:
            consumer = await client.subscribe(source, "s")
            results = await client.subscribe(target, "s")
            producer = await client.create_producer(target)
            await (await client.create_producer(source)).send(b"input")
            message = await consumer.receive(20_000)
            txn = await client.new_transaction()
            await producer.send(b"never", txn=txn)
            await consumer.acknowledge(message, txn=txn)
            await txn.abort()
            consumer.redeliver_unacknowledged_messages()
            message = await consumer.receive(20_000)
            async with client.transaction() as txn:
                await producer.send(b"output", txn=txn)
                await consumer.acknowledge(message, txn=txn)
                with pytest.raises(TimedOut):
                    await results.receive(200)
            assert (await results.receive(20_000)).data() == b"output"
            await consumer.close()
            consumer = await client.subscribe(source, "s")
            with pytest.raises(TimedOut):
                await consumer.receive(200)

    run(test())
