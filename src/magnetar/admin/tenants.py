# SPDX-License-Identifier: Apache-2.0
"""`tenants`: who owns namespaces, who administers them, and on which clusters.

Carries.
"""

from typing import Any

from fastapi import APIRouter, Request, Response

from magnetar.admin.answers import AdminRefused, answered, done
from magnetar.admin.bodies import Body, an_object, texts
from magnetar.admin.forced_deletion import empty_namespace, remove_namespace
from magnetar.admin.names_asked import decoded_tenant
from magnetar.admin.parts import AdminParts, Parts
from magnetar.errors import NoRecord
from magnetar.names import CLUSTERS_ROOT, POLICIES_ROOT, NamespaceName, tenant_path

router = APIRouter(prefix="/admin/v2/tenants", tags=["tenants"])


@router.get("")
async def list_tenants(parts: Parts) -> Response:
    return answered(await parts.records.children(POLICIES_ROOT))


@router.get("/{tenant}")
async def read(parts: Parts, tenant: str) -> Response:
    found = await parts.records.read(tenant_path(decoded_tenant(tenant)))
    if found is None:
        raise AdminRefused(404, "Tenant does not exist")
    return answered(_shown(found))


@router.put("/{tenant}")
async def create(parts: Parts, tenant: str, body: Body) -> Response:
    name = decoded_tenant(tenant)
    limit = parts.broker.settings.tenants_max
    if 0 < limit <= len(await parts.records.children(POLICIES_ROOT)):
        raise AdminRefused(412, "Exceed the maximum number of tenants")
    if not await parts.records.create(tenant_path(name), await _info(parts, body)):
        raise AdminRefused(409, "Tenant already exist")
    return done()


@router.post("/{tenant}")
async def update(parts: Parts, tenant: str, body: Body) -> Response:
    name = decoded_tenant(tenant)
    info = await _info(parts, body)
    try:
        await parts.records.update(tenant_path(name), lambda present: {**present, **info})
    except NoRecord as error:
        raise AdminRefused(404, f"Tenant {name} not found") from error
    return done()


@router.delete("/{tenant}")
async def delete(request: Request, parts: Parts, tenant: str, force: bool = False) -> Response:
    name = decoded_tenant(tenant)
    if await parts.records.read(tenant_path(name)) is None:
        raise AdminRefused(404, "Tenant doesn't exist")
    if force:
        if not parts.settings.forced_tenant_deletion:
            raise AdminRefused(405, "Broker doesn't allow forced deletion of tenants")
        for each in await parts.records.children(tenant_path(name)):
            await empty_namespace(request, parts, NamespaceName(name, each))
            await remove_namespace(parts, NamespaceName(name, each))
    if await parts.records.children(tenant_path(name)):
        raise AdminRefused(409, "The tenant still has active namespaces")
    await parts.records.delete(tenant_path(name))
    return done()


def _shown(record: dict[str, Any]) -> dict[str, Any]:
    return {"adminRoles": [], "allowedClusters": [], **record}


async def _info(parts: AdminParts, body: Any) -> dict[str, Any]:
    if body is None:
        raise AdminRefused(412, "TenantInfo is null")
    info = an_object(body, "tenant info")
    clusters = texts(info.get("allowedClusters") or [], "allowedClusters")
    if not clusters or not all(cluster.strip() for cluster in clusters):
        raise AdminRefused(412, "Clusters cannot be empty or blank")
    present = await parts.records.children(CLUSTERS_ROOT)
    if any(cluster not in present for cluster in clusters):
        raise AdminRefused(412, "Clusters do not exist")
    return {**info, "adminRoles": texts(info.get("adminRoles") or [], "adminRoles"), "allowedClusters": clusters}
