# SPDX-License-Identifier: Apache-2.0
"""Strategies over every kind of schema."""

import base64
import json

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorSet

from magnetar.broker.policies.values import SchemaCompatibility as By
from magnetar.broker.schemas.compatibility import check_compatible, check_definition, is_same
from magnetar.broker.schemas.schema import (
    Schema,
    SchemaType,
    StoredSchema,
    decode_stored,
    encode_stored,
    key_and_value,
    schema_from_wire,
    schema_to_wire,
    version_bytes,
    version_number,
)
from magnetar.errors import Damaged, IncompatibleSchema
from magnetar.wire.proto import pulsar_api_pb2 as pb
from magnetar.wire.proto.schema_storage_pb2 import SchemaEntry


def avro(*fields: tuple[str, object], kind: SchemaType = SchemaType.AVRO) -> Schema:
    """Fields with their default; ... means none."""
    described = [
        {"name": name, "type": "int", **({} if default is ... else {"default": default})} for name, default in fields
    ]
    return Schema(kind, json.dumps({"type": "record", "name": "R", "fields": described}).encode())


A = avro(("a", ...))
A_B = avro(("a", ...), ("b", ...))
A_B1 = avro(("a", ...), ("b", 1))
B1 = avro(("b", 1))
STRATEGIES = [by for by in By if by is not By.UNDEFINED]


def allowed(new: Schema, *existing: Schema) -> set[By]:
    found: set[By] = set()
    for by in STRATEGIES:
        try:
            check_compatible(new, existing, by)
        except IncompatibleSchema:
            continue
        found.add(by)
    return found


BACKWARD = {By.BACKWARD, By.BACKWARD_TRANSITIVE}
FORWARD = {By.FORWARD, By.FORWARD_TRANSITIVE}
FULL = {By.FULL, By.FULL_TRANSITIVE}
ALWAYS = {By.ALWAYS_COMPATIBLE}


@pytest.mark.feature("F-SCH-07")
@pytest.mark.parametrize("kind", [SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF])
def test_each_strategy_looks_in_its_own_direction(kind: SchemaType) -> None:
    def of(schema: Schema) -> Schema:
        return schema._replace(type=kind)

    assert allowed(of(A_B1), of(A)) == ALWAYS | BACKWARD | FORWARD | FULL
    assert allowed(of(A_B), of(A)) == ALWAYS | FORWARD, "old readers ignore b; the new one misses it in old data"
    assert allowed(of(A), of(A_B)) == ALWAYS | BACKWARD
    assert allowed(of(A), of(B1)) == ALWAYS | FORWARD, "no default for a in old data, one for b in new data"


@pytest.mark.feature("F-SCH-07")
def test_transitive_strategies_look_at_all_versions_and_the_others_at_the_newest() -> None:
    assert allowed(A_B, A, A_B1) == ALWAYS | {By.BACKWARD, By.FORWARD, By.FULL, By.FORWARD_TRANSITIVE}
    assert allowed(A, *()) == set(STRATEGIES)


@pytest.mark.feature("F-SCH-07")
def test_primitives_follow_only_their_own_type() -> None:
    string, number = Schema(SchemaType.STRING), Schema(SchemaType.INT32)
    assert allowed(string, number) == ALWAYS
    assert allowed(string, string) == set(STRATEGIES) - {By.ALWAYS_INCOMPATIBLE}
    assert allowed(A._replace(type=SchemaType.JSON), A) == ALWAYS


def pair(key: Schema, value: Schema) -> Schema:
    data = b"".join(len(part.definition).to_bytes(4, "big") + part.definition for part in (key, value))
    properties = {"key.schema.type": key.type.name, "value.schema.type": value.type.name}
    return Schema(SchemaType.KEY_VALUE, data, {**properties, "kv.encoding.type": "SEPARATED"})


@pytest.mark.feature("F-SCH-07")
def test_a_pair_is_as_compatible_as_both_of_its_parts() -> None:
    string = Schema(SchemaType.STRING)
    assert key_and_value(pair(string, A)) == (string, A)
    assert allowed(pair(string, A_B), pair(string, A)) == ALWAYS | FORWARD
    assert allowed(pair(A, string), pair(A_B, string)) == ALWAYS | BACKWARD
    assert allowed(pair(A, string), pair(string, string)) == ALWAYS
    assert is_same(pair(string, A), pair(string, A))
    assert not is_same(pair(string, A), pair(string, A_B))
    for broken in (b"", b"\x00\x00\x00\x09abc", pair(string, A).definition + b"x"):
        with pytest.raises(IncompatibleSchema, match="KEY_VALUE"):
            check_definition(Schema(SchemaType.KEY_VALUE, broken, pair(string, A).properties))


def native(*fields: tuple[int, str, int, int], root: str = "M") -> Schema:
    """Fields as number, name, type, label."""
    message = DescriptorProto(name=root)
    for number, name, type_, label in fields:
        message.field.add(number=number, name=name, type=type_, label=label)
    files = FileDescriptorSet()
    files.file.add(name="f.proto", package="p").message_type.append(message)
    data = base64.b64encode(files.SerializeToString()).decode()
    described = {"fileDescriptorSet": data, "rootMessageTypeName": f"p.{root}", "rootFileDescriptorName": "f.proto"}
    return Schema(SchemaType.PROTOBUF_NATIVE, json.dumps(described).encode())


F = FieldDescriptorProto
ID = (1, "id", F.TYPE_INT32, F.LABEL_OPTIONAL)


@pytest.mark.feature("F-SCH-07")
def test_native_protobuf_keeps_its_root_its_wire_forms_and_what_is_required() -> None:
    every = set(STRATEGIES) - {By.ALWAYS_INCOMPATIBLE}
    more = (2, "name", F.TYPE_STRING, F.LABEL_OPTIONAL)
    assert allowed(native(ID, more), native(ID)) == every
    assert allowed(native((1, "id", F.TYPE_INT64, F.LABEL_OPTIONAL)), native(ID)) == every
    assert allowed(native((1, "id", F.TYPE_STRING, F.LABEL_OPTIONAL)), native(ID)) == ALWAYS
    assert allowed(native(ID, root="N"), native(ID)) == ALWAYS
    required = (2, "name", F.TYPE_STRING, F.LABEL_REQUIRED)
    assert allowed(native(ID, required), native(ID)) == ALWAYS | FORWARD
    with pytest.raises(IncompatibleSchema, match="PROTOBUF_NATIVE"):
        check_definition(Schema(SchemaType.PROTOBUF_NATIVE, b"{}"))


@pytest.mark.parametrize(
    "schema",
    [
        Schema(SchemaType.AVRO, b"nonsense"),
        Schema(SchemaType.INT32, b"more"),
        Schema(SchemaType.AUTO_CONSUME),
    ],
)
def test_a_definition_that_is_not_of_its_type_is_refused(schema: Schema) -> None:
    with pytest.raises(IncompatibleSchema):
        check_definition(schema)


def test_any_definition_of_an_external_schema_is_taken() -> None:
    check_definition(Schema(SchemaType.EXTERNAL, b"\x00 whatever"))


@pytest.mark.feature("F-SCH-02")
@pytest.mark.parametrize("kind", [kind for kind in SchemaType if kind is not SchemaType.AUTO_CONSUME])
def test_every_type_survives_the_wire_and_storage_with_its_properties(kind: SchemaType) -> None:
    schema = Schema(kind, b"definition", {"__alwaysAllowNull": "true", "__jsr310ConversionEnabled": "false"})
    assert schema_from_wire(schema_to_wire(schema, "public/default/t")) == schema
    stored = StoredSchema(3, schema, 17, "me", False)
    entry = SchemaEntry(schema_data=encode_stored("public/default/t", stored)).SerializeToString()
    assert decode_stored(3, entry) == stored


def test_the_first_version_is_eight_zero_bytes() -> None:
    assert version_bytes(0) == bytes(8)
    assert version_number(version_bytes(300)) == 300
    with pytest.raises(IncompatibleSchema):
        version_number(b"")


def test_damage_and_unknown_types_are_named() -> None:
    with pytest.raises(Damaged):
        decode_stored(0, b"\xff\xff\xff")
    wire = pb.Schema(name="s", schema_data=b"")
    wire.type = pb.Schema.String
    assert schema_from_wire(wire).type is SchemaType.STRING


def test_what_python_clients_call_null_is_no_definition() -> None:
    wire = pb.Schema(name="s", schema_data=b"null")
    wire.type = pb.Schema.String
    assert schema_from_wire(wire) == Schema(SchemaType.STRING)
