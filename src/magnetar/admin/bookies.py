# SPDX-License-Identifier: Apache-2.0
"""`bookies`: which there are, and in which rack each stands.

Carries.
"""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response

from magnetar.admin.answers import AdminRefused, answered, done
from magnetar.admin.bodies import Body, an_object
from magnetar.admin.parts import AdminParts, Parts
from magnetar.names import decode_name

router = APIRouter(prefix="/admin/v2/bookies", tags=["bookies"])

RACKS_PATH: Final = "/bookies"
_AVAILABLE: Final = "/ledgers/available"
_READ_ONLY: Final = "readonly"


@router.get("/all")
async def list_bookies(parts: Parts) -> Response:
    writable = [name for name in await parts.records.children(_AVAILABLE) if name != _READ_ONLY]
    reading = await parts.records.children(f"{_AVAILABLE}/{_READ_ONLY}")
    return answered({"bookies": [{"bookieId": name} for name in sorted({*writable, *reading})]})


@router.get("/racks-info")
async def racks(parts: Parts) -> Response:
    return answered(await parts.records.read(RACKS_PATH) or {})


@router.get("/racks-info/{bookie}")
async def rack(parts: Parts, bookie: str) -> Response:
    name = decode_name(bookie)
    for group in (await parts.records.read(RACKS_PATH) or {}).values():
        if name in group:
            return answered(group[name])
    raise AdminRefused(404, f"Bookie rack placement configuration not found: {name}")


@router.post("/racks-info/{bookie}")
async def set_rack(parts: Parts, bookie: str, body: Body, group: Annotated[str, Query()] = "") -> Response:
    name = decode_name(bookie)
    info = an_object(body, "bookie info")
    if not group:
        raise AdminRefused(412, "Bookie 'group' parameters is missing")
    if not isinstance(info.get("rack"), str) or not info["rack"]:
        raise AdminRefused(412, "Bookie 'rack' parameters is missing")
    await _change(parts, name, group, info)
    return done()


@router.delete("/racks-info/{bookie}")
async def remove_rack(parts: Parts, bookie: str) -> Response:
    name = decode_name(bookie)
    present = await parts.records.read(RACKS_PATH) or {}
    if not any(name in group for group in present.values()):
        raise AdminRefused(404, f"Bookie rack placement configuration not found: {name}")
    await _change(parts, name, "", None)
    return done()


async def _change(parts: AdminParts, bookie: str, group: str, info: dict[str, Any] | None) -> None:
    """A bookie is in one group; a group without bookies goes."""

    def changed(racks: dict[str, Any]) -> dict[str, Any]:
        following = {
            name: {each: value for each, value in members.items() if each != bookie} for name, members in racks.items()
        }
        if info is not None:
            following.setdefault(group, {})[bookie] = info
        return {name: members for name, members in following.items() if members}

    await parts.records.update(RACKS_PATH, changed, create=True)
