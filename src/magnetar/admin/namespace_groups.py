# SPDX-License-Identifier: Apache-2.0
"""What spans namespaces or topics: those of one anti-affinity group, permissions on many topics, a bundle's topics.

Carries.
"""

from typing import Any, Final

from fastapi import APIRouter, Request, Response

from magnetar.admin.answers import AdminRefused, answered, done
from magnetar.admin.bodies import Body, an_object
from magnetar.admin.bundle_routes import require_bundle
from magnetar.admin.parts import AdminParts, Namespace, Parts
from magnetar.admin.permissions import checked_actions, grant_topic
from magnetar.admin.policy_changes import NotedChange
from magnetar.admin.slices import sliced
from magnetar.broker.topic_list import ListMode
from magnetar.errors import BadName, TopicNotFound
from magnetar.names import POLICIES_ROOT, NamespaceName, TopicName, decode_name

router = APIRouter(tags=["namespaces"])

TOPICS_MAX: Final = 1_000


@router.get("/admin/v2/namespaces/{cluster}/antiAffinity/{group}")
async def anti_affinity_namespaces(parts: Parts, cluster: str, group: str, request: Request) -> Response:
    tenant = request.query_params.get("property") or request.query_params.get("tenant", "")
    if not tenant:
        raise AdminRefused(400, "Tenant should not be null")
    found = []
    async for name in sliced(await parts.records.children(f"{POLICIES_ROOT}/{tenant}"), 20):
        namespace = NamespaceName(tenant, name)
        local = await parts.records.read(namespace.local_policies_path) or {}
        if local.get("namespaceAntiAffinityGroup") == decode_name(group):
            found.append(str(namespace))
    return answered(found)


@router.post("/admin/v2/namespaces/grantPermissionsOnTopics")
async def grant_many(parts: Parts, body: Body) -> Response:
    """One after the other; the first that cannot be granted ends it."""
    for topic, options in _options(body):
        await _change(parts, topic, str(options.get("role", "")), checked_actions(options.get("actions")))
    return done()


@router.post("/admin/v2/namespaces/revokePermissionsOnTopics")
async def revoke_many(parts: Parts, body: Body) -> Response:
    for topic, options in _options(body):
        await _change(parts, topic, str(options.get("role", "")), None)
    return done()


@router.get("/admin/v2/non-persistent/{tenant}/{namespace}/{bundle:bundle}")
async def topics_of_bundle(parts: Parts, namespace: Namespace, bundle: str) -> Response:
    """The non-persistent topics of a bundle that this broker serves."""
    whole = await require_bundle(parts, namespace, bundle)
    names = [topic.name for topic in parts.broker.topics.in_memory()]
    return answered([str(name) for name in names if name.namespace == namespace and whole.has(name)])


@router.delete("/admin/v2/namespaces/{tenant}/{namespace}/{bundle:bundle}")
async def delete_bundle(parts: Parts, namespace: Namespace, bundle: str) -> Response:
    """As Pulsar's: a bundle without topics; the range stays, nobody owns it any more."""
    whole = await require_bundle(parts, namespace, bundle)
    if any(whole.has(name) for name in await parts.broker.topics.names(namespace, ListMode.ALL)):
        raise AdminRefused(409, "Cannot delete non empty bundle")
    return done()


def _options(body: Any) -> list[tuple[TopicName, dict[str, Any]]]:
    if not isinstance(body, list) or not 0 < len(body) <= TOPICS_MAX:
        raise AdminRefused(400, f"From 1 to {TOPICS_MAX} options are needed, each with topic, role and actions")
    asked = [an_object(each, "permission option") for each in body]
    try:
        return [(TopicName.parse(str(each.get("topic", ""))), each) for each in asked]
    except BadName as error:
        raise AdminRefused(412, str(error)) from error


async def _change(parts: AdminParts, topic: TopicName, role: str, actions: list[str] | None) -> None:
    if not role:
        raise AdminRefused(400, "An option names no role")
    noted = NotedChange(lambda record: grant_topic(record, topic, role, actions))
    try:
        await parts.policies.change_namespace(topic.namespace, noted)
    except TopicNotFound as error:
        raise AdminRefused(404, "Namespace does not exist") from error
    noted.tell(topic.namespace.policies_path)
