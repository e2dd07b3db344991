# SPDX-License-Identifier: Apache-2.0
"""Payloads of schemas that contain themselves, or have items without bytes: read within limits, or refused."""

import json
import multiprocessing
from typing import Any

import pytest

from magnetar.client.avro_data import BYTELESS_ITEMS_MAX, COMPILED_BYTES_MAX, Care, care_of, read_avro
from magnetar.client.schema_auto import schema_of
from magnetar.client.schema_avro import AvroSchema, decode_avro, parsed
from magnetar.client.schema_info import SchemaInfo, SchemaType
from magnetar.errors import BadSchema

CHAIN = {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}
OWN_FIELD = {"type": "record", "name": "N", "fields": [{"name": "n", "type": "N"}]}
NULLS = {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": "null"}}]}
TREE = {
    "type": "record",
    "name": "a.T",
    "fields": [{"name": "name", "type": "string"}, {"name": "below", "type": {"type": "array", "items": "T"}}],
}
EMPTY_ITEMS = {"type": "array", "items": {"type": "record", "name": "E", "fields": []}}
PLAIN = {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "map", "values": "long"}}]}


ENDLESS = (
    (CHAIN, b"\x02" * 100_000),
    (OWN_FIELD, b""),
    (NULLS, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x00"),
    (TREE, b"\x00\x02" * 50_000),
)


def _all_refused() -> None:
    for definition, payload in ENDLESS:
        with pytest.raises(BadSchema):
            decode_avro(payload, parsed(definition))


def test_a_payload_without_an_end_is_refused_and_ends_no_process() -> None:
    """In a process of its own: the compiled reader runs over the end of the stack, or takes all memory."""
    child = multiprocessing.get_context("spawn").Process(target=_all_refused)
    child.start()
    child.join(60)
    if child.is_alive():
        child.kill()
        child.join()
    assert child.exitcode == 0


@pytest.mark.parametrize(
    ("definition", "care"),
    [
        (CHAIN, Care.DEEP),
        (TREE, Care.DEEP),
        (OWN_FIELD, Care.ENDLESS),
        ([OWN_FIELD, "null"], Care.ENDLESS),
        (NULLS, Care.ENDLESS),
        (EMPTY_ITEMS, Care.ENDLESS),
        (PLAIN, Care.NONE),
        ("string", Care.NONE),
        ({"type": "fixed", "name": "F", "size": 4}, Care.NONE),
    ],
)
def test_which_schemas_need_care(definition: Any, care: Care) -> None:
    assert care_of(parsed(json.dumps(definition))) is care


def _chain(length: int) -> dict[str, Any] | None:
    found: dict[str, Any] | None = None
    for _ in range(length):
        found = {"next": found}
    return found


@pytest.mark.parametrize("length", [1, 150, COMPILED_BYTES_MAX - 1])
def test_what_nests_as_far_as_people_nest_is_read(length: int) -> None:
    found = AvroSchema[Any](definition=CHAIN).decode(b"\x02" * length + b"\x00")
    for _ in range(length):
        found = found["next"]
    assert found == {"next": None}


def test_a_chain_that_was_written_is_read() -> None:
    schema = AvroSchema[Any](definition=CHAIN)
    assert schema.decode(schema.encode(_chain(150))) == _chain(150)


def test_both_readers_read_the_same() -> None:
    schema = AvroSchema[Any](definition=TREE)
    value = {"name": "a" * COMPILED_BYTES_MAX, "below": [{"name": str(n), "below": []} for n in range(50)]}
    assert schema.decode(schema.encode(value)) == value
    newer = parsed({**TREE, "fields": [*TREE["fields"], {"name": "more", "type": "int", "default": 7}]})
    assert read_avro(schema.encode(value), parsed(TREE), newer)["more"] == 7


def test_items_without_bytes_are_read_up_to_a_limit() -> None:
    schema = AvroSchema[Any](definition=NULLS)
    value = {"a": [None] * BYTELESS_ITEMS_MAX}
    assert schema.decode(schema.encode(value)) == value
    with pytest.raises(BadSchema, match="more items"):
        schema.decode(schema.encode({"a": [None] * (BYTELESS_ITEMS_MAX + 100)}))


@pytest.mark.parametrize(
    "info",
    [
        SchemaInfo(SchemaType.JSON, "", b"[" * 50_000),
        SchemaInfo(SchemaType.JSON, "", b"no"),
        SchemaInfo(SchemaType.AVRO, "", b"[" * 50_000),
        SchemaInfo(SchemaType.AVRO, "", b"\xff"),
        SchemaInfo(SchemaType.KEY_VALUE, "", b"\x00\x00\x00\x00\x00\x00\x00\x00", {"key.schema.type": "NONE_SUCH"}),
    ],
    ids=lambda info: f"{info.type.name} {info.definition[:2]!r}",
)
def test_a_brokers_schema_that_cannot_be_read_is_refused(info: SchemaInfo) -> None:
    with pytest.raises(BadSchema):
        schema_of(info)
