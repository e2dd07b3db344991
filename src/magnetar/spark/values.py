# SPDX-License-Identifier: Apache-2.0
"""From payloads to the values of columns: bytes, primitives, records of Avro, JSON and protobuf, key-value pairs.

A payload that cannot be read makes its row a bad one, which the options fail, drop or keep with a sentence. Records
are read with the schema that they were written with, as far as its versions are known.
Decides.
"""

import json
from collections.abc import Sequence
from datetime import datetime, time
from typing import Any, TypeAlias

import fastavro
from pyspark.sql import types as spark

from magnetar.client.avro_data import read_avro
from magnetar.client.schema import Schema
from magnetar.client.schema_auto import schema_of
from magnetar.client.schema_info import SchemaInfo, SchemaType
from magnetar.client.schema_key_value import KeyValueEncoding, split
from magnetar.errors import BadSchema, MagnetarError
from magnetar.spark.avro_types import avro_converter, json_converter, micros_of
from magnetar.spark.columns import value_type
from magnetar.spark.protobuf_types import ProtobufReader

Buffer: TypeAlias = bytes | memoryview


class ValueReader:
    """Reads payloads of one schema; `learn` tells it what other versions were written with."""

    def __init__(self, info: SchemaInfo) -> None:
        self.type = value_type(info)
        self._is_json = info.type is SchemaType.JSON and bool(info.definition)
        self._is_avro = info.type is SchemaType.AVRO
        self._protobuf: ProtobufReader | None = None
        self._primitive: Schema[Any] | None = None
        if info.type is SchemaType.PROTOBUF_NATIVE and info.definition:
            self._protobuf = ProtobufReader(info.definition)
        elif self._is_avro:
            self._reader: Any = _parsed(info)
            self._writers: dict[bytes, Any] = {}
            self._convert = avro_converter(self.type)
        elif self._is_json:
            self._convert = json_converter(self.type)
        elif info.type not in (SchemaType.BYTES, SchemaType.NONE) and not isinstance(self.type, spark.BinaryType):
            self._primitive = schema_of(info)

    @property
    def is_plain(self) -> bool:
        """Whether payloads are columns as they are."""
        return not (self._is_avro or self._is_json or self._protobuf or self._primitive is not None)

    @property
    def is_primitive(self) -> bool:
        return self._primitive is not None

    def knows(self, version: bytes) -> bool:
        return not self._is_avro or not version or version in self._writers

    def learn(self, version: bytes, info: SchemaInfo | None) -> None:
        """What a version was written with; None if nobody knows: then it is read as the latest."""
        if not self._is_avro:
            return
        is_avro = info is not None and info.type is SchemaType.AVRO
        self._writers[version] = _parsed(info) if info is not None and is_avro else self._reader

    def read(self, payload: Buffer, version: bytes = b"") -> Any:
        """Raises BadSchema, or what the libraries raise for bytes that they cannot read."""
        if self._is_json:
            found = json.loads(bytes(payload))
            if not isinstance(found, dict) and isinstance(self.type, spark.StructType):
                raise BadSchema(f"a JSON {type(found).__name__} is no record")
            return found if self._convert is None or found is None else self._convert(found)
        if self._is_avro:
            writer = self._writers.get(version, self._reader)
            try:
                # Where a union has several records, each comes with its name; alone it comes as it is.
                found = read_avro(
                    payload, writer, self._reader, return_record_name=True, return_record_name_override=True
                )
            except (EOFError, IndexError) as error:
                raise BadSchema(f"a payload of {len(payload)} bytes is no record of the Avro schema") from error
            return found if self._convert is None else self._convert(found)
        if self._protobuf is not None:
            return self._protobuf.read(bytes(payload))
        if self._primitive is None:
            return bytes(payload)
        value = self._primitive.decode(bytes(payload))
        return micros_of(value) if isinstance(value, time) and not isinstance(value, datetime) else value


def _parsed(info: SchemaInfo) -> Any:
    try:
        return fastavro.parse_schema(json.loads(info.definition))
    except Exception as error:
        raise BadSchema(f"the definition of {info.name or 'a schema'} is no Avro: {error}") from error


class ValueColumns:
    """The columns of a topic's schema, for many messages at once."""

    def __init__(self, info: SchemaInfo, names: Sequence[str]) -> None:
        sides = sides_of(info)
        self._names = tuple(names)
        self._is_inline = info.properties.get("kv.encoding.type", "INLINE") == KeyValueEncoding.INLINE.value
        self._key = ValueReader(sides[0]) if sides is not None else None
        self._value = ValueReader(sides[1] if sides is not None else info)
        self._is_record = sides is None and isinstance(self._value.type, spark.StructType)
        # The primitive type that payloads are of, where they are.
        self.primitive = info.type if sides is None and self._value.is_primitive else None

    def knows(self, version: bytes) -> bool:
        return self._value.knows(version) and (self._key is None or self._key.knows(version))

    def learn(self, version: bytes, info: SchemaInfo | None) -> None:
        if self._key is None:
            self._value.learn(version, info)
            return
        sides = (None if info is None else sides_of(info)) or (None, None)
        self._key.learn(version, sides[0])
        self._value.learn(version, sides[1])

    @property
    def names(self) -> tuple[str, ...]:
        return self._names

    @property
    def is_plain(self) -> bool:
        return self._key is None and self._value.is_plain

    @property
    def wants_key(self) -> bool:
        """Whether a message's key is a part of its value."""
        return self._key is not None and not self._is_inline

    def read(self, payload: Buffer, key: bytes | None, version: bytes) -> list[Any]:
        """One row, in the order of `names`. Raises BadSchema."""
        try:
            return self._row(payload, key, version)
        except MagnetarError:
            raise
        except Exception as error:
            raise BadSchema(f"a payload of {len(payload)} bytes does not fit the schema: {error}") from error

    def _row(self, payload: Buffer, key: bytes | None, version: bytes) -> list[Any]:
        if self._key is not None:
            if self._is_inline:
                key, payload = split(bytes(payload))
            pair = {
                "key": self._key.read(key, version) if key is not None else None,
                "value": self._value.read(payload, version),
            }
            return [pair[name] for name in self._names]
        value = self._value.read(payload, version)
        if not self._is_record:
            return [value for _ in self._names]
        return [value.get(name) for name in self._names]


def sides_of(info: SchemaInfo) -> tuple[SchemaInfo, SchemaInfo] | None:
    """Key and value of a key-value schema; None for any other."""
    if info.type is not SchemaType.KEY_VALUE:
        return None
    definitions = split(info.definition) if info.definition else (b"", b"")
    found = []
    for side, definition in zip(("key", "value"), definitions, strict=True):
        kind = SchemaType[info.properties.get(f"{side}.schema.type", "BYTES")]
        found.append(SchemaInfo(kind, info.properties.get(f"{side}.schema.name", ""), definition))
    return found[0], found[1]
