# SPDX-License-Identifier: Apache-2.0
"""Avro's rules of resolution, one by one, and against fastavro itself: what is judged readable is read."""

import io
import json
import socket
from collections.abc import Callable
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.broker.schemas.avro import DEPTH_MAX, AvroSchema, parse, why_unreadable
from magnetar.errors import IncompatibleSchema


def schema(definition: Any) -> AvroSchema:
    return parse(json.dumps(definition).encode())


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, type_: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, **more}


ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
LESS = {"type": "enum", "name": "E", "symbols": ["A"]}
TREE = record(field("next", ["null", "R"], default=None), field("a", "int"))

READABLE = [
    ("long", "int"),
    ("float", "int"),
    ("float", "long"),
    ("double", "int"),
    ("double", "long"),
    ("double", "float"),
    ("string", "bytes"),
    ("bytes", "string"),
    (["null", "int"], "int"),
    (["null", "long"], ["null", "int"]),
    ("int", ["int"]),
    ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}),
    ({"type": "map", "values": "long"}, {"type": "map", "values": "int"}),
    (ENUM, LESS),
    ({**LESS, "default": "A"}, ENUM),
    (record(field("a", "int"), field("b", "int", default=1)), record(field("a", "int"))),
    (record(field("a", "int")), record(field("a", "int"), field("b", "int"))),
    (record(field("b", "int", aliases=["a"])), record(field("a", "int"))),
    (record(field("a", "int"), name="N", aliases=["R"]), record(field("a", "int"))),
    (record(field("a", "int"), namespace="x"), record(field("a", "int"), namespace="y")),
    (record(field("a", "int"), name="One"), record(field("a", "int"), name="Other")),
    (record(field("e", {**ENUM, "default": "A"})), record()),
    (TREE, TREE),
    ({"type": "fixed", "name": "F", "size": 4}, {"type": "fixed", "name": "F", "size": 4}),
    ({"type": "int", "logicalType": "date"}, "int"),
]

UNREADABLE = [
    ("int", "long", "type int"),
    ("string", "int", "type string"),
    ("int", ["null", "int"], "type int"),
    (["null", "int"], "string", "no branch"),
    ({"type": "array", "items": "int"}, {"type": "array", "items": "string"}, "/items"),
    ({"type": "map", "values": "int"}, {"type": "map", "values": "long"}, "/values"),
    (LESS, ENUM, "symbols B"),
    (record(field("a", "int"), field("b", "int")), record(field("a", "int")), "/b: the reader's field is new"),
    (record(field("a", "int")), record(field("a", "string")), "/a"),
    ({**ENUM, "name": "One"}, {**ENUM, "name": "Other"}, "named One"),
    ({"type": "fixed", "name": "F", "size": 4}, {"type": "fixed", "name": "F", "size": 5}, "sizes"),
    (
        record(field("next", ["null", "R"], default=None), field("a", "int")),
        record(field("next", ["null", "R"], default=None), field("a", "string")),
        "/a",
    ),
]


@pytest.mark.feature("F-SCH-07")
@pytest.mark.parametrize(("reader", "writer"), READABLE)
def test_what_avro_can_resolve_is_readable(reader: Any, writer: Any) -> None:
    assert why_unreadable(schema(reader), schema(writer)) == ""


@pytest.mark.feature("F-SCH-07")
@pytest.mark.parametrize(("reader", "writer", "says"), UNREADABLE)
def test_what_avro_cannot_resolve_is_not_and_the_reason_says_where(reader: Any, writer: Any, says: str) -> None:
    assert says in why_unreadable(schema(reader), schema(writer))


@pytest.mark.parametrize("definition", [b"", b"null", b"{}", b"\xff", b'{"type": "record"}', b'"nonsense"', b"[[[["])
def test_what_is_no_schema_is_refused(definition: bytes) -> None:
    with pytest.raises(IncompatibleSchema, match="Invalid schema definition data"):
        parse(definition)


def test_documentation_and_spelling_make_no_other_schema() -> None:
    one = record(field("a", "int", doc="this"), doc="that", namespace="x")
    other = record(field("a", "int"), name="x.R")
    assert schema(one) == schema(other)
    assert hash(schema(one)) == hash(schema(other))
    assert schema(one) != schema(record(field("a", "long"), name="x.R"))


_SIMPLE = st.sampled_from(["int", "long", "float", "double", "string", "boolean", ["null", "int"], ENUM, LESS])
_VALUES = {"int": 1, "long": 2, "float": 1.5, "double": 2.5, "string": "s", "boolean": True}


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from("abc"), _SIMPLE, max_size=3), st.dictionaries(st.sampled_from("abc"), _SIMPLE))
def test_what_is_judged_readable_fastavro_reads(written: dict[str, Any], read: dict[str, Any]) -> None:
    def of(types: dict[str, Any]) -> dict[str, Any]:
        fields, named = [], 0
        for name, type_ in types.items():
            if isinstance(type_, dict):
                named += 1
                # A type can be defined once only.
                type_ = type_ if named == 1 else "boolean"
            fields.append(field(name, type_))
        return record(*fields)

    writer, reader = of(written), of(read)
    if why_unreadable(schema(reader), schema(writer)):
        return
    value = {f["name"]: None if isinstance(f["type"], list) else _value(f["type"]) for f in writer["fields"]}
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(writer), value)
    data.seek(0)
    found = fastavro.schemaless_reader(data, fastavro.parse_schema(writer), fastavro.parse_schema(reader))
    assert isinstance(found, dict)
    assert sorted(found) == sorted(f["name"] for f in reader["fields"])


def _value(type_: Any) -> Any:
    return "A" if isinstance(type_, dict) else _VALUES[type_]


def arrays(depth: int) -> bytes:
    return b'{"type":"array","items":' * depth + b'"int"' + b"}" * depth


def records(depth: int) -> bytes:
    fronts = b"".join(b'{"type":"record","name":"R%d","fields":[{"name":"f","type":' % n for n in range(depth))
    return fronts + b'"int"' + b"}]}" * depth


@pytest.mark.parametrize("nested", [arrays, records])
def test_types_within_types_are_compared_up_to_a_depth_and_refused_beyond(nested: Callable[[int], bytes]) -> None:
    """F153: whatever is taken can be compared later, a million levels are an error like any other."""
    per_level = 1 if nested is arrays else 3
    most = DEPTH_MAX // per_level - 1
    deepest = parse(nested(most))
    assert why_unreadable(deepest, parse(nested(most))) == ""
    assert deepest == parse(nested(most))
    assert hash(deepest) == hash(parse(nested(most)))
    for depth in (most + 2, 900, 5_000, 1_000_000):
        with pytest.raises(IncompatibleSchema, match=r"Invalid schema definition data"):
            parse(nested(depth))


@pytest.mark.parametrize(
    "definition",
    [
        b'{"$ref": "http://127.0.0.1:1/schema.json"}',
        b'{"type": {"$ref": "file:///etc/passwd"}}',
        b'{"type": "record", "name": "R", "fields": [{"name": "f", "type": "java.lang.ProcessBuilder"}]}',
        b'{"type": "!!python/object/apply:os.system"}',
        b'{"py/object": "subprocess.Popen"}',
    ],
)
def test_names_of_other_things_lead_nowhere(definition: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """F153: no address is asked, no file is opened, nothing is made of what a schema names."""

    def forbidden(*_: object, **__: object) -> Any:
        raise AssertionError("a schema led out of its text")

    monkeypatch.setattr(socket, "socket", forbidden)
    monkeypatch.setattr("builtins.open", forbidden)
    with pytest.raises(IncompatibleSchema, match="Invalid schema definition data"):
        parse(definition)
