# SPDX-License-Identifier: Apache-2.0
"""Bodies of requests that publish, and texts as values of a schema: read rightly, or refused with what is wrong."""

import base64
import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.admin.answers import AdminRefused
from magnetar.admin.publish_body import MESSAGES_MAX, publish_body
from magnetar.admin.text_values import encoder_of, key_and_value_encoders
from magnetar.broker.schemas.schema import Schema, SchemaType, key_and_value
from magnetar.client import schema as primitives
from magnetar.errors import BadSchema

RECORD = json.dumps(
    {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": ["null", "string"], "default": None}],
    }
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = (
    "payload",
    "key",
    "properties",
    "sequenceId",
    "eventTime",
    "deliverAt",
    "deliverAfterMs",
    "replicationClusters",
    "disableReplication",
)


def described(kind: str, definition: str = "") -> str:
    return json.dumps({"type": kind, "schema": base64.b64encode(definition.encode()).decode(), "properties": {}})


@pytest.mark.feature("F-PH-10")
def test_a_whole_body_is_read() -> None:
    found = publish_body(
        {
            "producerName": "me",
            "schemaVersion": 3,
            "messages": [
                {"payload": 5, "key": "k", "properties": {"a": "b"}, "sequenceId": 7, "eventTime": "1600000000000"},
                {"payload": "", "deliverAfterMs": 9, "replicationClusters": ["east"]},
                {"payload": "x", "deliverAt": 11, "disableReplication": True, "replicationClusters": ["east"]},
            ],
        }
    )
    first, second, third = found.messages
    assert (found.producer_name, found.schema_version) == ("me", 3)
    assert (first.payload, first.key, first.properties) == ("5", "k", {"a": "b"})
    assert (first.sequence_id, first.event_time_ms) == (7, 1_600_000_000_000)
    assert (second.deliver_after_ms, second.replicate_to) == (9, ["east"])
    assert (third.deliver_at_ms, tuple(third.replicate_to)) == (11, ("__local__",))


@pytest.mark.feature("F-PH-10")
def test_without_a_schema_texts_are_strings_and_a_key_makes_a_pair() -> None:
    plain = publish_body({"messages": []})
    assert (plain.producer_name, plain.schema_version) == ("RestProducer", -1)
    assert plain.schema == Schema(SchemaType.STRING, b"", {"__charset": "UTF-8"})
    pair = publish_body({"messages": [], "keySchema": described("INT32"), "valueSchema": described("AVRO", RECORD)})
    assert pair.schema.properties["kv.encoding.type"] == "SEPARATED"
    key, value = key_and_value(pair.schema)
    assert (key.type, value.type, value.definition) == (SchemaType.INT32, SchemaType.AVRO, RECORD.encode())
    encode_key, encode_value = key_and_value_encoders(pair.schema)
    assert (encode_key("7"), encode_value('{"a": 1, "b": {"string": "x"}}')) == (b"\0\0\0\7", b"\2\2\2x")


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {},
        {"messages": {}},
        {"messages": [{"payload": "\ud800"}]},
        {"messages": [1]},
        {"messages": [{}]},
        {"messages": [{"payload": {}}]},
        {"messages": [{"payload": "", "properties": {"a": 1}}]},
        {"messages": [{"payload": "", "eventTime": "xx"}]},
        {"messages": [{"payload": "", "sequenceId": 2**63}]},
        {"messages": [{"payload": "", "replicationClusters": "east"}]},
        {"messages": [], "schemaVersion": "new"},
        {"messages": [], "valueSchema": "{nope"},
        {"messages": [], "valueSchema": "[]"},
        {"messages": [], "valueSchema": json.dumps({"type": "WHAT"})},
        {"messages": [], "valueSchema": json.dumps({"type": "AVRO", "schema": "@"})},
        {"messages": [{"payload": ""}] * (MESSAGES_MAX + 1)},
    ],
)
def test_what_is_wrong_is_said_and_is_the_clients_fault(body: Any) -> None:
    with pytest.raises(AdminRefused) as caught:
        publish_body(body)
    assert caught.value.status == 400


@given(st.fixed_dictionaries({"messages": st.lists(st.dictionaries(st.sampled_from(FIELDS), JSON), max_size=2)}) | JSON)
def test_any_body_is_read_or_refused(body: Any) -> None:
    with contextlib.suppress(AdminRefused):
        assert publish_body(body).producer_name


@pytest.mark.feature("F-PH-10")
@pytest.mark.parametrize(
    ("kind", "text", "schema", "value"),
    [
        (SchemaType.STRING, "é", primitives.STRING, "é"),
        (SchemaType.BOOLEAN, "True", primitives.BOOLEAN, True),
        (SchemaType.BOOLEAN, "no", primitives.BOOLEAN, False),
        (SchemaType.INT8, "-5", primitives.INT8, -5),
        (SchemaType.INT64, str(2**62), primitives.INT64, 2**62),
        (SchemaType.DOUBLE, "1.5", primitives.DOUBLE, 1.5),
    ],
)
def test_texts_are_what_the_schema_makes_of_their_values(
    kind: SchemaType, text: str, schema: primitives.Schema[Any], value: Any
) -> None:
    assert schema.decode(encoder_of(Schema(kind))(text)) == value


def test_moments_and_records() -> None:
    assert encoder_of(Schema(SchemaType.TIMESTAMP))("1") == (1).to_bytes(8, "big")
    assert encoder_of(Schema(SchemaType.DATE))("1970-01-02") == (86_400_000).to_bytes(8, "big")
    assert encoder_of(Schema(SchemaType.LOCAL_DATE))("1970-01-03") == (2).to_bytes(8, "big")
    assert encoder_of(Schema(SchemaType.INSTANT))("1970-01-01T00:00:01Z") == (1).to_bytes(8, "big") + bytes(4)
    assert encoder_of(Schema(SchemaType.JSON))('{ "ä": [1, 2] }') == '{"ä":[1,2]}'.encode()
    assert encoder_of(Schema(SchemaType.AVRO, RECORD.encode()))('{"a": 3, "b": null}') == b"\6\0"


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (Schema(SchemaType.INT8), "128"),
        (Schema(SchemaType.INT32), "x"),
        (Schema(SchemaType.FLOAT), "one"),
        (Schema(SchemaType.TIMESTAMP), "9" * 30),
        (Schema(SchemaType.LOCAL_TIME), "25:00"),
        (Schema(SchemaType.JSON), "{"),
        (Schema(SchemaType.JSON), "[" * 100_000),
        (Schema(SchemaType.AVRO, RECORD.encode()), '{"a": "x"}'),
        (Schema(SchemaType.AVRO, RECORD.encode()), "{}"),
        (Schema(SchemaType.AVRO, RECORD.encode()), ""),
    ],
)
def test_a_text_that_is_no_value_is_refused(schema: Schema, text: str) -> None:
    with pytest.raises(BadSchema):
        encoder_of(schema)(text)


@pytest.mark.parametrize("schema", [Schema(SchemaType.PROTOBUF_NATIVE, b"x"), Schema(SchemaType.AVRO, b"{")])
def test_a_schema_without_texts_or_sense_is_refused(schema: Schema) -> None:
    with pytest.raises(BadSchema):
        encoder_of(schema)


@given(st.sampled_from([kind for kind in SchemaType if kind.is_primitive]), st.text())
def test_any_text_is_a_value_or_refused(kind: SchemaType, text: str) -> None:
    with contextlib.suppress(BadSchema):
        assert isinstance(encoder_of(Schema(kind))(text), bytes)
