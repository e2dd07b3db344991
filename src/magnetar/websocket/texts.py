# SPDX-License-Identifier: Apache-2.0
"""The JSON texts of the WebSocket API, in and out, with the fields and the order that Pulsar gives them.

Fields that nobody knows are passed over, as Pulsar does. What cannot be read says which of Pulsar's errors it is.
Decides.
"""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from enum import IntEnum, unique
from typing import Any, Final, NamedTuple, NoReturn

from magnetar.client.message import EncryptionContext, Message
from magnetar.errors import BadMessageId, Refused
from magnetar.ids import MessageId
from magnetar.websocket import dates
from magnetar.wire.proto import pulsar_api_pb2 as pb

_SEPARATORS: Final = (",", ":")
_INT64: Final = range(-(2**63), 2**63)
PROPERTIES_MAX: Final = 10_000


@unique
class Code(IntEnum):
    """Pulsar's WebSocketError."""

    NOT_JSON = 3
    BAD_PAYLOAD = 7
    UNKNOWN = 8


class BadText(Refused):
    """A client's text cannot be used; Pulsar's code, and the context that the answer carries."""

    def __init__(self, code: Code, reason: str, context: str | None = None) -> None:
        super().__init__(reason)
        self.code = code
        self.context = context


class ProducerText(NamedTuple):
    """A message that a client wants to have sent."""

    payload: bytes
    context: str | None = None
    properties: Mapping[str, str] | None = None
    key: str | None = None
    replication_clusters: Sequence[str] | None = None
    event_time_ms: int | None = None
    deliver_at_ms: int | None = None
    deliver_after_ms: int | None = None
    # Of a payload that the client has encrypted itself.
    encryption_param: bytes = b""
    compression: "pb.CompressionType.ValueType | None" = None
    uncompressed_bytes: int | None = None


@unique
class Order(IntEnum):
    """What a consumer's or reader's client wants."""

    ACKNOWLEDGE = 0
    REFUSE = 1
    PERMIT = 2
    UNSUBSCRIBE = 3
    ASK_END = 4


class ConsumerText(NamedTuple):
    order: Order
    # As it was given out, and as the client gave it back.
    message_id: str = ""
    permits: int = 0


_ORDERS: Final = {
    "negativeAcknowledge": Order.REFUSE,
    "permit": Order.PERMIT,
    "unsubscribe": Order.UNSUBSCRIBE,
    "isEndOfTopic": Order.ASK_END,
}


# --- in -------------------------------------------------------------------------------------------


def read_producer_text(text: str) -> ProducerText:
    found = _object(text)
    context = _text(found, "context")
    try:
        return _producer_text(found, context)
    except BadText as error:
        error.context = context
        raise


def _producer_text(found: Mapping[str, Any], context: str | None) -> ProducerText:
    payload = _text(found, "payload")
    if payload is None:
        raise BadText(Code.BAD_PAYLOAD, "The message has no payload: give it as base64")
    compression, size = _compression(found), _whole(found, "uncompressedMessageSize")
    if (compression is None) != (size is None) and compression != pb.NONE:
        raise BadText(Code.BAD_PAYLOAD, "Give both compressionType and uncompressedMessageSize, or none of them")
    return ProducerText(
        _base64(payload, "message-payload"),
        context,
        _properties(found),
        _text(found, "key"),
        _clusters(found),
        _event_time(found),
        _positive(found, "deliverAt"),
        _positive(found, "deliverAfterMs"),
        _base64(_text(found, "encryptionParam") or "", "encryptionParam"),
        compression,
        size,
    )


def read_consumer_text(text: str) -> ConsumerText:
    found = _object(text)
    order = _ORDERS.get(_text(found, "type") or "", Order.ACKNOWLEDGE)
    if order is Order.PERMIT:
        permits = _whole(found, "permitMessages")
        if permits is None:
            raise BadText(Code.NOT_JSON, "permit needs permitMessages, a number")
        return ConsumerText(order, permits=permits)
    if order in (Order.UNSUBSCRIBE, Order.ASK_END):
        return ConsumerText(order)
    return ConsumerText(order, _text(found, "messageId") or "")


def read_message_id(text: str) -> MessageId:
    try:
        return MessageId.decode(_base64(text, "messageId"))
    except BadMessageId as error:
        raise BadText(Code.NOT_JSON, f"The messageId is not one that was given out: {error}") from error


def _object(text: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
        if "\\u" in text:
            # Halves of characters can be escaped in JSON, and are in no UTF-8.
            json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise BadText(Code.NOT_JSON, f"The text is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadText(Code.NOT_JSON, "The text should be a JSON object")
    return found


def _text(found: Mapping[str, Any], name: str) -> str | None:
    """Numbers and booleans are taken as their text, as Pulsar's reader does."""
    value = found.get(name)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (dict, list)):
        _wrong(name, "a string")
    return json.dumps(value)


def _whole(found: Mapping[str, Any], name: str) -> int | None:
    value = found.get(name)
    if isinstance(value, str) and value.lstrip("-").isdecimal() and len(value) <= 20:
        value = int(value)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value not in _INT64:
        _wrong(name, "a whole number")
    return value


def _positive(found: Mapping[str, Any], name: str) -> int | None:
    value = _whole(found, name)
    return value if value is not None and value > 0 else None


def _properties(found: Mapping[str, Any]) -> Mapping[str, str] | None:
    given = found.get("properties")
    if given is None:
        return None
    if not isinstance(given, dict):
        _wrong("properties", "an object of strings")
    if len(given) > PROPERTIES_MAX:
        raise BadText(Code.BAD_PAYLOAD, f"{len(given)} properties are more than the {PROPERTIES_MAX} that are taken")
    if None in given.values():
        raise BadText(Code.BAD_PAYLOAD, "A property should have a value other than null")
    return {name: _text(given, name) or "" for name in given}


def _clusters(found: Mapping[str, Any]) -> Sequence[str] | None:
    value = found.get("replicationClusters")
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        _wrong("replicationClusters", "a list of strings")
    return [str(each) for each in value]


def _event_time(found: Mapping[str, Any]) -> int | None:
    value = _text(found, "eventTime")
    if value is None:
        return None
    try:
        moment = dates.read(value)
    except ValueError as error:
        raise BadText(Code.BAD_PAYLOAD, f"eventTime cannot be read: {error}") from error
    if moment < 0:
        raise BadText(Code.BAD_PAYLOAD, "eventTime should not be before 1970")
    return moment


def _compression(found: Mapping[str, Any]) -> "pb.CompressionType.ValueType | None":
    value = _text(found, "compressionType")
    if value is None:
        return None
    names = pb.CompressionType.keys()
    if value not in names:
        _wrong("compressionType", "one of " + ", ".join(names))
    return pb.CompressionType.Value(value)


def _base64(text: str, what: str) -> bytes:
    """As Java's decoder reads it: what fills up the last four characters may be missing."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadText(Code.BAD_PAYLOAD, f"Invalid Base64 {what} error={error}") from error


def _wrong(name: str, wanted: str) -> NoReturn:
    raise BadText(Code.NOT_JSON, f"{name} should be {wanted}")


# --- out ------------------------------------------------------------------------------------------


def receipt_text(message_id: MessageId, context: str | None) -> str:
    return _compact({"result": "ok", "messageId": encoded(message_id), "context": context, **_NO_ERROR})


def failure_text(code: Code, reason: str, context: str | None) -> str:
    return _compact({"result": f"send-error:{code.value}", "errorMsg": reason, "context": context, **_NO_ERROR})


def message_text(message: Message[Any], message_id: str) -> str:
    event_ms = message.event_timestamp()
    context = message.encryption_context()
    return _compact(
        {
            "messageId": message_id,
            "payload": base64.b64encode(message.data()).decode(),
            "properties": message.properties(),
            "publishTime": dates.written(message.publish_timestamp()),
            "redeliveryCount": message.redelivery_count(),
            "eventTime": dates.written(event_ms) if event_ms else None,
            "encryptionContext": None if context is None else _encryption(context, message),
            "key": message.partition_key() if message.has_key() else None,
        }
    )


def end_text(has_ended: bool) -> str:
    return _compact({"endOfTopic": has_ended})


def encoded(message_id: MessageId) -> str:
    return base64.b64encode(message_id.encode()).decode()


# Pulsar writes these two always, whatever became of the message.
_NO_ERROR: Final = {"errorCode": 0, "schemaVersion": 0}


def _compact(value: Mapping[str, Any]) -> str:
    return json.dumps({name: each for name, each in value.items() if each is not None}, separators=_SEPARATORS)


def _encryption(context: EncryptionContext, message: Message[Any]) -> Mapping[str, Any]:
    size = message.entry.metadata.num_messages_in_batch if context.is_batch else None
    return {
        "keys": {
            name: {"keyValue": base64.b64encode(value).decode(), "metadata": metadata}
            for name, (value, metadata) in context.keys.items()
        },
        "param": base64.b64encode(context.parameter).decode(),
        "algorithm": context.algorithm,
        "compressionType": pb.CompressionType.Name(pb.CompressionType.ValueType(context.compression)),
        "uncompressedMessageSize": context.uncompressed_size,
        "batchSize": size,
    }
