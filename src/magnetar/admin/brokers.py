# SPDX-License-Identifier: Apache-2.0
"""`brokers`: which there are, who leads, what this one owns and how it is set up.

No setting can be changed while the broker runs, so none is dynamic. Secrets are never shown.
Carries.
"""

from typing import Any

from fastapi import APIRouter, Response

from magnetar.admin.answers import AdminRefused, answered, done
from magnetar.admin.bundles import bundle_of, bundles_of
from magnetar.admin.parts import Parts
from magnetar.admin.slices import sliced
from magnetar.config.keys import KEYS
from magnetar.names import decode_name

router = APIRouter(prefix="/admin/v2/brokers", tags=["brokers"])

_OWNED = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}


@router.get("")
async def list_brokers(parts: Parts) -> Response:
    return answered([parts.broker_id])


@router.get("/leaderBroker")
async def leader(parts: Parts) -> Response:
    return answered({"serviceUrl": parts.web_url, "brokerId": parts.broker_id})


@router.get("/configuration")
async def dynamic_names() -> Response:
    return answered([])


@router.get("/configuration/values")
async def dynamic_values() -> Response:
    return answered({})


@router.get("/configuration/runtime")
async def runtime(parts: Parts) -> Response:
    """Every setting of the broker by Pulsar's key, as text."""
    settings: Any = parts.broker.settings
    shown = {key.name: str(getattr(settings, key.field)) for key in KEYS if key.owner == "broker" and not key.secret}
    return answered(shown)


@router.post("/configuration/{name}/{value}")
@router.delete("/configuration/{name}")
async def change_dynamic(name: str) -> Response:
    raise AdminRefused(412, "Can't update non-dynamic configuration")


@router.get("/backlog-quota-check")
async def check_quotas() -> Response:
    """Quotas are looked at all the time: there is nothing to start."""
    return done()


@router.get("/{cluster}")
async def of_cluster(parts: Parts, cluster: str) -> Response:
    return answered([parts.broker_id])


@router.get("/{cluster}/{broker}/ownedNamespaces")
async def owned(parts: Parts, cluster: str, broker: str) -> Response:
    if decode_name(broker) != parts.broker_id:
        raise AdminRefused(404, f"There is no broker {decode_name(broker)}")
    found: dict[str, Any] = {}
    async for topic in sliced(parts.broker.topics.loaded(), parts.settings.slice_items_max):
        policies = await parts.records.read(topic.name.namespace.policies_path) or {}
        found[f"{topic.name.namespace}/{bundle_of(topic.name, bundles_of(policies))}"] = _OWNED
    return answered(found)
