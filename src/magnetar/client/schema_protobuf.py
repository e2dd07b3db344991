# SPDX-License-Identifier: Apache-2.0
"""Generated protobuf messages; the broker is told the descriptors of the message and of all that it uses.

Decides.
"""

import base64
import json
from typing import Any, TypeVar

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError, EncodeError, Message

from magnetar.client.schema import Schema
from magnetar.client.schema_info import SchemaInfo, SchemaType
from magnetar.errors import BadSchema

M = TypeVar("M", bound=Message)


class ProtobufNativeSchema(Schema[M]):
    """`ProtobufNativeSchema(order_pb2.Order)`."""

    def __init__(self, message_class: type[M]) -> None:
        self._class = message_class
        descriptor = message_class.DESCRIPTOR
        files = FileDescriptorSet()
        for file in _with_dependencies(descriptor.file, {}).values():
            files.file.append(file)
        definition = {
            "fileDescriptorSet": base64.b64encode(files.SerializeToString()).decode(),
            "rootMessageTypeName": descriptor.full_name,
            "rootFileDescriptorName": descriptor.file.name,
        }
        text = json.dumps(definition, separators=(",", ":")).encode()
        self.info = SchemaInfo(SchemaType.PROTOBUF_NATIVE, descriptor.name, text)

    def encode(self, value: M) -> bytes:
        if not isinstance(value, self._class):
            raise BadSchema(f"{self.info.name} takes {self._class.__name__}, not {type(value).__name__}")
        try:
            return value.SerializeToString()
        except EncodeError as error:
            raise BadSchema(f"a value does not fit {self.info.name}: {error}") from error

    def decode(self, data: bytes) -> M:
        try:
            return self._class.FromString(data)
        except DecodeError as error:
            raise BadSchema(f"a payload of {len(data)} bytes is no {self.info.name}") from error


def _with_dependencies(file: Any, found: dict[str, FileDescriptorProto]) -> dict[str, FileDescriptorProto]:
    """The file and all that it imports, imported ones first."""
    if file.name not in found:
        for dependency in file.dependencies:
            _with_dependencies(dependency, found)
        proto = FileDescriptorProto()
        file.CopyToProto(proto)
        found[file.name] = proto
    return found
