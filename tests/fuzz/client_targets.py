# SPDX-License-Identifier: Apache-2.0
"""What clients, WebSocket doors and proxies read: payloads by their schemas, texts, ids, first frames, addresses.

Decides.
"""

import base64
import json
from collections.abc import Callable
from typing import Any, Final

import httpx

from magnetar.client import http_lookup, schema, schema_auto, service_url
from magnetar.client.authentication import parse_parameters
from magnetar.client.message_id import MessageId as ClientMessageId
from magnetar.client.schema_avro import AvroSchema
from magnetar.client.schema_info import SchemaInfo, SchemaType
from magnetar.client.schema_json import JsonSchema
from magnetar.client.schema_key_value import KeyValue, KeyValueSchema
from magnetar.client.schema_protobuf import ProtobufNativeSchema
from magnetar.ids import MessageId
from magnetar.proxy import brokers, first_frame, targets
from magnetar.websocket import sealed, texts
from magnetar.wire import frame
from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.fuzz.target import PIECE_BYTES_MAX, Target


def text_of(data: bytes) -> str:
    return data.decode(errors="replace")


# --- payloads -------------------------------------------------------------------------------------

_RECORD: Final[dict[str, Any]] = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "a", "type": ["null", "int"], "default": None},
        {"name": "b", "type": "string"},
        {"name": "c", "type": {"type": "array", "items": "long"}},
        {"name": "d", "type": {"type": "map", "values": "double"}},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y"]}},
        {"name": "f", "type": {"type": "fixed", "name": "F", "size": 3}},
        {"name": "g", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "h", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}
_TREE: Final[dict[str, Any]] = {
    "type": "record",
    "name": "T",
    "fields": [{"name": "below", "type": {"type": "array", "items": "T"}}, {"name": "next", "type": ["null", "T"]}],
}
_NULLS: Final[dict[str, Any]] = {
    "type": "record",
    "name": "N",
    "fields": [{"name": "a", "type": {"type": "array", "items": "null"}}],
}
# A value that is known by its bytes: two items of a chain.
_NULL_INT_TEXT: Final = b"\x02\x08\x06abc\x04\x02\x04\x00\x02\x02k" + bytes(8) + b"\x00\x02xyz\x02\x07\x10"

_AVRO: Final[AvroSchema[Any]] = AvroSchema(definition=_RECORD)
_AVRO_TREE: Final[AvroSchema[Any]] = AvroSchema(definition=_TREE)
_AVRO_NULLS: Final[AvroSchema[Any]] = AvroSchema(definition=_NULLS)
_JSON: Final[JsonSchema[Any]] = JsonSchema(definition=_RECORD)
_PAIR: Final[KeyValueSchema[Any, Any]] = KeyValueSchema(schema.STRING, _AVRO_TREE)

_PACKED: Final[tuple[schema.Schema[Any], ...]] = (
    schema.STRING,
    schema.BOOLEAN,
    schema.INT8,
    schema.INT16,
    schema.INT32,
    schema.INT64,
    schema.FLOAT,
    schema.DOUBLE,
    schema.TIMESTAMP,
    schema.DATE,
    schema.TIME,
    schema.INSTANT,
    schema.LOCAL_DATE,
    schema.LOCAL_TIME,
    schema.LOCAL_DATE_TIME,
)


_SIZES: Final = (8, 1, 1, 2, 4, 8, 4, 8, 8, 8, 8, 12, 8, 8, 16)


def _primitive(data: bytes) -> object:
    """The first byte says which."""
    return _PACKED[data[0] % len(_PACKED)].decode(data[1:]) if data else None


def _described(data: bytes) -> object:
    """A schema as a broker describes it: the first byte says of which type."""
    kinds = tuple(SchemaType)
    kind = kinds[data[0] % len(kinds)] if data else SchemaType.AVRO
    properties = {"key.schema.type": "AVRO", "value.schema.type": text_of(data[-4:]) if data[-1:] != b"}" else "JSON"}
    return schema_auto.schema_of(SchemaInfo(kind, "", data[1:], properties))


def _kind(kind: SchemaType) -> bytes:
    return bytes([list(SchemaType).index(kind)])


_TREE_TEXT: Final = json.dumps(_TREE).encode()
_JOINED: Final = KeyValueSchema(_AVRO_TREE, _JSON).info.definition

_PAYLOADS: Final = (
    Target("Avro payload", _AVRO.decode, (_NULL_INT_TEXT,)),
    Target("Avro payload that nests", _AVRO_TREE.decode, (b"\x02\x00\x00\x00\x00", b"\x00\x02" * 20 + b"\x00\x00")),
    Target("Avro payload of nulls", _AVRO_NULLS.decode, (b"\x06\x00",)),
    Target("JSON payload", _JSON.decode, (b'{"a":1,"b":"x","c":[1,2],"d":{"k":1.5}}', b"null", b"[1e400, NaN]")),
    Target(
        "protobuf payload",
        ProtobufNativeSchema(pb.MessageMetadata).decode,
        (pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1).SerializeToString(),),
    ),
    Target("pair payload", _PAIR.decode, (_PAIR.encode(KeyValue("k", {"below": [], "next": None})),)),
    Target(
        "primitive payload",
        _primitive,
        tuple(bytes([number]) + bytes(size) for number, size in enumerate(_SIZES)),
    ),
    Target(
        "schema of a broker",
        _described,
        (
            _kind(SchemaType.AVRO) + _TREE_TEXT,
            _kind(SchemaType.JSON) + _TREE_TEXT,
            _kind(SchemaType.KEY_VALUE) + _JOINED,
        ),
    ),
)

# --- doors ----------------------------------------------------------------------------------------


def _first_frame(data: bytes) -> None:
    """However the stream is cut, the first frame is the same."""
    whole, parts = first_frame.FirstFrame(PIECE_BYTES_MAX), first_frame.FirstFrame(PIECE_BYTES_MAX)
    middle = len(data) // 3
    found = whole.feed(data)
    early, late = parts.feed(data[:middle]), parts.feed(data[middle:])
    assert (late if early is None else early) == found
    if found is not None:
        assert data[8 : 8 + len(found)] == found
        assert whole.rest() == data[4 + int.from_bytes(data[:4], "big") :]


def _answered(status: int) -> Callable[[bytes], object]:
    request = httpx.Request("GET", "http://h/lookup")

    def checked(data: bytes) -> object:
        return http_lookup._checked(httpx.Response(status, content=data, request=request))

    return checked


_KEYS: Final = base64.b64encode(
    json.dumps({"k": {"keyValue": base64.b64encode(b"v").decode(), "metadata": {"a": "b"}}}).encode()
)
_PRODUCED: Final = json.dumps(
    {
        "payload": "aGVsbG8=",
        "context": "1",
        "properties": {"a": "b"},
        "key": "k",
        "replicationClusters": ["c"],
        "eventTime": "2026-01-02T03:04:05Z",
        "deliverAfterMs": 5,
        "compressionType": "LZ4",
        "uncompressedMessageSize": 5,
        "encryptionParam": "aGk=",
    }
).encode()
_CONNECT: Final = pb.BaseCommand(
    type=pb.BaseCommand.CONNECT, connect=pb.CommandConnect(client_version="x", protocol_version=21)
).SerializeToString()

_DOORS: Final = (
    Target(
        "text of a producer",
        lambda data: texts.read_producer_text(text_of(data)),
        (_PRODUCED, b'{"payload":"","deliverAt":7}'),
    ),
    Target(
        "text of a consumer",
        lambda data: texts.read_consumer_text(text_of(data)),
        (b'{"messageId":"CAUQBg=="}', b'{"type":"permit","permitMessages":"5"}', b'{"type":"isEndOfTopic"}'),
    ),
    Target("message id of a text", lambda data: texts.read_message_id(text_of(data)), (b"CAUQBhgA",)),
    Target("keys of a query", lambda data: sealed.keys_of({"encryptionKeys": text_of(data)}), (_KEYS,)),
    Target("first frame", _first_frame, (bytes(frame.join(_CONNECT)) + b"rest",)),
    Target("target of a proxy", lambda data: targets.parse_target(text_of(data)), (b"pulsar://a:6650", b"[::1]:6650")),
    Target(
        "broker's record for a proxy",
        lambda data: brokers._announced("a:1", data),
        (b'{"pulsarServiceUrl":"pulsar://a:1","webServiceUrl":"http://a:2","pulsarServiceUrlTls":""}',),
    ),
    Target(
        "service URL",
        lambda data: service_url.parse_address(text_of(data)),
        (b"pulsar+ssl://a:1,[::1]:2", b"pulsar://b"),
    ),
    Target("client's message id", ClientMessageId.deserialize, (MessageId(5, 6, 1, 2, 3).encode(),)),
    Target("message id's text", lambda data: MessageId.parse(text_of(data)), (b"5:6:-1:7",)),
    Target("answer to a look-up", _answered(200), (b'{"brokerUrl":"pulsar://a:1","nativeUrl":"x"}',)),
    Target("refusal of a look-up", _answered(404), (b'{"reason":"no such topic"}', b"plain")),
    Target("parameters of a plug-in", lambda data: parse_parameters(text_of(data)), (b'{"a":"b"}', b"a:b,c:d")),
)

CLIENT: Final = (*_PAYLOADS, *_DOORS)
