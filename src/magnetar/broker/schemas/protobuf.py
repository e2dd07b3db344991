# SPDX-License-Identifier: Apache-2.0
"""Protobuf's rules: whether bytes written with one version of a message can be read with another.

A PROTOBUF_NATIVE definition is JSON with a serialised set of file descriptors and the name of the root message. The
root may not change its name, as upstream rules; beyond that a field number keeps its wire form, and what is required
stays. Never reads data.
Decides.
"""

import base64
import binascii
import json
from typing import Final, NamedTuple

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from magnetar.errors import IncompatibleSchema

_F: Final = FieldDescriptorProto
# Types of one group have one form on the wire and can be read as each other.
_GROUPS: Final = (
    (_F.TYPE_INT32, _F.TYPE_INT64, _F.TYPE_UINT32, _F.TYPE_UINT64, _F.TYPE_BOOL, _F.TYPE_ENUM),
    (_F.TYPE_SINT32, _F.TYPE_SINT64),
    (_F.TYPE_FIXED32, _F.TYPE_SFIXED32),
    (_F.TYPE_FIXED64, _F.TYPE_SFIXED64),
    (_F.TYPE_STRING, _F.TYPE_BYTES),
)
_GROUP_OF: Final = {kind: index for index, group in enumerate(_GROUPS) for kind in group}


class NativeSchema(NamedTuple):
    root: str
    messages: dict[str, DescriptorProto]


def parse(definition: bytes) -> NativeSchema:
    """IncompatibleSchema when the bytes are no native protobuf schema."""
    try:
        described = json.loads(definition)
        root = described["rootMessageTypeName"]
        files = FileDescriptorSet.FromString(base64.b64decode(described["fileDescriptorSet"]))
    except (ValueError, KeyError, TypeError, RecursionError, DecodeError, binascii.Error) as error:
        raise IncompatibleSchema(f"Invalid schema definition data for PROTOBUF_NATIVE schema: {error}") from error
    messages: dict[str, DescriptorProto] = {}
    for file in files.file:
        prefix = f"{file.package}." if file.package else ""
        for message in file.message_type:
            _collect(prefix, message, messages)
    if root not in messages:
        raise IncompatibleSchema(f"Invalid schema definition data for PROTOBUF_NATIVE schema: no message {root}")
    return NativeSchema(root, messages)


def why_unreadable(reader: NativeSchema, writer: NativeSchema) -> str:
    """Why bytes of the writer cannot be read by the reader; empty when they can."""
    if reader.root != writer.root:
        return f"Protobuf root message isn't allow change: {writer.root} became {reader.root}"
    return _message(reader, writer, reader.root, writer.root, {})


def _collect(prefix: str, message: DescriptorProto, into: dict[str, DescriptorProto]) -> None:
    into[f"{prefix}{message.name}"] = message
    for nested in message.nested_type:
        _collect(f"{prefix}{message.name}.", nested, into)


def _message(
    reader: NativeSchema, writer: NativeSchema, reader_name: str, writer_name: str, seen: dict[tuple[str, str], None]
) -> str:
    if (reader_name, writer_name) in seen or reader_name not in reader.messages or writer_name not in writer.messages:
        return ""
    seen[reader_name, writer_name] = None
    written = {field.number: field for field in writer.messages[writer_name].field}
    for field in reader.messages[reader_name].field:
        source = written.get(field.number)
        at = f"{reader_name}.{field.name}"
        if source is None:
            if field.label == _F.LABEL_REQUIRED:
                return f"{at}: the field is required and the writer does not know it"
            continue
        if field.label == _F.LABEL_REQUIRED and source.label != _F.LABEL_REQUIRED:
            return f"{at}: the field is required, and the writer may leave it out"
        if _GROUP_OF.get(field.type, -field.type) != _GROUP_OF.get(source.type, -source.type):
            return f"{at}: type {_F.Type.Name(source.type)} became {_F.Type.Name(field.type)}"
        if field.type == _F.TYPE_MESSAGE:
            names = field.type_name.lstrip("."), source.type_name.lstrip(".")
            if why := _message(reader, writer, *names, seen):
                return why
    return ""
