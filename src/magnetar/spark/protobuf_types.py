# SPDX-License-Identifier: Apache-2.0
"""Protobuf messages as columns: the Spark type of a message, and the values of one that was read.

The descriptors are those that the topic's schema carries. A field that knows whether it was set is null where it was
not; any other has protobuf's default. An enumeration is text, a Timestamp is a moment, unsigned numbers take the next
larger type. A message that contains itself cannot be a column and is refused.
Decides.
"""

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql import types as spark

from magnetar.errors import BadSchema

Value: TypeAlias = Callable[[Any], Any]

_SIMPLE: Final[dict[int, spark.DataType]] = {
    FieldDescriptor.CPPTYPE_BOOL: spark.BooleanType(),
    FieldDescriptor.CPPTYPE_INT32: spark.IntegerType(),
    FieldDescriptor.CPPTYPE_UINT32: spark.LongType(),
    FieldDescriptor.CPPTYPE_INT64: spark.LongType(),
    FieldDescriptor.CPPTYPE_UINT64: spark.DecimalType(20, 0),
    FieldDescriptor.CPPTYPE_FLOAT: spark.FloatType(),
    FieldDescriptor.CPPTYPE_DOUBLE: spark.DoubleType(),
    FieldDescriptor.CPPTYPE_STRING: spark.StringType(),
    FieldDescriptor.CPPTYPE_ENUM: spark.StringType(),
}
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ProtobufReader:
    """Reads payloads of one schema; `definition` is what a broker keeps of it. Raises BadSchema."""

    def __init__(self, definition: bytes) -> None:
        root = _descriptor(definition)
        self.type = _struct(root, ())
        self._class = GetMessageClass(root)
        self._convert = _record(root)

    def read(self, payload: bytes) -> dict[str, Any]:
        try:
            found: Message = self._class.FromString(payload)
        except DecodeError as error:
            raise BadSchema(f"a payload of {len(payload)} bytes is no {self._class.DESCRIPTOR.name}") from error
        values: dict[str, Any] = self._convert(found)
        return values


def _descriptor(definition: bytes) -> Descriptor:
    """The message that a schema describes, in a pool of its own."""
    try:
        written = json.loads(definition)
        files = FileDescriptorSet.FromString(base64.b64decode(written["fileDescriptorSet"]))
        pool = DescriptorPool()
        for file in files.file:
            pool.Add(file)
        found: Descriptor = pool.FindMessageTypeByName(written["rootMessageTypeName"])
        return found
    except (ValueError, KeyError, TypeError, RecursionError, DecodeError) as error:
        raise BadSchema(f"the descriptors of a protobuf schema cannot be read: {error}") from error


# --- types ---------------------------------------------------------------------------------------------


def _struct(message: Descriptor, inside: tuple[str, ...]) -> spark.StructType:
    if message.full_name in inside:
        raise BadSchema(f"the message {message.full_name} contains itself, which no column can")
    within = (*inside, message.full_name)
    return spark.StructType([spark.StructField(one.name, _type(one, within), True) for one in message.fields])


def _type(field: FieldDescriptor, inside: tuple[str, ...]) -> spark.DataType:
    entry = _map_entry(field)
    if entry is not None:
        key, value = (_single_type(entry.fields_by_name[name], inside) for name in ("key", "value"))
        return spark.MapType(key, value, True)
    single = _single_type(field, inside)
    return spark.ArrayType(single, True) if field.is_repeated else single


def _single_type(field: FieldDescriptor, inside: tuple[str, ...]) -> spark.DataType:
    if field.message_type is not None:
        if field.message_type.full_name == _TIMESTAMP:
            return spark.TimestampType()
        return _struct(field.message_type, inside)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return spark.BinaryType()
    return _SIMPLE[field.cpp_type]


def _map_entry(field: FieldDescriptor) -> Descriptor | None:
    """The key and value of a map; None for any other field."""
    message = field.message_type
    return message if message is not None and message.GetOptions().map_entry else None


# --- values --------------------------------------------------------------------------------------------


def _record(message: Descriptor) -> Value:
    getters = [(one.name, _value(one), one.has_presence) for one in message.fields]

    def convert(found: Any) -> dict[str, Any]:
        return {
            name: None if has_presence and not found.HasField(name) else value(getattr(found, name))
            for name, value, has_presence in getters
        }

    return convert


def _value(field: FieldDescriptor) -> Value:
    entry = _map_entry(field)
    if entry is not None:
        each = _single_value(entry.fields_by_name["value"])
        # In an order of its own, and the same each time.
        return lambda found: [(key, each(found[key])) for key in sorted(found)]
    single = _single_value(field)
    return (lambda found: [single(one) for one in found]) if field.is_repeated else single


def _single_value(field: FieldDescriptor) -> Value:
    if field.message_type is not None:
        return _moment if field.message_type.full_name == _TIMESTAMP else _record(field.message_type)
    if field.enum_type is not None:
        names = {number: one.name for number, one in field.enum_type.values_by_number.items()}
        return lambda found: names.get(found, str(found))
    return Decimal if field.cpp_type == FieldDescriptor.CPPTYPE_UINT64 else _same


def _same(found: Any) -> Any:
    return found


def _moment(found: Any) -> datetime:
    return _EPOCH + timedelta(seconds=found.seconds, microseconds=found.nanos // 1000)
