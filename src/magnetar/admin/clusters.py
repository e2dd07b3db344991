# SPDX-License-Identifier: Apache-2.0
"""`clusters`: which clusters there are, their peers, failure domains and isolation policies.

Carries.
"""

from typing import Any, Final

from fastapi import APIRouter, Response

from magnetar.admin.answers import AdminRefused, answered, done
from magnetar.admin.bodies import Body, an_object, texts
from magnetar.admin.brokers import active_brokers
from magnetar.admin.parts import AdminParts, Parts
from magnetar.broker.ownership.isolation import IsolationPolicy, decode_policies
from magnetar.errors import BadName, NoRecord
from magnetar.names import CLUSTERS_ROOT, check_cluster, cluster_path, decode_name

router = APIRouter(prefix="/admin/v2/clusters", tags=["clusters"])

_ABSENT: Final = "Cluster does not exist"
_DOMAINS: Final = "failureDomain"
_ISOLATION: Final = "namespaceIsolationPolicies"
# Members that Apache Pulsar always shows.
_SHOWN: Final = {
    "brokerClientTlsEnabled": False,
    "tlsAllowInsecureConnection": False,
    "brokerClientTlsEnabledWithKeyStore": False,
}


@router.get("")
async def list_clusters(parts: Parts) -> Response:
    return answered(await parts.records.children(CLUSTERS_ROOT))


@router.get("/{cluster}")
async def read(parts: Parts, cluster: str) -> Response:
    return answered({**_SHOWN, **await require_cluster(parts, decode_name(cluster))})


@router.put("/{cluster}")
async def create(parts: Parts, cluster: str, body: Body) -> Response:
    try:
        name = check_cluster(decode_name(cluster))
    except BadName as error:
        raise AdminRefused(412, "Cluster name is not valid") from error
    if body is None:
        raise AdminRefused(400, "cluster data is required")
    if not await parts.records.create(cluster_path(name), an_object(body, "cluster data")):
        raise AdminRefused(409, "Cluster already exists")
    return Response(status_code=200)


@router.post("/{cluster}")
async def update(parts: Parts, cluster: str, body: Body) -> Response:
    data = an_object(body, "cluster data")
    await _change(parts, decode_name(cluster), lambda present: {**present, **data})
    return Response(status_code=200)


@router.delete("/{cluster}")
async def delete(parts: Parts, cluster: str) -> Response:
    name = decode_name(cluster)
    path = cluster_path(name)
    await require_cluster(parts, name)
    if name == parts.cluster:
        raise AdminRefused(412, "Cluster not empty: it is the one that this broker belongs to")
    await parts.records.store.delete_recursive(path)
    return done()


# --- peers --------------------------------------------------------------------------------------


@router.get("/{cluster}/peers")
async def peers(parts: Parts, cluster: str) -> Response:
    return answered((await require_cluster(parts, decode_name(cluster))).get("peerClusterNames"))


@router.post("/{cluster}/peers")
async def set_peers(parts: Parts, cluster: str, body: Body) -> Response:
    name = decode_name(cluster)
    names = texts(body or [], "peer clusters")
    for peer in names:
        if peer == name:
            raise AdminRefused(412, f"{name} itself can't be part of peer-list")
        if await parts.records.read(cluster_path(peer)) is None:
            raise AdminRefused(412, f"Peer cluster {peer} does not exist")
    await _change(parts, name, lambda present: {**present, "peerClusterNames": names})
    return done()


# --- failure domains ----------------------------------------------------------------------------


@router.get("/{cluster}/failureDomains")
async def domains(parts: Parts, cluster: str) -> Response:
    await require_cluster(parts, decode_name(cluster))
    return answered(await _domains(parts, decode_name(cluster)))


@router.get("/{cluster}/failureDomains/{name}")
async def domain(parts: Parts, cluster: str, name: str) -> Response:
    found = (await _domains(parts, decode_name(cluster))).get(decode_name(name))
    if found is None:
        raise AdminRefused(404, f"Domain {name} for cluster {cluster} does not exist")
    return answered(found)


@router.post("/{cluster}/failureDomains/{name}")
async def set_domain(parts: Parts, cluster: str, name: str, body: Body) -> Response:
    cluster, name = decode_name(cluster), check_cluster(decode_name(name))
    await require_cluster(parts, cluster)
    brokers = texts(an_object(body, "failure domain").get("brokers", []), "brokers")
    for other, value in (await _domains(parts, cluster)).items():
        taken = [broker for broker in brokers if broker in value.get("brokers", [])]
        if other != name and taken:
            raise AdminRefused(409, f"[{', '.join(taken)}] already exists in {other}")
    path = f"{cluster_path(cluster)}/{_DOMAINS}/{name}"
    await parts.records.update(path, lambda present: {**present, "brokers": brokers}, create=True)
    return done()


@router.delete("/{cluster}/failureDomains/{name}")
async def delete_domain(parts: Parts, cluster: str, name: str) -> Response:
    path = f"{cluster_path(decode_name(cluster))}/{_DOMAINS}/{check_cluster(decode_name(name))}"
    if not await parts.records.delete(path):
        raise AdminRefused(404, f"Domain-name {name} or cluster {cluster} does not exist")
    return Response(status_code=200)


# --- isolation policies -------------------------------------------------------------------------


@router.get("/{cluster}/namespaceIsolationPolicies")
async def isolation_policies(parts: Parts, cluster: str) -> Response:
    return answered(await _isolation(parts, decode_name(cluster)))


@router.get("/{cluster}/namespaceIsolationPolicies/brokers")
async def isolated_brokers(parts: Parts, cluster: str) -> Response:
    await _isolation(parts, decode_name(cluster))
    record = await parts.records.read(f"{cluster_path(decode_name(cluster))}/{_ISOLATION}")
    policies = decode_policies(record)
    return answered([_isolated(broker, policies) for broker in await active_brokers(parts)])


@router.get("/{cluster}/namespaceIsolationPolicies/brokers/{broker}")
async def isolated_broker(parts: Parts, cluster: str, broker: str) -> Response:
    policies = decode_policies(await _isolation(parts, decode_name(cluster)))
    return answered(_isolated(decode_name(broker), policies))


@router.get("/{cluster}/namespaceIsolationPolicies/{name}")
async def isolation_policy(parts: Parts, cluster: str, name: str) -> Response:
    found = (await _isolation(parts, decode_name(cluster))).get(decode_name(name))
    if found is None:
        raise AdminRefused(404, f"Cannot find NamespaceIsolationPolicy {name} for cluster {cluster}")
    return answered(found)


@router.post("/{cluster}/namespaceIsolationPolicies/{name}")
async def set_isolation_policy(parts: Parts, cluster: str, name: str, body: Body) -> Response:
    policy = an_object(body, "namespace isolation policy")
    for member in ("namespaces", "primary"):
        texts(policy.get(member), member)
    await require_cluster(parts, decode_name(cluster))
    path = f"{cluster_path(decode_name(cluster))}/{_ISOLATION}"
    await parts.records.update(path, lambda present: {**present, decode_name(name): policy}, create=True)
    return done()


@router.delete("/{cluster}/namespaceIsolationPolicies/{name}")
async def delete_isolation_policy(parts: Parts, cluster: str, name: str) -> Response:
    await _isolation(parts, decode_name(cluster))
    path = f"{cluster_path(decode_name(cluster))}/{_ISOLATION}"
    gone = decode_name(name)
    await parts.records.update(path, lambda present: {key: present[key] for key in present if key != gone})
    return done()


# --- inside -------------------------------------------------------------------------------------


def _isolated(broker: str, policies: list[IsolationPolicy]) -> dict[str, Any]:
    own = [policy for policy in policies if policy.is_primary(broker) or policy.is_secondary(broker)]
    return {
        "brokerName": broker,
        "namespaceRegex": [pattern for policy in own for pattern in policy.namespaces],
        "primary": any(policy.is_primary(broker) for policy in own),
    }


async def require_cluster(parts: AdminParts, name: str) -> dict[str, Any]:
    try:
        found = await parts.records.read(cluster_path(check_cluster(name)))
    except BadName:
        found = None
    if found is None:
        raise AdminRefused(404, _ABSENT)
    return found


async def _change(parts: AdminParts, name: str, change: Any) -> None:
    await require_cluster(parts, name)
    try:
        await parts.records.update(cluster_path(name), change)
    except NoRecord as error:
        raise AdminRefused(404, _ABSENT) from error


async def _domains(parts: AdminParts, cluster: str) -> dict[str, Any]:
    root = f"{cluster_path(check_cluster(cluster))}/{_DOMAINS}"
    return {name: await parts.records.read(f"{root}/{name}") for name in await parts.records.children(root)}


async def _isolation(parts: AdminParts, cluster: str) -> dict[str, Any]:
    await require_cluster(parts, cluster)
    found = await parts.records.read(f"{cluster_path(cluster)}/{_ISOLATION}")
    if found is None:
        raise AdminRefused(404, f"NamespaceIsolationPolicies for cluster {cluster} does not exist")
    return found
