# SPDX-License-Identifier: Apache-2.0
"""`schemas`: the versions of a topic's schema, in Pulsar's JSON.

A pair of key and value is shown as one JSON object of the two definitions, as Pulsar shows it.
Carries.
"""

import json
from typing import Any, Final, TypeVar

from fastapi import APIRouter, Response

from magnetar.admin.answers import AdminRefused, answered
from magnetar.admin.bodies import Body, an_object, text_map
from magnetar.admin.names_asked import decoded_topic
from magnetar.admin.parts import AdminParts, Parts
from magnetar.broker.schemas.schema import Schema, SchemaType, StoredSchema, key_and_value
from magnetar.errors import IncompatibleSchema
from magnetar.names import TopicDomain, TopicName

router = APIRouter(tags=["schemas"])

Found = TypeVar("Found")

SCHEMAS: Final = "/admin/v2/schemas/{tenant}/{namespace}/{topic}"


@router.get(SCHEMAS + "/schema")
async def latest(parts: Parts, tenant: str, namespace: str, topic: str) -> Response:
    stored = await parts.broker.schemas.latest(_topic(tenant, namespace, topic))
    return answered(_shown(_found(stored)))


@router.get(SCHEMAS + "/schema/{version}")
async def version(parts: Parts, tenant: str, namespace: str, topic: str, version: int) -> Response:
    stored = await parts.broker.schemas.version(_topic(tenant, namespace, topic), version)
    return answered(_shown(_found(stored)))


@router.get(SCHEMAS + "/schemas")
async def versions(parts: Parts, tenant: str, namespace: str, topic: str) -> Response:
    stored = await parts.broker.schemas.versions(_topic(tenant, namespace, topic))
    if not stored:
        _found(None)
    return answered({"getSchemaResponses": [_shown(each) for each in stored]})


@router.get(SCHEMAS + "/metadata")
async def metadata(parts: Parts, tenant: str, namespace: str, topic: str) -> Response:
    """Where every version lies; the newest is `info`."""
    places = await parts.broker.schemas.places(_topic(tenant, namespace, topic))
    if not places:
        _found(None)
    index = [{"version": place.version, "ledgerId": place.ledger_id, "entryId": place.entry_id} for place in places]
    return answered({"info": index[-1], "index": index})


@router.post(SCHEMAS + "/schema")
async def put(parts: Parts, tenant: str, namespace: str, topic: str, body: Body) -> Response:
    name, schema = _topic(tenant, namespace, topic), _asked(body)
    policies = await parts.broker.policies.effective(name)
    added = await parts.broker.schemas.put(name, schema, policies.schema_compatibility)
    return _versioned(added, status=202)


@router.delete(SCHEMAS + "/schema")
async def delete(parts: Parts, tenant: str, namespace: str, topic: str, force: bool = False) -> Response:
    deleted = await parts.broker.schemas.delete(_topic(tenant, namespace, topic), force=force)
    return _versioned(_found(deleted))


@router.post(SCHEMAS + "/version")
async def version_of(parts: Parts, tenant: str, namespace: str, topic: str, body: Body) -> Response:
    stored = await parts.broker.schemas.find(_topic(tenant, namespace, topic), _asked(body))
    return answered({"version": _found(stored).version})


@router.post(SCHEMAS + "/compatibility")
async def compatibility(parts: Parts, tenant: str, namespace: str, topic: str, body: Body) -> Response:
    name, schema = _topic(tenant, namespace, topic), _asked(body)
    strategy = (await parts.broker.policies.effective(name)).schema_compatibility
    return answered(
        {"compatibility": await _is_compatible(parts, name, schema), "schemaCompatibilityStrategy": strategy.value}
    )


# --- inside -------------------------------------------------------------------------------------


async def _is_compatible(parts: AdminParts, topic: TopicName, schema: Schema) -> bool:
    strategy = (await parts.broker.policies.effective(topic)).schema_compatibility
    try:
        await parts.broker.schemas.check(topic, schema, strategy)
    except IncompatibleSchema:
        return False
    return True


def _topic(tenant: str, namespace: str, topic: str) -> TopicName:
    return decoded_topic(TopicDomain.PERSISTENT, tenant, namespace, topic)


def _found(value: Found | None) -> Found:
    if value is None:
        raise AdminRefused(404, "Schema not found")
    return value


def _asked(body: Any) -> Schema:
    given = an_object(body, "A schema")
    kind = given.get("type", "")
    if kind not in SchemaType.__members__:
        raise AdminRefused(422, f"The type {kind!r} of a schema is none of {', '.join(SchemaType.__members__)}")
    definition = given.get("schema", "")
    if not isinstance(definition, str):
        raise AdminRefused(422, "The member schema should be a string")
    return Schema(SchemaType[kind], definition.encode(), text_map(given.get("properties"), "properties"))


def _shown(stored: StoredSchema) -> dict[str, Any]:
    schema = stored.schema
    return {
        "version": stored.version,
        "type": schema.type.name,
        "timestamp": stored.stored_ms,
        "data": _definition(schema),
        "properties": dict(schema.properties),
    }


def _definition(schema: Schema) -> str:
    if schema.type is not SchemaType.KEY_VALUE:
        return schema.definition.decode(errors="replace")
    key, value = key_and_value(schema)
    return json.dumps({"key": _definition(key), "value": _definition(value)})


def _versioned(version: int, status: int = 200) -> Response:
    answer = answered({"version": {"version": version}})
    answer.status_code = status
    return answer
