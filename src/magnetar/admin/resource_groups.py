# SPDX-License-Identifier: Apache-2.0
"""`resourcegroups`: limits that several namespaces share.

Carries.
"""

from fastapi import APIRouter, Response

from magnetar.admin.answers import AdminRefused, answered, done
from magnetar.admin.bodies import Body, an_object
from magnetar.admin.namespace_policies import RESOURCE_GROUPS_ROOT
from magnetar.admin.parts import AdminParts, Parts
from magnetar.admin.slices import sliced
from magnetar.names import POLICIES_ROOT, check_tenant, decode_name

router = APIRouter(prefix="/admin/v2/resourcegroups", tags=["resource groups"])


@router.get("")
async def list_groups(parts: Parts) -> Response:
    return answered(await parts.records.children(RESOURCE_GROUPS_ROOT))


@router.get("/{group}")
async def read(parts: Parts, group: str) -> Response:
    found = await parts.records.read(_path(group))
    if found is None:
        raise AdminRefused(404, "ResourceGroup does not exist")
    return answered(found)


@router.put("/{group}")
async def set_group(parts: Parts, group: str, body: Body) -> Response:
    """Make a group, or change the limits that are given."""
    limits = an_object(body, "resource group")
    if any(isinstance(limit, bool) or not isinstance(limit, int) for limit in limits.values()):
        raise AdminRefused(400, "The limits of a resource group are whole numbers")
    await parts.records.update(_path(group), lambda present: {**present, **limits}, create=True)
    return done()


@router.delete("/{group}")
async def delete(parts: Parts, group: str) -> Response:
    if await parts.records.read(_path(group)) is None:
        raise AdminRefused(404, "ResourceGroup does not exist")
    if await _is_used(parts, decode_name(group)):
        raise AdminRefused(412, "ResourceGroup is in use")
    await parts.records.delete(_path(group))
    return done()


async def _is_used(parts: AdminParts, group: str) -> bool:
    async for tenant in sliced(await parts.records.children(POLICIES_ROOT), parts.settings.slice_items_max):
        for namespace in await parts.records.children(f"{POLICIES_ROOT}/{tenant}"):
            policies = await parts.records.read(f"{POLICIES_ROOT}/{tenant}/{namespace}") or {}
            if policies.get("resource_group_name") == group:
                return True
    return False


def _path(group: str) -> str:
    # The same characters as a tenant's name: it becomes part of a path.
    return f"{RESOURCE_GROUPS_ROOT}/{check_tenant(decode_name(group))}"
