# SPDX-License-Identifier: Apache-2.0
"""Partitioned topics: made, grown, counted, listed and deleted.

Carries.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from magnetar.admin.answers import AdminRefused, answered, done
from magnetar.admin.bodies import Body, text_map
from magnetar.admin.parts import AdminParts, Namespace, Parts, Topic
from magnetar.admin.topic_lists import TopicListAnswer
from magnetar.broker.topic_list import is_system_topic
from magnetar.errors import BadSetting, TopicExists, TopicNotFound
from magnetar.names import TopicDomain, TopicName

TOPICS = "/admin/v2/{domain:domain}/{tenant}/{namespace}"
TOPIC = TOPICS + "/{topic}"

router = APIRouter(tags=["partitions"])


@router.get(TOPICS + "/partitioned")
async def list_partitioned(
    parts: Parts, namespace: Namespace, domain: str, includeSystemTopic: bool = False
) -> Response:
    await require_namespace(parts, namespace.policies_path)
    chosen = None if includeSystemTopic else lambda name: not is_system_topic(name)
    partitioned = parts.broker.namespaces.partitioned
    return TopicListAnswer(parts, namespace, lambda: partitioned(namespace, TopicDomain(domain)), chosen)


@router.put(TOPIC + "/partitions")
async def create(parts: Parts, topic: Topic, body: Body) -> Response:
    properties: dict[str, str] = {}
    if isinstance(body, dict):
        properties = text_map(body.get("properties"), "properties")
        body = body.get("partitions")
    count = _count(body)
    if count <= 0:
        raise AdminRefused(406, "Number of partitions should be more than 0")
    await require_namespace(parts, topic.namespace.policies_path, "Namespace not found")
    try:
        await parts.broker.topics.directory.create_partitioned(topic, count, properties=properties)
    except TopicExists as error:
        raise AdminRefused(409, "This topic already exists") from error
    except BadSetting as error:
        raise AdminRefused(406, str(error)) from error
    return done()


@router.post(TOPIC + "/partitions")
async def grow(parts: Parts, topic: Topic, body: Body) -> Response:
    count = _count(body)
    present = await parts.broker.namespaces.partitions(topic)
    if not present:
        raise AdminRefused(409, f"Topic {topic} is not the partitioned topic.")
    if count < present:
        raise AdminRefused(422, f"Desired partitions {count} can't be less than the current partitions {present}.")
    if count > present:
        try:
            await parts.broker.topics.directory.grow_partitioned(topic, count)
        except BadSetting as error:
            raise AdminRefused(422, str(error)) from error
    return done()


@router.get(TOPIC + "/partitions")
async def count(
    parts: Parts, topic: Topic, create: Annotated[bool, Query(alias="checkAllowAutoCreation")] = False
) -> Response:
    await require_namespace(parts, topic.namespace.policies_path, "Namespace not found")
    try:
        partitions = await parts.broker.topics.partitions(topic, create=create)
    except TopicNotFound as error:
        raise AdminRefused(404, f"Topic {topic} not found") from error
    return answered(await metadata_of(parts, topic, partitions))


@router.post(TOPIC + "/createMissedPartitions")
async def create_missed(parts: Parts, topic: Topic) -> Response:
    await parts.broker.topics.create_missing_partitions(topic)
    return done()


@router.delete(TOPIC + "/partitions")
async def delete(parts: Parts, topic: Topic, force: bool = False) -> Response:
    try:
        if topic.is_persistent:
            await parts.broker.topics.delete_partitioned(topic, force=force)
        else:
            await _forget_in_memory(parts, topic, force)
    except TopicNotFound as error:
        raise AdminRefused(404, f"Topic {topic} not found.") from error
    return done()


async def _forget_in_memory(parts: AdminParts, topic: TopicName, force: bool) -> None:
    """Nothing of a non-persistent topic is stored but the number of its partitions."""
    count = await parts.broker.topics.directory.require_partitioned(topic)
    partitions = dict.fromkeys(topic.partition(index) for index in range(count))
    for each in parts.broker.topics.in_memory():
        if each.name in partitions:
            await parts.broker.topics.delete(each.name, force=force)
    await parts.broker.namespaces.delete_partitioned(topic)


async def metadata_of(parts: AdminParts, topic: TopicName, partitions: int) -> dict[str, Any]:
    """The number of partitions, and the properties of a topic that has some."""
    answer: dict[str, Any] = {"partitions": partitions, "deleted": False}
    if partitions:
        record = await parts.records.read(topic.partitioned_metadata_path) or {}
        if record.get("properties"):
            answer["properties"] = record["properties"]
    return answer


async def require_namespace(parts: AdminParts, path: str, reason: str = "Namespace does not exist") -> dict[str, Any]:
    """The record of a namespace; 404 when there is none."""
    policies = await parts.records.read(path)
    if policies is None:
        raise AdminRefused(404, reason)
    return policies


def _count(body: Any) -> int:
    """The number that clients send as a number or as a string."""
    if isinstance(body, str) and body.lstrip("-").isdigit() and len(body) < 12:
        return int(body)
    if isinstance(body, bool) or not isinstance(body, int):
        raise AdminRefused(400, "The body should be the number of partitions")
    return body
