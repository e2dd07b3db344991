# SPDX-License-Identifier: Apache-2.0
"""`magnetar initialize-cluster-metadata`: the records that a new cluster begins with, by Pulsar's flags.

What is there already stays as it is, so it may be run again. Brokers and bookies make what they need by themselves;
this is for those who want it before, or who keep two stores.
Assembles.
"""

import asyncio
import json
from random import Random
from typing import Any, Final, NamedTuple
from uuid import UUID

from magnetar.cli.metadata_transfer import opened
from magnetar.config.ledger import LedgerSettings
from magnetar.config.values import MetadataUrl
from magnetar.errors import BadSetting, BadVersion
from magnetar.ledger.catalog import LedgerCatalog
from magnetar.ledger.paths import COOKIES, INSTANCE_ID
from magnetar.metadata.cluster_identity import check_cluster
from magnetar.metadata.store import MUST_NOT_EXIST, MetadataStore
from magnetar.names import NamespaceName, cluster_path, tenant_path
from magnetar.names import check_cluster as check_cluster_name
from magnetar.runtime.chance import fresh_seed, stream

BUNDLES: Final = 16
COORDINATORS_PATH: Final = "/admin/partitioned-topics/pulsar/system/persistent/transaction_coordinator_assign"
LAST_BOUNDARY: Final = 2**32 - 1


class ClusterFlags(NamedTuple):
    cluster: str
    metadata_store: str
    web_service_url: str
    configuration_store: str = ""
    web_service_url_tls: str = ""
    broker_service_url: str = ""
    broker_service_url_tls: str = ""
    proxy_url: str = ""
    proxy_protocol: str = ""
    authentication_plugin: str = ""
    authentication_parameters: str = ""
    tls_enabled: bool = False
    bundles: int = 0
    transaction_coordinators: int = 16
    existing_bookkeeper: str = ""


def initialize(flags: ClusterFlags) -> list[str]:
    """Returns the paths of the records that were made."""
    check_cluster_name(flags.cluster)
    _check_services(flags)
    local, shared = _url(flags.metadata_store), _url(flags.configuration_store or flags.metadata_store)

    async def run() -> list[str]:
        random = stream(fresh_seed(), "initialize")
        async with opened(local) as store:
            await check_cluster(store, flags.cluster)
            if not flags.existing_bookkeeper:
                await _prepare_storage(store, random)
            if shared == local:
                return await _create_all(store, _shared_records(flags))
            async with opened(shared) as configuration:
                return await _create_all(configuration, _shared_records(flags))

    return asyncio.run(run())


def _check_services(flags: ClusterFlags) -> None:
    """BadSetting for an address that no client could use."""
    for given, scheme in (
        (flags.web_service_url, "http"),
        (flags.web_service_url_tls, "https"),
        (flags.broker_service_url, "pulsar"),
        (flags.broker_service_url_tls, "pulsar+ssl"),
    ):
        if given and not given.startswith(f"{scheme}://"):
            raise BadSetting(f"{given!r} is not the address of a service: {scheme}://HOST:PORT is")


def _url(text: str) -> str:
    try:
        return MetadataUrl().parse(text)
    except ValueError:
        raise BadSetting(f"{text!r} is no metadata store: allowed is {MetadataUrl().allowed}") from None


async def _prepare_storage(store: MetadataStore, random: Random) -> None:
    await LedgerCatalog(store, random, LedgerSettings()).prepare()
    fresh = str(UUID(int=random.getrandbits(128), version=4))
    for path, value in ((INSTANCE_ID, fresh.encode()), (COOKIES, b"")):
        try:
            await store.put(path, value, expected_version=MUST_NOT_EXIST)
        except BadVersion:
            continue


async def _create_all(store: MetadataStore, records: dict[str, Any]) -> list[str]:
    made = []
    for path, value in records.items():
        try:
            await store.put(path, json.dumps(value).encode(), expected_version=MUST_NOT_EXIST)
            made.append(path)
        except BadVersion:
            continue
    return made


def _shared_records(flags: ClusterFlags) -> dict[str, Any]:
    """Clusters, tenants, namespaces and coordinators, as Pulsar lays them out."""
    described = {
        "serviceUrl": flags.web_service_url,
        "serviceUrlTls": flags.web_service_url_tls,
        "brokerServiceUrl": flags.broker_service_url,
        "brokerServiceUrlTls": flags.broker_service_url_tls,
        "proxyServiceUrl": flags.proxy_url,
        "proxyProtocol": flags.proxy_protocol,
        "authenticationPlugin": flags.authentication_plugin,
        "authenticationParameters": flags.authentication_parameters,
    }
    cluster: dict[str, Any] = {name: value for name, value in described.items() if value}
    if flags.tls_enabled:
        cluster["brokerClientTlsEnabled"] = True
    tenant = {"adminRoles": [], "allowedClusters": [flags.cluster]}
    bundles = flags.bundles or BUNDLES
    records: dict[str, Any] = {
        cluster_path(flags.cluster): cluster,
        # Pulsar's name for "everywhere"; its tools look for it.
        cluster_path("global"): {},
    }
    for namespace in (NamespaceName("public", "default"), NamespaceName("pulsar", "system")):
        records[tenant_path(namespace.tenant)] = tenant
        records[namespace.policies_path] = {
            "replication_clusters": [flags.cluster],
            "bundles": {"boundaries": boundaries(bundles), "numBundles": bundles},
        }
    records[COORDINATORS_PATH] = {"partitions": flags.transaction_coordinators, "deleted": False}
    return records


def boundaries(bundles: int) -> list[str]:
    """Where bundles of equal size begin and end among all hashes, as Pulsar writes them."""
    step = 2**32 // bundles
    return [f"0x{step * number:08x}" for number in range(bundles)] + [f"0x{LAST_BOUNDARY:08x}"]
