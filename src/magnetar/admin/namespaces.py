# SPDX-License-Identifier: Apache-2.0
"""`namespaces`: made, shown, listed, deleted; their topics and bundles; unloading and clearing all of them at once.

Carries.
"""

from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response

from magnetar.admin.answers import AdminRefused, answered, done
from magnetar.admin.at_owner import clear_elsewhere, is_elsewhere, unsubscribe_elsewhere
from magnetar.admin.bodies import Body, an_object, texts
from magnetar.admin.bundle_routes import ranges_of, require_bundle
from magnetar.admin.bundles import boundaries, bundle_data, is_within, parsed_bundles
from magnetar.admin.forced_deletion import empty_namespace, remove_namespace
from magnetar.admin.names_asked import decoded_subscription, decoded_tenant
from magnetar.admin.partitions import require_namespace
from magnetar.admin.parts import AdminParts, Namespace, Parts
from magnetar.admin.skipping import skip_all
from magnetar.admin.slices import sliced
from magnetar.admin.topic_lists import TopicListAnswer
from magnetar.broker.policies.fields import check_namespace
from magnetar.broker.topic_list import ListMode
from magnetar.errors import BadSetting
from magnetar.names import NamespaceName, TopicName, tenant_path

router = APIRouter(prefix="/admin/v2/namespaces", tags=["namespaces"])

NAMESPACE: Final = "/{tenant}/{namespace}"
# What Apache Pulsar shows of a namespace that says nothing else.
_SHOWN: Final[dict[str, Any]] = {
    "auth_policies": {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}},
    "replication_clusters": [],
    "allowed_clusters": [],
    "bundles": {},
    "backlog_quota_map": {},
    "clusterDispatchRate": {},
    "topicDispatchRate": {},
    "subscriptionDispatchRate": {},
    "replicatorDispatchRate": {},
    "clusterSubscribeRate": {},
    "publishMaxMessageRate": {},
    "latency_stats_sample_rate": {},
    "deleted": False,
    "encryption_required": False,
    "subscription_auth_mode": "None",
    "offload_threshold": -1,
    "offload_threshold_in_seconds": -1,
    "schema_compatibility_strategy": "UNDEFINED",
    "is_allow_auto_update_schema": True,
    "schema_validation_enforced": False,
    "subscription_types_enabled": [],
    "properties": {},
    "migrated": False,
}


@router.get("/{tenant}")
async def list_namespaces(parts: Parts, tenant: str) -> Response:
    name = decoded_tenant(tenant)
    if await parts.records.read(tenant_path(name)) is None:
        raise AdminRefused(404, "Tenant not found")
    return answered([f"{name}/{each}" for each in await parts.records.children(tenant_path(name))])


@router.get(NAMESPACE)
async def read(parts: Parts, namespace: Namespace) -> Response:
    policies = await require_namespace(parts, namespace.policies_path)
    return answered({**_SHOWN, **policies, "bundles": bundle_data(await ranges_of(parts, namespace))})


@router.put(NAMESPACE)
async def create(parts: Parts, namespace: Namespace, body: Body) -> Response:
    policies = {} if body is None else an_object(body, "policies")
    tenant = await parts.records.read(tenant_path(namespace.tenant))
    if tenant is None:
        raise AdminRefused(404, "Tenant does not exist")
    limit = parts.broker.settings.namespaces_per_tenant_max
    if 0 < limit <= len(await parts.records.children(tenant_path(namespace.tenant))):
        raise AdminRefused(412, f"Exceed the maximum number of namespace in tenant :{namespace.tenant}")
    clusters = texts(policies.get("replication_clusters") or [parts.cluster], "replication_clusters")
    check_clusters(clusters, tenant, namespace.tenant)
    bounds = parsed_bundles(policies.get("bundles")) or boundaries(parts.settings.namespace_bundles)
    record = {**policies, "replication_clusters": clusters, "bundles": bundle_data(bounds)}
    try:
        check_namespace(record)
    except BadSetting as error:
        raise AdminRefused(400, str(error)) from error
    if not await parts.records.create(namespace.policies_path, record):
        raise AdminRefused(409, "Namespace already exists")
    return done()


@router.delete(NAMESPACE)
async def delete(request: Request, parts: Parts, namespace: Namespace, force: bool = False) -> Response:
    if await parts.records.read(namespace.policies_path) is None:
        raise AdminRefused(404, f"Namespace {namespace} does not exist.")
    if force:
        if not parts.settings.forced_namespace_deletion:
            raise AdminRefused(405, "Broker doesn't allow forced deletion of namespaces")
        await empty_namespace(request, parts, namespace)
    elif await parts.broker.topics.names(namespace, ListMode.ALL):
        raise AdminRefused(409, "Cannot delete non empty namespace")
    await remove_namespace(parts, namespace)
    return done()


@router.get(NAMESPACE + "/topics")
async def topics(parts: Parts, namespace: Namespace, mode: str = "PERSISTENT") -> Response:
    if mode not in ListMode.__members__:
        raise AdminRefused(400, f"mode {mode!r} should be PERSISTENT, NON_PERSISTENT or ALL")
    await require_namespace(parts, namespace.policies_path)
    return TopicListAnswer(parts, namespace, lambda: parts.broker.topics.names(namespace, ListMode[mode]))


@router.get(NAMESPACE + "/bundles")
async def bundles(parts: Parts, namespace: Namespace) -> Response:
    return answered(bundle_data(await ranges_of(parts, namespace)))


# --- all topics at once -------------------------------------------------------------------------


@router.put(NAMESPACE + "/unload")
async def unload(parts: Parts, namespace: Namespace) -> Response:
    await require_namespace(parts, namespace.policies_path)
    await _unload(parts, namespace, "")
    return done()


@router.put(NAMESPACE + "/{bundle}/unload")
async def unload_bundle(
    parts: Parts, namespace: Namespace, bundle: str, destination: Annotated[str, Query(alias="destinationBroker")] = ""
) -> Response:
    await _require_bundle(parts, namespace, bundle)
    if parts.broker.cluster is None and destination and destination != parts.broker_id:
        raise AdminRefused(412, f"There is no broker {destination}; this one is {parts.broker_id}")
    await _unload(parts, namespace, bundle, destination)
    return done()


@router.post(NAMESPACE + "/clearBacklog")
@router.post(NAMESPACE + "/clearBacklog/{subscription}")
async def clear_backlog(request: Request, parts: Parts, namespace: Namespace, subscription: str = "") -> Response:
    await require_namespace(parts, namespace.policies_path)
    await _clear(request, parts, namespace, "", subscription)
    return done()


@router.post(NAMESPACE + "/{bundle}/clearBacklog")
@router.post(NAMESPACE + "/{bundle}/clearBacklog/{subscription}")
async def clear_backlog_of_bundle(
    request: Request, parts: Parts, namespace: Namespace, bundle: str, subscription: str = ""
) -> Response:
    await _require_bundle(parts, namespace, bundle)
    await _clear(request, parts, namespace, bundle, subscription)
    return done()


@router.post(NAMESPACE + "/unsubscribe/{subscription}")
async def unsubscribe(request: Request, parts: Parts, namespace: Namespace, subscription: str) -> Response:
    await require_namespace(parts, namespace.policies_path)
    await _unsubscribe(request, parts, namespace, "", subscription)
    return done()


@router.post(NAMESPACE + "/{bundle}/unsubscribe/{subscription}")
async def unsubscribe_bundle(
    request: Request, parts: Parts, namespace: Namespace, bundle: str, subscription: str
) -> Response:
    await _require_bundle(parts, namespace, bundle)
    await _unsubscribe(request, parts, namespace, bundle, subscription)
    return done()


# --- inside -------------------------------------------------------------------------------------


def check_clusters(clusters: list[str], tenant: dict[str, Any], tenant_name: str) -> None:
    """403 for a cluster on which the tenant may not be."""
    for cluster in clusters:
        if cluster not in tenant.get("allowedClusters", []):
            raise AdminRefused(
                403, f"Cluster [{cluster}] is not in the list of allowed clusters list for tenant [{tenant_name}]"
            )


async def _require_bundle(parts: AdminParts, namespace: NamespaceName, bundle: str) -> None:
    await require_bundle(parts, namespace, bundle)


async def _stored_in(parts: AdminParts, namespace: NamespaceName, bundle: str) -> AsyncIterator[TopicName]:
    names = await parts.broker.topics.names(namespace, ListMode.PERSISTENT)
    async for name in sliced(names, parts.settings.slice_items_max):
        exists = parts.broker.topics.managed_ledgers.exists
        if (not bundle or is_within(name, bundle)) and await exists(name.persistence_name):
            yield name


async def _unload(parts: AdminParts, namespace: NamespaceName, bundle: str, destination: str = "") -> None:
    """In a cluster: have the owner of each bundle give it up, whoever that is."""
    topics, cluster = parts.broker.topics, parts.broker.cluster
    if cluster is not None:
        for each in (await parts.broker.bundles.of(namespace)).all():
            if not bundle or each.range == bundle:
                try:
                    await cluster.unload(each, destination)
                except BadSetting as error:
                    raise AdminRefused(412, str(error)) from error
        return
    names = [*(topic.name for topic in topics.loaded()), *(topic.name for topic in topics.in_memory())]
    for name in names:
        if name.namespace == namespace and (not bundle or is_within(name, bundle)):
            await topics.unload(name)


async def _clear(request: Request, parts: AdminParts, namespace: NamespaceName, bundle: str, subscription: str) -> None:
    wanted = decoded_subscription(subscription) if subscription else ""
    async for name in _stored_in(parts, namespace, bundle):
        if await is_elsewhere(parts, name):
            await clear_elsewhere(request, parts, name, wanted)
            continue
        topic = await parts.broker.topics.load(name, create=False)
        for each in list(topic.subscriptions.values()):
            if not wanted or each.name == wanted:
                await skip_all(each)


async def _unsubscribe(
    request: Request, parts: AdminParts, namespace: NamespaceName, bundle: str, subscription: str
) -> None:
    wanted = decoded_subscription(subscription)
    async for name in _stored_in(parts, namespace, bundle):
        if await is_elsewhere(parts, name):
            await unsubscribe_elsewhere(request, parts, name, wanted)
            continue
        topic = await parts.broker.topics.load(name, create=False)
        if wanted in topic.subscriptions:
            if topic.subscriptions[wanted].consumers:
                raise AdminRefused(412, "Subscription has active connected consumers")
            await topic.delete_subscription(wanted)
