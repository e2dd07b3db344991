# SPDX-License-Identifier: Apache-2.0
"""`persistent` and `non-persistent`: topics made, listed, deleted, unloaded, terminated, truncated; their properties.

Carries.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from magnetar.admin.answers import AdminRefused, answered, done
from magnetar.admin.bodies import Body, text_map
from magnetar.admin.bundle_routes import require_bundle
from magnetar.admin.bundles import is_within
from magnetar.admin.partitions import TOPIC, TOPICS, require_namespace
from magnetar.admin.parts import AdminParts, Namespace, Parts, Topic
from magnetar.admin.topic_lists import TopicListAnswer
from magnetar.admin.topic_loading import parts_of, stored_topic
from magnetar.broker.topic import EPOCH_PROPERTY
from magnetar.broker.topic_list import ListMode
from magnetar.errors import TopicExists, TopicNotFound
from magnetar.ids import Position
from magnetar.names import TopicDomain, TopicName

router = APIRouter(tags=["topics"])


@router.get(TOPICS)
async def list_topics(parts: Parts, namespace: Namespace, domain: str, bundle: str = "") -> Response:
    await require_namespace(parts, namespace.policies_path)
    mode = ListMode.PERSISTENT if domain == TopicDomain.PERSISTENT else ListMode.NON_PERSISTENT
    if bundle:
        await require_bundle(parts, namespace, bundle)
    chosen = (lambda name: is_within(name, bundle)) if bundle else None
    return TopicListAnswer(parts, namespace, lambda: parts.broker.topics.names(namespace, mode), chosen)


@router.put(TOPIC)
async def create(parts: Parts, topic: Topic, body: Body) -> Response:
    properties = text_map(body, "properties")
    await require_namespace(parts, topic.namespace.policies_path, "Namespace not found")
    if topic.is_partition and not await parts.broker.namespaces.partitions(topic.base):
        raise AdminRefused(
            412,
            f'Can\'t create topic {topic.local_name} with "-partition-" followed by numeric value '
            f"if there isn't a partitioned topic {topic.base.local_name} created.",
        )
    try:
        await parts.broker.topics.create(topic, properties)
        if not topic.is_persistent:
            await parts.broker.topics.open(topic, create=True)
    except TopicExists as error:
        raise AdminRefused(409, "This topic already exists") from error
    return done()


@router.delete(TOPIC)
async def delete(parts: Parts, topic: Topic, force: bool = False) -> Response:
    if not topic.is_partition and await parts.broker.namespaces.partitions(topic):
        text = "is a partitioned topic, instead of calling delete topic, please call delete-partitioned-topic."
        raise AdminRefused(409, f"{topic} {text}")
    try:
        await parts.broker.topics.delete(topic, force=force)
    except TopicNotFound as error:
        raise AdminRefused(404, f"Topic {topic} not found") from error
    await parts.policies.delete_topic(topic)
    return done()


@router.put(TOPIC + "/unload")
async def unload(parts: Parts, topic: Topic) -> Response:
    count = 0 if topic.is_partition else await parts.broker.namespaces.partitions(topic)
    if not count and parts.broker.topics.find(topic) is None:
        await _require(parts, topic)
    for name in [topic.partition(index) for index in range(count)] or [topic]:
        await parts.broker.topics.unload(name)
    return done()


@router.post(TOPIC + "/terminate")
async def terminate(parts: Parts, topic: Topic) -> Response:
    if not topic.is_partition and await parts.broker.namespaces.partitions(topic):
        raise AdminRefused(405, "Termination of a partitioned topic is not allowed")
    return answered(message_id(await (await stored_topic(parts, topic)).terminate()))


@router.post(TOPIC + "/terminate/partitions")
async def terminate_partitions(parts: Parts, topic: Topic) -> Response:
    await parts.broker.topics.directory.require_partitioned(topic)
    ends: dict[str, Any] = {}
    async for partition in parts_of(parts, topic):
        ends[str(partition.name.partition_index)] = message_id(await partition.terminate())
    return answered(ends)


@router.delete(TOPIC + "/truncate")
async def truncate(parts: Parts, topic: Topic) -> Response:
    async for each in parts_of(parts, topic):
        await each.truncate()
    return done()


@router.post(TOPIC + "/trim")
async def trim(parts: Parts, topic: Topic) -> Response:
    async for each in parts_of(parts, topic):
        await each.managed_ledger.trim()
    return done()


# --- properties ---------------------------------------------------------------------------------


@router.get(TOPIC + "/properties")
async def properties(parts: Parts, topic: Topic) -> Response:
    record = await parts.records.read(topic.partitioned_metadata_path)
    if record is not None:
        return answered(record.get("properties") or {})
    kept = (await stored_topic(parts, topic)).managed_ledger.properties
    return answered({name: value for name, value in kept.items() if name != EPOCH_PROPERTY})


@router.put(TOPIC + "/properties")
async def add_properties(parts: Parts, topic: Topic, body: Body) -> Response:
    await _change_properties(parts, topic, dict(text_map(body, "properties")))
    return done()


@router.delete(TOPIC + "/properties")
async def remove_property(parts: Parts, topic: Topic, key: Annotated[str, Query()] = "") -> Response:
    if not key:
        raise AdminRefused(412, "The query parameter key names the property")
    await _change_properties(parts, topic, {key: None})
    return done()


# --- inside -------------------------------------------------------------------------------------


def message_id(position: Position, *, partition: int = -1, batch_index: int = -1) -> dict[str, int]:
    """As Pulsar's tools read a message id."""
    return {
        "ledgerId": position.ledger_id,
        "entryId": position.entry_id,
        "partitionIndex": partition,
        "batchIndex": batch_index,
        "batchSize": 0,
    }


async def _require(parts: AdminParts, topic: TopicName) -> None:
    if not await parts.broker.topics.directory.exists(topic):
        raise AdminRefused(404, f"Topic {topic} not found")


async def _change_properties(parts: AdminParts, topic: TopicName, changes: dict[str, str | None]) -> None:
    if EPOCH_PROPERTY in changes:
        raise AdminRefused(412, f"The property {EPOCH_PROPERTY} is the broker's own")
    if await parts.records.read(topic.partitioned_metadata_path) is None:
        await (await stored_topic(parts, topic)).managed_ledger.update_properties(changes)
        return

    def changed(record: dict[str, Any]) -> dict[str, Any]:
        merged = {**(record.get("properties") or {}), **changes}
        return {**record, "properties": {name: value for name, value in merged.items() if value is not None}}

    await parts.records.update(topic.partitioned_metadata_path, changed)
