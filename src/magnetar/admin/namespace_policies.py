# SPDX-License-Identifier: Apache-2.0
"""Policies of a namespace: read, set and removed, all by one table; backlog quotas, clusters and properties beside it.

Setting goes through broker/policies, which checks the value and lets every broker know.
Carries.
"""

from collections.abc import Callable
from typing import Annotated, Any, Final

from fastapi import APIRouter, HTTPException, Query, Request, Response

from magnetar.admin.answers import AdminRefused, answered, done, raw_answer
from magnetar.admin.bodies import Body, TextBody, an_object, text_map, texts
from magnetar.admin.namespaces import NAMESPACE, check_clusters
from magnetar.admin.partitions import require_namespace
from magnetar.admin.parts import AdminParts, Namespace, Parts
from magnetar.admin.policy_changes import NotedChange, changed_policies
from magnetar.admin.policy_table import NAMESPACE_POLICIES, PolicyRow, filled, quota_filled
from magnetar.errors import BadSetting, TopicNotFound
from magnetar.names import CLUSTERS_ROOT, NamespaceName, decode_name, tenant_path

router = APIRouter(prefix="/admin/v2/namespaces", tags=["namespace policies"])

QUOTA_TYPES: Final = ("destination_storage", "message_age")
RESOURCE_GROUPS_ROOT: Final = "/admin/resourcegroups"
QuotaType = Annotated[str, Query(alias="backlogQuotaType")]


# --- backlog quotas -----------------------------------------------------------------------------


@router.get(NAMESPACE + "/backlogQuotaMap")
async def backlog_quotas(parts: Parts, namespace: Namespace) -> Response:
    quotas = (await require_namespace(parts, namespace.policies_path)).get("backlog_quota_map") or {}
    return answered({kind: quota_filled(quota) for kind, quota in quotas.items()})


@router.post(NAMESPACE + "/backlogQuota")
async def set_backlog_quota(
    parts: Parts, namespace: Namespace, body: Body, kind: QuotaType = QUOTA_TYPES[0]
) -> Response:
    check_quota_type(kind)
    quota = quota_filled(an_object(body, "backlog quota"))
    await change(parts, namespace, lambda record: record.setdefault("backlog_quota_map", {}).update({kind: quota}))
    return done()


@router.delete(NAMESPACE + "/backlogQuota")
async def remove_backlog_quota(parts: Parts, namespace: Namespace, kind: QuotaType = QUOTA_TYPES[0]) -> Response:
    check_quota_type(kind)
    await change(parts, namespace, lambda record: record.get("backlog_quota_map", {}).pop(kind, None))
    return done()


# --- clusters -----------------------------------------------------------------------------------


@router.get(NAMESPACE + "/replication")
async def replication(parts: Parts, namespace: Namespace) -> Response:
    return answered((await require_namespace(parts, namespace.policies_path)).get("replication_clusters", []))


@router.post(NAMESPACE + "/replication")
async def set_replication(parts: Parts, namespace: Namespace, body: Body) -> Response:
    clusters = texts(body or [], "clusters")
    if not clusters:
        raise AdminRefused(412, "ClusterIds should not be null or empty")
    present = await parts.records.children(CLUSTERS_ROOT)
    for cluster in clusters:
        if cluster not in present:
            raise AdminRefused(403, f"Invalid cluster id: {cluster}")
    await _check_tenant_clusters(parts, namespace, clusters)
    await change(parts, namespace, lambda record: record.update({"replication_clusters": clusters}))
    return Response(status_code=200)


@router.get(NAMESPACE + "/allowedClusters")
async def allowed_clusters(parts: Parts, namespace: Namespace) -> Response:
    return answered((await require_namespace(parts, namespace.policies_path)).get("allowed_clusters", []))


@router.post(NAMESPACE + "/allowedClusters")
async def set_allowed_clusters(parts: Parts, namespace: Namespace, body: Body) -> Response:
    clusters = texts(body or [], "clusters")
    await _check_tenant_clusters(parts, namespace, clusters)
    await change(parts, namespace, lambda record: record.update({"allowed_clusters": clusters}))
    return Response(status_code=200)


# --- properties, resource group, offloading -----------------------------------------------------


@router.get(NAMESPACE + "/properties")
async def properties(parts: Parts, namespace: Namespace) -> Response:
    return answered((await require_namespace(parts, namespace.policies_path)).get("properties", {}))


@router.put(NAMESPACE + "/properties")
async def add_properties(parts: Parts, namespace: Namespace, body: Body) -> Response:
    added = text_map(body, "properties")
    await change(parts, namespace, lambda record: record.setdefault("properties", {}).update(added))
    return done()


@router.delete(NAMESPACE + "/properties")
async def clear_properties(parts: Parts, namespace: Namespace) -> Response:
    await change(parts, namespace, lambda record: record.update({"properties": {}}))
    return done()


@router.get(NAMESPACE + "/property/{key}")
async def read_property(parts: Parts, namespace: Namespace, key: str) -> Response:
    found = (await require_namespace(parts, namespace.policies_path)).get("properties", {}).get(decode_name(key))
    return answered(None) if found is None else raw_answer(found)


@router.put(NAMESPACE + "/property/{key}/{value}")
async def set_property(parts: Parts, namespace: Namespace, key: str, value: str) -> Response:
    added = {decode_name(key): decode_name(value)}
    await change(parts, namespace, lambda record: record.setdefault("properties", {}).update(added))
    return done()


@router.delete(NAMESPACE + "/property/{key}")
async def remove_property(parts: Parts, namespace: Namespace, key: str) -> Response:
    found = (await require_namespace(parts, namespace.policies_path)).get("properties", {}).get(decode_name(key))
    await change(parts, namespace, lambda record: record.get("properties", {}).pop(decode_name(key), None))
    return answered(None) if found is None else raw_answer(found)


@router.get(NAMESPACE + "/resourcegroup")
async def resource_group(parts: Parts, namespace: Namespace) -> Response:
    found = (await require_namespace(parts, namespace.policies_path)).get("resource_group_name")
    return answered(None) if found is None else raw_answer(found)


@router.post(NAMESPACE + "/resourcegroup/{group}")
async def set_resource_group(parts: Parts, namespace: Namespace, group: str) -> Response:
    name = decode_name(group)
    if name not in await parts.records.children(RESOURCE_GROUPS_ROOT):
        raise AdminRefused(412, "ResourceGroup does not exist")
    await change(parts, namespace, lambda record: record.update({"resource_group_name": name}))
    return done()


@router.delete(NAMESPACE + "/resourcegroup")
async def remove_resource_group(parts: Parts, namespace: Namespace) -> Response:
    await change(parts, namespace, lambda record: record.pop("resource_group_name", None))
    return done()


@router.delete(NAMESPACE + "/removeOffloadPolicies")
async def remove_offload_policies(parts: Parts, namespace: Namespace) -> Response:
    await change(parts, namespace, lambda record: record.pop("offload_policies", None))
    return done()


# --- local policies: what holds in this cluster alone -------------------------------------------


@router.get(NAMESPACE + "/antiAffinity")
async def anti_affinity(parts: Parts, namespace: Namespace) -> Response:
    await require_namespace(parts, namespace.policies_path)
    found = (await parts.records.read(namespace.local_policies_path) or {}).get("namespaceAntiAffinityGroup")
    return done() if found is None else raw_answer(found)


@router.post(NAMESPACE + "/antiAffinity")
async def set_anti_affinity(parts: Parts, namespace: Namespace, text: TextBody) -> Response:
    group = text.strip().strip('"')
    if not group:
        raise AdminRefused(412, "Cannot set empty namespaceAntiAffinityGroup")
    await _change_local(parts, namespace, {"namespaceAntiAffinityGroup": group})
    return done()


@router.delete(NAMESPACE + "/antiAffinity")
async def remove_anti_affinity(parts: Parts, namespace: Namespace) -> Response:
    await _change_local(parts, namespace, {"namespaceAntiAffinityGroup": None})
    return done()


@router.get(NAMESPACE + "/persistence/bookieAffinity")
async def bookie_affinity(parts: Parts, namespace: Namespace) -> Response:
    await require_namespace(parts, namespace.policies_path)
    local = await parts.records.read(namespace.local_policies_path)
    if local is None:
        raise AdminRefused(404, "Namespace local-policies does not exist")
    found = local.get("bookieAffinityGroup")
    return done() if found is None else answered(found)


@router.post(NAMESPACE + "/persistence/bookieAffinity")
async def set_bookie_affinity(parts: Parts, namespace: Namespace, body: Body) -> Response:
    await _change_local(parts, namespace, {"bookieAffinityGroup": an_object(body, "bookie affinity group")})
    return done()


@router.delete(NAMESPACE + "/persistence/bookieAffinity")
async def remove_bookie_affinity(parts: Parts, namespace: Namespace) -> Response:
    await _change_local(parts, namespace, {"bookieAffinityGroup": None})
    return done()


# --- all others ---------------------------------------------------------------------------------


@router.get(NAMESPACE + "/{policy}")
async def read(parts: Parts, namespace: Namespace, policy: str) -> Response:
    row = row_of(NAMESPACE_POLICIES, policy)
    value = (await require_namespace(parts, namespace.policies_path)).get(row.member)
    if row.by_cluster and isinstance(value, dict):
        value = value.get(parts.cluster)
    if value is None:
        return answered(row.unset) if row.unset_status == 200 else Response(status_code=row.unset_status)
    return answered(filled(row, value))


@router.post(NAMESPACE + "/{policy}")
@router.put(NAMESPACE + "/{policy}")
async def set_policy(parts: Parts, namespace: Namespace, policy: str, body: Body, request: Request) -> Response:
    row = row_of(NAMESPACE_POLICIES, policy, verb=request.method)
    value = filled(row, row.without_body if body is None else body)
    await change(parts, namespace, lambda record: _put(record, row, parts.cluster, value), refusal=row.refusal)
    return done()


@router.delete(NAMESPACE + "/{policy}")
async def remove(parts: Parts, namespace: Namespace, policy: str) -> Response:
    row = row_of(NAMESPACE_POLICIES, policy)
    if not row.is_removable:
        raise AdminRefused(405, f"{policy} is set, not removed")
    await change(parts, namespace, lambda record: _put(record, row, parts.cluster, None))
    return done()


# --- inside -------------------------------------------------------------------------------------


async def change(
    parts: AdminParts, namespace: NamespaceName, step: Callable[[dict[str, Any]], object], *, refusal: int = 412
) -> None:
    """Change a namespace's record; a value that cannot be used is refused as Pulsar refuses it."""

    noted = NotedChange(step)
    try:
        await changed_policies(parts, namespace, None, parts.policies.change_namespace(namespace, noted))
        noted.tell(namespace.policies_path)
    except TopicNotFound as error:
        raise AdminRefused(404, "Namespace does not exist") from error
    except BadSetting as error:
        raise AdminRefused(refusal, str(error)) from error


def row_of(table: dict[str, PolicyRow], policy: str, *, verb: str | None = None) -> PolicyRow:
    """The policy of a path; 404 when there is none, 405 when it is not set with this verb."""
    row = table.get(policy)
    if row is None:
        raise HTTPException(404, f"There is no policy {policy[:100]!r}")
    if verb not in (None, row.verb):
        raise HTTPException(405, f"{policy} is set with {row.verb}")
    return row


def check_quota_type(kind: str) -> None:
    if kind not in QUOTA_TYPES:
        raise AdminRefused(400, f"backlogQuotaType {kind[:100]!r} should be one of {', '.join(QUOTA_TYPES)}")


def _put(record: dict[str, Any], row: PolicyRow, cluster: str, value: Any) -> None:
    if row.by_cluster:
        held = record.setdefault(row.member, {})
        if value is None:
            held.pop(cluster, None)
        else:
            held[cluster] = value
    elif value is None:
        record.pop(row.member, None)
    else:
        record[row.member] = value


async def _check_tenant_clusters(parts: AdminParts, namespace: NamespaceName, clusters: list[str]) -> None:
    check_clusters(clusters, await parts.records.read(tenant_path(namespace.tenant)) or {}, namespace.tenant)


async def _change_local(parts: AdminParts, namespace: NamespaceName, changes: dict[str, Any]) -> None:
    await require_namespace(parts, namespace.policies_path)

    def changed(present: dict[str, Any]) -> dict[str, Any]:
        merged = {**present, **changes}
        return {name: value for name, value in merged.items() if value is not None}

    await parts.records.update(namespace.local_policies_path, changed, create=True)
