# SPDX-License-Identifier: Apache-2.0
"""GET_SCHEMA, GET_OR_CREATE_SCHEMA, and the schemas that producers and consumers bring.

A producer's schema becomes a version of the topic's, if policies and compatibility allow; a consumer's must be able to
read what is there, and becomes the first version on a topic that nobody uses yet. Never looks at a message.
Carries.
"""

from magnetar.broker.policies.effective import TopicPolicies
from magnetar.broker.schemas.schema import (
    Schema,
    SchemaType,
    schema_from_wire,
    schema_to_wire,
    version_bytes,
    version_number,
)
from magnetar.broker.served import ServedTopic
from magnetar.broker.session.session import Session
from magnetar.broker.topic import Topic
from magnetar.errors import IncompatibleSchema, TopicNotFound
from magnetar.names import TopicName
from magnetar.wire.proto import pulsar_api_pb2 as pb


async def producer_version(session: Session, topic: TopicName, request: pb.CommandProducer) -> bytes:
    """The version of the schema that a producer brings; empty when it brings none."""
    policies = await session.broker.policies.effective(topic)
    schema = _brought(request.schema) if request.HasField("schema") else None
    if schema is not None:
        return await _put(session, topic, schema, policies)
    if policies.schema_validation_enforced and await session.broker.schemas.has_schema(topic):
        raise IncompatibleSchema(
            "Producers cannot connect or send message without a schema to topics with a schema"
            " when SchemaValidationEnforced is enabled"
        )
    return b""


async def check_consumer_schema(session: Session, topic: ServedTopic, request: pb.CommandSubscribe) -> None:
    """Let a consumer's schema in, or refuse the consumer with IncompatibleSchema."""
    schema = _brought(request.schema) if request.HasField("schema") else None
    if schema is None:
        return
    name = topic.name
    policies = await session.broker.policies.effective(name)
    if not await session.broker.schemas.has_schema(name) and _is_idle(topic):
        await _put(session, name, schema, policies)
    else:
        await session.broker.schemas.check_consumer(name, schema, policies.schema_compatibility)


async def find_schema(session: Session, request: pb.CommandGetSchema) -> None:
    topic = TopicName.parse(request.topic)
    schemas = session.broker.schemas
    if request.HasField("schema_version"):
        found = await schemas.version(topic, version_number(request.schema_version))
    else:
        found = await schemas.latest(topic)
    if found is None or found.is_deleted:
        raise TopicNotFound("Topic not found or no-schema")
    answer = pb.CommandGetSchemaResponse(
        request_id=request.request_id,
        schema=schema_to_wire(found.schema, topic.schema_name),
        schema_version=version_bytes(found.version),
    )
    session.answer(pb.BaseCommand.GET_SCHEMA_RESPONSE, answer)


async def adopt_schema(session: Session, request: pb.CommandGetOrCreateSchema) -> None:
    topic = await session.broker.topics.open(TopicName.parse(request.topic), create=False)
    policies = await session.broker.policies.effective(topic.name)
    schema = _brought(request.schema)
    version = b"" if schema is None else await _put(session, topic.name, schema, policies)
    answer = pb.CommandGetOrCreateSchemaResponse(request_id=request.request_id, schema_version=version)
    session.answer(pb.BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE, answer)


def _brought(wire: pb.Schema) -> Schema | None:
    """None for plain bytes, and for consumers that take whatever the topic has."""
    schema = schema_from_wire(wire)
    return None if schema.type in (SchemaType.NONE, SchemaType.AUTO_CONSUME) else schema


async def _put(session: Session, topic: TopicName, schema: Schema, policies: TopicPolicies) -> bytes:
    version = await session.broker.schemas.put(
        topic, schema, policies.schema_compatibility, may_add=policies.schema_auto_update
    )
    return version_bytes(version)


def _is_idle(topic: ServedTopic) -> bool:
    """Whether nobody has used the topic yet: nothing stored, no producer, no consumer."""
    if topic.producers or any(subscription.consumers for subscription in topic.subscriptions.values()):
        return False
    return not isinstance(topic, Topic) or topic.managed_ledger.size_bytes == 0
