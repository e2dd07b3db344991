# SPDX-License-Identifier: Apache-2.0
"""The body of a request that publishes: messages, and the schema that their texts are to be encoded with.

Decides.
"""

import base64
import binascii
import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from magnetar.admin.answers import AdminRefused
from magnetar.admin.bodies import an_object, text_map, texts
from magnetar.broker.schemas.schema import Schema, SchemaType
from magnetar.client.outgoing import LOCAL_CLUSTER_ONLY

MESSAGES_MAX: Final = 10_000
NO_VERSION: Final = -1
DEFAULT_PRODUCER: Final = "RestProducer"

_TEXT: Final = Schema(SchemaType.STRING, b"", {"__charset": "UTF-8"})
_SIZE: Final = struct.Struct(">i")
_INT64: Final = range(-(2**63), 2**63)


class AskedMessage(NamedTuple):
    """One message as its text was given."""

    payload: str
    key: str | None
    properties: Mapping[str, str]
    sequence_id: int
    event_time_ms: int
    deliver_at_ms: int
    deliver_after_ms: int
    replicate_to: Sequence[str]


class PublishBody(NamedTuple):
    messages: Sequence[AskedMessage]
    producer_name: str
    # The version of a schema that the topic has; NO_VERSION: `schema` is to become one.
    schema_version: int
    schema: Schema


def publish_body(body: Any) -> PublishBody:
    """AdminRefused 400 says what is wrong."""
    given = an_object(body, "The body")
    try:
        json.dumps(given, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise AdminRefused(400, f"The body has halves of characters: {error}") from error
    messages = given.get("messages")
    if not isinstance(messages, list):
        raise AdminRefused(400, "messages should be a list")
    if len(messages) > MESSAGES_MAX:
        raise AdminRefused(400, f"{len(messages)} messages are more than the {MESSAGES_MAX} of one request")
    return PublishBody(
        [_message(each) for each in messages],
        _text(given, "producerName") or DEFAULT_PRODUCER,
        _whole(given, "schemaVersion", NO_VERSION),
        _schema(given),
    )


def _message(value: Any) -> AskedMessage:
    given = an_object(value, "A message")
    payload = _text(given, "payload")
    if payload is None:
        raise AdminRefused(400, "A message should have a payload")
    clusters = given.get("replicationClusters")
    replicate_to = [] if clusters is None else texts(clusters, "replicationClusters")
    return AskedMessage(
        payload,
        _text(given, "key"),
        text_map(given.get("properties"), "properties"),
        _whole(given, "sequenceId"),
        _whole(given, "eventTime"),
        _whole(given, "deliverAt"),
        _whole(given, "deliverAfterMs"),
        (LOCAL_CLUSTER_ONLY,) if given.get("disableReplication") is True else replicate_to,
    )


def _schema(given: Mapping[str, Any]) -> Schema:
    """A text without a schema is a string; with a key's schema the two are a pair, the key apart from the value."""
    value = _described(given, "valueSchema") or ("", _TEXT)
    key = _described(given, "keySchema")
    if key is None:
        return value[1]
    properties: dict[str, str] = {"kv.encoding.type": "SEPARATED"}
    for side, (name, schema) in (("key", key), ("value", value)):
        properties[f"{side}.schema.name"] = name
        properties[f"{side}.schema.type"] = "BYTES" if schema.type is SchemaType.NONE else schema.type.name
        properties[f"{side}.schema.properties"] = json.dumps(dict(schema.properties), separators=(",", ":"))
    return Schema(SchemaType.KEY_VALUE, _sized(key[1].definition) + _sized(value[1].definition), properties)


def _described(given: Mapping[str, Any], name: str) -> tuple[str, Schema] | None:
    """The name and the schema in a SchemaInfo: JSON as a text, its definition in base64."""
    text = _text(given, name)
    if not text:
        return None
    try:
        described = an_object(json.loads(text), name)
        definition = base64.b64decode(_text(described, "schema") or "", validate=True)
    except (ValueError, RecursionError, binascii.Error) as error:
        raise AdminRefused(400, f"{name} should be the JSON of a schema, its definition in base64: {error}") from error
    kind = described.get("type")
    kind = "NONE" if kind == "BYTES" else kind
    if not isinstance(kind, str) or kind not in SchemaType.__members__:
        raise AdminRefused(400, f"The type of {name} should be one of {', '.join(SchemaType.__members__)}")
    properties = text_map(described.get("properties"), f"The properties of {name}")
    return _text(described, "name") or "", Schema(SchemaType[kind], definition, properties)


def _text(given: Mapping[str, Any], name: str) -> str | None:
    """Numbers and booleans are taken as their text, as Pulsar's reader does."""
    value = given.get(name)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (dict, list)):
        raise AdminRefused(400, f"{name} should be a string")
    return json.dumps(value)


def _whole(given: Mapping[str, Any], name: str, default: int = 0) -> int:
    value = given.get(name)
    if isinstance(value, str):
        digits = value.removeprefix("-")
        value = int(value) if digits.isascii() and digits.isdecimal() and len(digits) <= 19 else value or None
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value not in _INT64:
        raise AdminRefused(400, f"{name} should be a whole number")
    return value


def _sized(definition: bytes) -> bytes:
    return _SIZE.pack(len(definition)) + definition
