# SPDX-License-Identifier: Apache-2.0
"""`/topics`: messages published with one HTTP request, each with its own result.

Published by the owner of the topic, or of some of its partitions; another broker sends the request on to it. The topic
must exist. Texts are encoded with a schema that the topic has, or that becomes one of its versions.
Carries.
"""

import asyncio
import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import httpx
from fastapi import APIRouter, Request, Response

from magnetar.admin.answers import AdminRefused, answered
from magnetar.admin.at_owner import base_url
from magnetar.admin.bodies import Body
from magnetar.admin.parts import AdminParts, Parts, Topic
from magnetar.admin.publish_body import NO_VERSION, AskedMessage, PublishBody, publish_body
from magnetar.admin.request_producer import RequestProducer
from magnetar.admin.text_values import encoder_of, key_and_value_encoders
from magnetar.broker.ownership.owner import Located
from magnetar.broker.schemas.schema import Schema, SchemaType, version_bytes
from magnetar.errors import MagnetarError, TopicNotFound
from magnetar.ids import Position
from magnetar.names import TopicName
from magnetar.wire import message as wire_message
from magnetar.wire.proto import pulsar_api_pb2 as pb

router = APIRouter(tags=["topics"])

PUBLISHED: Final = "/topics/{domain:domain}/{tenant}/{namespace}/{topic}"
_RETRYABLE: Final = 1
_FINAL: Final = 2


class _Place(NamedTuple):
    """A topic that messages go to; -1 where it is no partition."""

    partition: int
    topic: TopicName


@router.post(PUBLISHED)
async def publish(request: Request, parts: Parts, topic: Topic, body: Body) -> Response:
    asked = publish_body(body)
    count = 0 if topic.is_partition else await parts.broker.topics.directory.partitions(topic, create=False)
    places = [_Place(index, topic.partition(index)) for index in range(count)] or [_Place(topic.partition_index, topic)]
    return await _publish(request, parts, topic, places, asked)


@router.post(PUBLISHED + "/partitions/{partition}")
async def publish_to_partition(request: Request, parts: Parts, topic: Topic, partition: int, body: Body) -> Response:
    if topic.is_partition:
        raise AdminRefused(400, "Topic name can't contain '-partition-' suffix.")
    asked = publish_body(body)
    count = await parts.broker.topics.directory.partitions(topic, create=False)
    if not 0 <= partition < count:
        raise TopicNotFound(f"Topic {topic} has {count} partitions, and none of number {partition}")
    return await _publish(request, parts, topic, [_Place(partition, topic.partition(partition))], asked)


async def _publish(
    request: Request, parts: AdminParts, topic: TopicName, places: Sequence[_Place], asked: PublishBody
) -> Response:
    own, elsewhere = await _own_places(request, parts, places)
    if not own:
        return _sent_on(request, elsewhere[0])
    for place in own:
        # Before any schema is added: a topic is not made by publishing to it.
        await parts.broker.topics.open(place.topic, create=False)
    version, schema = await _schema(parts, topic, asked)
    encode = _encoder(schema, version, asked.producer_name, parts)
    shares: dict[_Place, list[int]] = {}
    for index in range(len(asked.messages)):
        shares.setdefault(own[index % len(own)], []).append(index)
    results: dict[int, Mapping[str, Any]] = {}
    for place, indexes in shares.items():
        results.update(await _publish_to(parts, place, asked.messages, indexes, encode))
    shown = [{**results[index], "schemaVersion": 0} for index in range(len(asked.messages))]
    return answered({"messagePublishResults": shown, "schemaVersion": max(version, 0)})


async def _publish_to(
    parts: AdminParts,
    place: _Place,
    messages: Sequence[AskedMessage],
    indexes: Sequence[int],
    encode: Callable[[AskedMessage], bytes],
) -> Mapping[int, Mapping[str, Any]]:
    """What became of these messages. An error of one is the result of that one."""
    results: dict[int, Mapping[str, Any]] = {}
    promises: dict[int, asyncio.Future[Position]] = {}
    try:
        topic = await parts.broker.topics.open(place.topic, create=False)
        async with RequestProducer(parts.broker, topic) as producer:
            for index in indexes:
                try:
                    body = encode(messages[index])
                except MagnetarError as error:
                    results[index] = _failed(place, error)
                else:
                    promises[index] = await producer.publish(index, body)
            await asyncio.gather(*promises.values(), return_exceptions=True)
    except MagnetarError as error:
        return {index: _failed(place, error) for index in indexes}
    for index, promise in promises.items():
        results[index] = _result(place, promise)
    return results


def _result(place: _Place, promise: "asyncio.Future[Position]") -> Mapping[str, Any]:
    try:
        position = promise.result()
    except MagnetarError as error:
        return _failed(place, error)
    return {"messageId": f"{position.ledger_id}:{position.entry_id}:{place.partition}", "errorCode": 0}


def _failed(place: _Place, error: MagnetarError) -> Mapping[str, Any]:
    code = _RETRYABLE if error.retryable else _FINAL
    return {"errorMsg": str(error), "messageId": str(place.partition), "errorCode": code}


# --- where ----------------------------------------------------------------------------------------


async def _own_places(
    request: Request, parts: AdminParts, places: Sequence[_Place]
) -> tuple[list[_Place], list[Located]]:
    """Those that this broker serves, and where the others are. One that nobody has is assigned now."""
    if parts.broker.cluster is None:
        return list(places), []
    authoritative = request.query_params.get("authoritative", "").lower() == "true"
    own, elsewhere = [], []
    for place in places:
        located = await parts.broker.ownership.locate(place.topic, authoritative=authoritative)
        if parts.peers.is_own(located.owner):
            own.append(place)
        else:
            elsewhere.append(located)
    return own, elsewhere


def _sent_on(request: Request, located: Located) -> Response:
    query = {**request.query_params, "authoritative": "true" if located.is_authoritative else "false"}
    url = httpx.URL(base_url(request, located.owner) + request.scope["path"], params=query)
    return Response(status_code=307, headers={"location": str(url)})


# --- what -----------------------------------------------------------------------------------------


async def _schema(parts: AdminParts, topic: TopicName, asked: PublishBody) -> tuple[int, Schema]:
    """The version and the schema of what is published; NO_VERSION for plain bytes."""
    if asked.schema_version != NO_VERSION:
        found = await parts.broker.schemas.version(topic, asked.schema_version)
        if found is None or found.is_deleted:
            raise AdminRefused(404, f"Topic {topic} has no schema of version {asked.schema_version}")
        return found.version, found.schema
    if asked.schema.type is SchemaType.NONE:
        return NO_VERSION, asked.schema
    policies = await parts.broker.policies.effective(topic)
    version = await parts.broker.schemas.put(
        topic,
        asked.schema,
        policies.schema_compatibility,
        may_add=policies.schema_auto_update,
        user="Rest Producer",
    )
    return version, asked.schema


def _encoder(schema: Schema, version: int, producer_name: str, parts: AdminParts) -> Callable[[AskedMessage], bytes]:
    """What makes a message's stored form of what was asked for."""
    key_encode: Callable[[str], bytes] | None = None
    if schema.type is SchemaType.KEY_VALUE:
        key_encode, value_encode = key_and_value_encoders(schema)
    else:
        value_encode = encoder_of(schema)

    def encoded(asked: AskedMessage) -> bytes:
        payload = value_encode(asked.payload)
        now_ms = parts.clock.now_ms()
        metadata = pb.MessageMetadata(
            producer_name=producer_name,
            # Never below zero, whatever the request says: brokers number with the sign left out.
            sequence_id=max(asked.sequence_id, 0),
            publish_time=now_ms,
            uncompressed_size=len(payload),
            replicate_to=asked.replicate_to,
        )
        for name, value in asked.properties.items():
            metadata.properties.add(key=name, value=value)
        _fill_key(metadata, asked.key, key_encode)
        if asked.event_time_ms > 0:
            metadata.event_time = asked.event_time_ms
        if asked.deliver_at_ms > 0:
            metadata.deliver_at_time = asked.deliver_at_ms
        elif asked.deliver_after_ms > 0:
            metadata.deliver_at_time = now_ms + asked.deliver_after_ms
        if version != NO_VERSION:
            metadata.schema_version = version_bytes(version)
        return b"".join(wire_message.join(metadata.SerializeToString(), payload))

    return encoded


def _fill_key(metadata: pb.MessageMetadata, key: str | None, encode: Callable[[str], bytes] | None) -> None:
    if key is None:
        return
    if encode is None:
        metadata.partition_key = key
    else:
        metadata.partition_key = base64.b64encode(encode(key)).decode()
        metadata.partition_key_b64_encoded = True
