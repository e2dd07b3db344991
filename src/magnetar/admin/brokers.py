# SPDX-License-Identifier: Apache-2.0
"""`brokers`: which there are, who leads, what this one owns and how it is set up.

Settings about sharing load can be changed while brokers run. Secrets are never shown.
Carries.
"""

import asyncio
from typing import Any, Final

from fastapi import APIRouter, Response

from magnetar.admin.answers import AdminRefused, answered, done
from magnetar.admin.bundle_routes import ranges_of
from magnetar.admin.bundles import bundle_of
from magnetar.admin.parts import AdminParts, Parts
from magnetar.admin.slices import sliced
from magnetar.broker.ownership.cluster import Cluster
from magnetar.broker.ownership.dynamic_settings import CONFIGURATION_PATH, DYNAMIC_KEYS, check_dynamic
from magnetar.config.keys import KEYS
from magnetar.errors import BadSetting
from magnetar.names import decode_name

router = APIRouter(prefix="/admin/v2/brokers", tags=["brokers"])

# For the answer to get out.
_ANSWER_S: Final = 0.1
_OWNED = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}


@router.get("")
async def list_brokers(parts: Parts) -> Response:
    return answered(await active_brokers(parts))


@router.get("/leaderBroker")
async def leader(parts: Parts) -> Response:
    if parts.broker.cluster is not None:
        found = parts.broker.cluster.membership.leader
        if found is None:
            raise AdminRefused(404, "Couldn't find leader broker")
        return answered({"serviceUrl": found.web_url, "brokerId": found.broker_id})
    return answered({"serviceUrl": parts.web_url, "brokerId": parts.broker_id})


@router.get("/configuration")
async def dynamic_names() -> Response:
    return answered(sorted(DYNAMIC_KEYS))


@router.get("/configuration/values")
async def dynamic_values(parts: Parts) -> Response:
    return answered(await parts.records.read(CONFIGURATION_PATH) or {})


@router.get("/configuration/runtime")
async def runtime(parts: Parts) -> Response:
    """Every setting of the broker by Pulsar's key, as text."""
    settings: Any = parts.broker.settings
    shown = {key.name: str(getattr(settings, key.field)) for key in KEYS if key.owner == "broker" and not key.secret}
    if parts.broker.cluster is not None:
        balance: Any = parts.broker.cluster.settings
        shown |= {key.name: str(getattr(balance, key.field)) for key in KEYS if key.owner == "balance"}
    return answered(shown)


@router.post("/configuration/{name}/{value}")
async def change_dynamic(parts: Parts, name: str, value: str) -> Response:
    """For every broker of the cluster, without a restart."""
    name, text = decode_name(name), decode_name(value)
    try:
        check_dynamic(name, text)
    except BadSetting as error:
        raise AdminRefused(412, str(error)) from error
    await parts.records.update(CONFIGURATION_PATH, lambda present: {**present, name: text}, create=True)
    return done()


@router.delete("/configuration/{name}")
async def forget_dynamic(parts: Parts, name: str) -> Response:
    name = decode_name(name)
    if name not in DYNAMIC_KEYS:
        raise AdminRefused(412, "Can't update non-dynamic configuration")

    def without(present: dict[str, Any]) -> dict[str, Any]:
        return {key: present[key] for key in present if key != name}

    await parts.records.update(CONFIGURATION_PATH, without, create=True)
    return done()


@router.post("/shutdown")
async def shutdown(parts: Parts) -> Response:
    """In order, after this answer: bundles go to other brokers, everything taken is stored, clients are sent away."""
    stop = parts.broker.stop_process
    if stop is None:
        raise AdminRefused(501, "Stopping a broker over HTTP is not possible inside of another process")
    asyncio.get_running_loop().call_later(_ANSWER_S, stop, "asked for over HTTP")
    return done()


@router.get("/format-level")
async def format_level(parts: Parts) -> Response:
    """Magnetar's own: what may be written, what each member can read, and who holds the next level back."""
    if parts.broker.cluster is None:
        raise AdminRefused(412, "This broker is alone: it writes what it can read")
    return answered(await parts.broker.cluster.levels.explain())


@router.get("/backlog-quota-check")
async def check_quotas() -> Response:
    """Quotas are looked at all the time: there is nothing to start."""
    return done()


@router.get("/{cluster}")
async def of_cluster(parts: Parts, cluster: str) -> Response:
    return answered(await active_brokers(parts))


@router.get("/{cluster}/{broker}/ownedNamespaces")
async def owned(parts: Parts, cluster: str, broker: str) -> Response:
    name = decode_name(broker)
    if name not in await active_brokers(parts):
        raise AdminRefused(404, f"There is no broker {name}")
    found: dict[str, Any] = {}
    if parts.broker.cluster is not None:
        return answered(dict.fromkeys(await bundles_of_broker(parts.broker.cluster, name), _OWNED))
    async for topic in sliced(parts.broker.topics.loaded(), parts.settings.slice_items_max):
        bounds = await ranges_of(parts, topic.name.namespace)
        found[f"{topic.name.namespace}/{bundle_of(topic.name, bounds)}"] = _OWNED
    return answered(found)


async def active_brokers(parts: AdminParts) -> list[str]:
    if parts.broker.cluster is None:
        return [parts.broker_id]
    return list(await parts.broker.cluster.membership.members())


async def bundles_of_broker(cluster: Cluster, broker_id: str) -> list[str]:
    """What this broker has, or what another one last reported."""
    own = cluster.ownership.own
    if own is not None and own.broker_id == broker_id:
        return [str(bundle) for bundle in cluster.ownership.held()]
    return list((await cluster.membership.members())[broker_id].bundles)
