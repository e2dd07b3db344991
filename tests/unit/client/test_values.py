# SPDX-License-Identifier: Apache-2.0
"""Schemas, record types, encryption, service URLs, back-off and the names that the client has in public."""

import ast
import dataclasses
import json
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from enum import Enum
from pathlib import Path
from random import Random
from typing import Any, TypedDict

import pydantic
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st

import magnetar
from magnetar.client import ecies, keywords
from magnetar.client import schema as primitives
from magnetar.client.authentication import (
    AuthenticationBasic,
    AuthenticationTLS,
    AuthenticationToken,
    authentication_of,
)
from magnetar.client.backoff import Backoff, RedeliveryBackoff
from magnetar.client.encryption import KeysByName, MessageDecryption, MessageEncryption
from magnetar.client.message_id import MessageId
from magnetar.client.options import ConsumerOptions, ProducerOptions
from magnetar.client.record_types import Int32, definition_of, definition_text
from magnetar.client.schema import Schema
from magnetar.client.schema_auto import schema_of
from magnetar.client.schema_avro import AvroSchema
from magnetar.client.schema_json import JsonSchema
from magnetar.client.schema_key_value import KeyValue, KeyValueEncoding, KeyValueSchema
from magnetar.client.schema_protobuf import ProtobufNativeSchema
from magnetar.client.service_url import Address, ServiceUrl
from magnetar.config.client import ClientSettings
from magnetar.errors import BadSchema, BadSetting, CryptoFailed
from magnetar.runtime.clock import SystemClock
from magnetar.wire.proto import pulsar_api_pb2 as pb

aware = st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


@pytest.mark.parametrize(
    ("schema", "values"),
    [
        (primitives.BYTES, st.binary()),
        (primitives.STRING, st.text()),
        (primitives.BOOLEAN, st.booleans()),
        (primitives.INT8, st.integers(-128, 127)),
        (primitives.INT16, st.integers(-(2**15), 2**15 - 1)),
        (primitives.INT32, st.integers(-(2**31), 2**31 - 1)),
        (primitives.INT64, st.integers(-(2**63), 2**63 - 1)),
        (primitives.FLOAT, st.floats(width=32, allow_nan=False)),
        (primitives.DOUBLE, st.floats(allow_nan=False)),
        (primitives.TIMESTAMP, aware.map(lambda value: value.replace(microsecond=value.microsecond // 1000 * 1000))),
        (primitives.INSTANT, aware),
        (primitives.LOCAL_DATE, st.dates()),
        (primitives.LOCAL_TIME, st.times()),
        (primitives.LOCAL_DATE_TIME, st.datetimes()),
    ],
    ids=lambda value: value.info.name if isinstance(value, Schema) else "",
)
@given(data=st.data())
@settings(max_examples=30)
def test_primitive_values_come_back(schema: Schema[Any], values: st.SearchStrategy[Any], data: st.DataObject) -> None:
    value = data.draw(values)
    assert schema.decode(schema.encode(value)) == value


def test_primitive_bytes_are_those_of_java() -> None:
    assert primitives.INT32.encode(-2) == b"\xff\xff\xff\xfe"
    assert primitives.DOUBLE.encode(1.5) == bytes.fromhex("3ff8000000000000")
    assert primitives.BOOLEAN.encode(True) == b"\x01"
    assert primitives.TIMESTAMP.encode(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)) == (1_000).to_bytes(8, "big")
    assert primitives.LOCAL_DATE.encode(date(1970, 1, 3)) == (2).to_bytes(8, "big")
    assert primitives.LOCAL_TIME.encode(time(0, 0, 1)) == (10**9).to_bytes(8, "big")


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (primitives.INT8, 128),
        (primitives.INT32, "1"),
        (primitives.INT32, True),
        (primitives.STRING, b"x"),
        (primitives.BYTES, "x"),
    ],
)
def test_values_that_do_not_fit_are_refused(schema: Schema[Any], value: Any) -> None:
    with pytest.raises(BadSchema):
        schema.encode(value)


class Size(Enum):
    SMALL = 1
    LARGE = 2


@dataclass
class Part:
    name: str | None = None
    parts: list["Part"] = field(default_factory=list)


@dataclass
class Thing:
    id: Int32
    name: str | None
    size: Size
    part: Part
    weights: dict[str, float] = field(default_factory=dict)
    made: datetime = datetime(2020, 1, 1, tzinfo=UTC)
    tags: list[str] = field(default_factory=list)
    count: int = 3


class ThingDict(TypedDict):
    id: int
    name: str | None


class ThingModel(pydantic.BaseModel):
    id: int
    name: str | None = None


things = st.builds(
    Thing,
    id=st.integers(0, 2**31 - 1),
    name=st.none() | st.text(),
    size=st.sampled_from(Size),
    part=st.builds(Part, name=st.text(), parts=st.lists(st.builds(Part, name=st.none()), max_size=2)),
    weights=st.dictionaries(st.text(), st.floats(allow_nan=False), max_size=3),
    tags=st.lists(st.text(), max_size=3),
    count=st.integers(-(2**63), 2**63 - 1),
)


@given(things)
@settings(max_examples=50)
def test_records_come_back_through_avro(thing: Thing) -> None:
    schema = AvroSchema(Thing)
    assert schema.decode(schema.encode(thing)) == thing


@given(st.builds(Part, name=st.none() | st.text(), parts=st.lists(st.builds(Part, name=st.text()), max_size=2)))
@settings(max_examples=50)
def test_records_come_back_through_json(part: Part) -> None:
    schema = JsonSchema(Part)
    assert schema.decode(schema.encode(part)) == part


@pytest.mark.parametrize("schema_kind", [AvroSchema, JsonSchema])
def test_typed_dicts_and_models_are_records_too(schema_kind: Any) -> None:
    named = schema_kind(ThingDict)
    assert named.decode(named.encode({"id": 1, "name": None})).get("id") == 1
    model = schema_kind(ThingModel)
    assert model.decode(model.encode(ThingModel(id=1, name="x"))) == ThingModel(id=1, name="x")


def test_a_definition_is_what_java_makes_of_the_same_shape() -> None:
    @dataclass
    class Order:
        id: Int32
        name: str | None = None
        price: float | None = None

    expected = (
        '{"type":"record","name":"Order","fields":[{"name":"id","type":"int"},'
        '{"name":"name","type":["null","string"],"default":null},'
        '{"name":"price","type":["null","double"],"default":null}]}'
    )
    assert definition_text(definition_of(Order)).decode() == expected
    assert AvroSchema(Order).info.definition.decode() == expected
    assert AvroSchema(Order).info.properties == {"__alwaysAllowNull": "true", "__jsr310ConversionEnabled": "false"}


def test_json_leaves_out_what_is_none() -> None:
    assert JsonSchema(Part).encode(Part(None, [Part("x")])) == b'{"parts":[{"name":"x","parts":[]}]}'


@pytest.mark.parametrize("encoding", list(KeyValueEncoding))
def test_a_pair_describes_both_of_its_schemas(encoding: KeyValueEncoding) -> None:
    schema = KeyValueSchema(primitives.STRING, AvroSchema(Part), encoding)
    assert schema.info.properties["kv.encoding.type"] == encoding.value
    assert schema.info.properties["value.schema.type"] == "AVRO"
    again = schema_of(schema.info)
    assert isinstance(again, KeyValueSchema)
    pair = KeyValue("k", Part("p"))
    if encoding is KeyValueEncoding.INLINE:
        assert schema.decode(schema.encode(pair)) == pair
        assert again.decode(schema.encode(pair)) == KeyValue("k", {"name": "p", "parts": []})
    else:
        assert schema.key_of(pair) == b"k"
        assert schema.encode(pair) == AvroSchema(Part).encode(Part("p"))


def test_protobuf_messages_bring_their_descriptors() -> None:
    schema = ProtobufNativeSchema(pb.CommandPing)
    definition = json.loads(schema.info.definition)
    assert definition["rootMessageTypeName"] == pb.CommandPing.DESCRIPTOR.full_name
    keys = ProtobufNativeSchema(pb.KeyValue)
    assert keys.decode(keys.encode(pb.KeyValue(key="a", value="b"))).value == "b"
    with pytest.raises(BadSchema):
        keys.encode(pb.CommandPing())  # type: ignore[arg-type]


@given(st.binary(max_size=100))
@settings(max_examples=10)
def test_data_keys_are_opened_by_their_receiver_only(data: bytes) -> None:
    receiver, stranger = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    wrapped = ecies.encrypt(data, receiver.public_key())
    assert ecies.decrypt(wrapped, receiver) == data
    with pytest.raises(CryptoFailed):
        ecies.decrypt(wrapped, stranger)
    with pytest.raises(CryptoFailed):
        ecies.decrypt(wrapped[:-1] + bytes((wrapped[-1] ^ 1,)), receiver)


def test_data_keys_are_renewed() -> None:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    class Clock(SystemClock):
        time_ms = 0

        def now_ms(self) -> int:
            return self.time_ms

    private = ec.generate_private_key(ec.SECP256R1())
    reader = KeysByName(
        {"k": private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)},
        {"k": private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())},
    )
    clock = Clock()
    encryption = MessageEncryption(["k"], reader, clock)
    decryption = MessageDecryption(reader)
    seen = set()
    for hours in (0, 1, 5):
        clock.time_ms = hours * 3_600_000
        metadata = pb.MessageMetadata()
        hidden = encryption.encrypt(b"plain", metadata)
        assert decryption.decrypt(hidden, metadata) == b"plain"
        seen.add(metadata.encryption_keys[0].value)
    assert len(seen) == 2


@pytest.mark.feature("F-CLNT-06")
@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("pulsar://a", [Address("a", 6650)]),
        ("pulsar://a:1,b,c:3", [Address("a", 1), Address("b", 6650), Address("c", 3)]),
        ("pulsar+ssl://a", [Address("a", 6651, True)]),
        ("http://a:8080,b", [Address("a", 8080), Address("b", 80)]),
        ("https://a/path", [Address("a", 443, True)]),
        ("pulsar://[::1]:7,[fe80::2]", [Address("::1", 7), Address("fe80::2", 6650)]),
    ],
)
def test_service_urls(text: str, addresses: list[Address]) -> None:
    url = ServiceUrl.parse(text)
    assert list(url.addresses) == addresses
    assert url.is_http == text.startswith("http")


@pytest.mark.parametrize(
    "text", ["", "a:6650", "ftp://a", "pulsar://", "pulsar://a:0", "pulsar://a:x", "pulsar://[::1"]
)
def test_bad_service_urls_say_what_is_wrong(text: str) -> None:
    with pytest.raises(BadSetting, match="service URL"):
        ServiceUrl.parse(text)


@pytest.mark.feature("F-CLNT-08")
@given(st.integers(1, 1_000), st.integers(1, 100_000), st.integers())
def test_back_off_doubles_up_to_its_limit(initial_ms: int, max_ms: int, seed: int) -> None:
    backoff = Backoff(initial_ms, max_ms, Random(seed))
    expected = initial_ms
    for _ in range(20):
        delay_ms = backoff.next_s() * 1000
        assert expected * 0.9 - 1e-6 <= delay_ms <= expected + 1e-6
        expected = min(expected * 2, max(max_ms, initial_ms))
    backoff.reset()
    assert backoff.next_s() * 1000 <= initial_ms + 1e-6


@pytest.mark.feature("F-CONS-20")
def test_redelivery_back_off_grows_with_the_count() -> None:
    backoff = RedeliveryBackoff(1_000, 60_000, 2)
    assert [backoff.delay_ms(count) for count in (0, 1, 2, 6, 10_000)] == [1_000, 2_000, 4_000, 60_000, 60_000]
    with pytest.raises(ValueError, match="back-off"):
        RedeliveryBackoff(10, 5)


@pytest.mark.feature("F-CLNT-10")
def test_authentication_by_the_names_of_configuration_files(tmp_path: Path) -> None:
    import asyncio

    token = authentication_of("org.apache.pulsar.client.impl.auth.AuthenticationToken", "token:abc")
    assert (token.method, asyncio.run(token.credentials())) == ("token", b"abc")
    basic = authentication_of("basic", '{"userId":"u","password":"p"}')
    assert isinstance(basic, AuthenticationBasic)
    assert asyncio.run(basic.credentials()) == b"u:p"
    tls = authentication_of("tls", "tlsCertFile:/c,tlsKeyFile:/k")
    assert isinstance(tls, AuthenticationTLS)
    assert tls.tls_files() == ("/c", "/k")
    path = tmp_path / "token"
    path.write_text("from file\n")
    assert asyncio.run(AuthenticationToken(f"file://{path}").credentials()) == b"from file"
    supplied = iter(["one", "two"])
    changing = AuthenticationToken(lambda: next(supplied))
    assert [asyncio.run(changing.credentials()) for _ in range(2)] == [b"one", b"two"]
    with pytest.raises(BadSetting, match="unknown"):
        authentication_of("kerberos", "")
    assert "abc" not in repr(token)


def test_keywords_are_the_options_that_they_become() -> None:
    reader_only = {"durable", "start_message_id"}
    pairs: list[tuple[Any, Any, set[str]]] = [
        (keywords.ProducerKeywords, ProducerOptions, set()),
        (keywords.ConsumerKeywords, ConsumerOptions, reader_only),
        (keywords.ClientKeywords, ClientSettings, set()),
    ]
    for typed, options, left_out in pairs:
        fields = {one.name: one.type for one in dataclasses.fields(options)}
        assert set(typed.__annotations__) == set(fields) - left_out


def test_public_names_resolve_lazily_and_completely() -> None:
    path = Path(magnetar.__file__)
    block = next(node for node in ast.parse(path.read_text()).body if isinstance(node, ast.If))
    imported = {alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert imported == set(magnetar._MODULE_OF)
    for name in imported:
        assert getattr(magnetar, name).__name__ == name
    with pytest.raises(AttributeError):
        magnetar.Nothing  # noqa: B018


@given(st.integers(0, 2**40), st.integers(0, 2**40), st.integers(-1, 100), st.integers(-1, 100))
def test_serialised_ids_come_back(ledger: int, entry: int, partition: int, index: int) -> None:
    message_id = MessageId(ledger, entry, partition, index)
    assert MessageId.deserialize(message_id.serialize()) == message_id


def test_options_are_checked_when_they_are_given() -> None:
    for bad in (
        {"unacked_messages_timeout_ms": 5},
        {"receiver_queue_size": -1},
        {"is_read_compacted": True, "consumer_type": magnetar.ConsumerType.Shared},
        {"key_shared_policy": magnetar.KeySharedPolicy()},
        {"dead_letter_policy": magnetar.DeadLetterPolicy(3)},
    ):
        with pytest.raises(BadSetting):
            ConsumerOptions(**bad)
    with pytest.raises(BadSetting):
        magnetar.DeadLetterPolicy(0)
    with pytest.raises(BadSetting, match="overlaps"):
        magnetar.KeySharedPolicy(magnetar.KeySharedMode.Sticky, sticky_ranges=((0, 10), (5, 20)))
