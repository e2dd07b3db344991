# SPDX-License-Identifier: Apache-2.0
"""Tenants, namespaces and partitioned topics, as they stand in the metadata store.

Owns the reading and writing of those records, in the JSON that Apache Pulsar keeps there, so that its tools can
read them. Never loads a topic.
Carries.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from magnetar.broker.ownership.owner import Owner
from magnetar.errors import BadSetting, BadVersion, Damaged, NoRecord, ServiceNotReady, TopicNotFound
from magnetar.metadata.json_record import decode_json
from magnetar.metadata.store import MUST_NOT_EXIST, MetadataStore
from magnetar.names import (
    PARTITIONED_TOPICS_ROOT,
    NamespaceName,
    TopicDomain,
    TopicName,
    cluster_path,
    decode_name,
    tenant_path,
)

PARTITIONS_MAX = 100_000
_WRITE_ATTEMPTS = 10
# Names that are read before other work on the loop has its turn.
_SLICE = 100


class Namespaces:
    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def initialize(self, cluster: str, front: Owner, *, bundles: int = 1) -> None:
        """Make what a new cluster, served at these addresses, starts with; what is there already stays as it is."""
        urls = {
            "serviceUrl": front.web_url,
            "serviceUrlTls": front.web_url_tls,
            "brokerServiceUrl": front.service_url,
            "brokerServiceUrlTls": front.service_url_tls,
        }
        await self._create(cluster_path(cluster), {name: url for name, url in urls.items() if url})
        for tenant, namespaces in (("public", ["default"]), ("pulsar", ["system"])):
            await self._create(tenant_path(tenant), {"adminRoles": [], "allowedClusters": [cluster]})
            for name in namespaces:
                policies = {"replication_clusters": [cluster], "bundles": {"numBundles": bundles}}
                await self._create(NamespaceName(tenant, name).policies_path, policies)

    async def require(self, namespace: NamespaceName) -> None:
        if not await self._store.exists(namespace.policies_path):
            raise TopicNotFound(f"Namespace not found: {namespace}. Create it, or use one that exists")

    async def partitions(self, topic: TopicName) -> int:
        """How many partitions a topic has; 0 when it is not partitioned."""
        record = await self._store.get(topic.partitioned_metadata_path)
        if record is None:
            return 0
        partitions = decode_json(record.value, f"The record {topic.partitioned_metadata_path}").get("partitions")
        if not isinstance(partitions, int) or not 0 <= partitions <= PARTITIONS_MAX:
            raise Damaged(f"The record {topic.partitioned_metadata_path} has no usable partition count: {partitions!r}")
        return partitions

    async def partitioned_properties(self, topic: TopicName) -> dict[str, str]:
        """What users keep with a partitioned topic; nothing when it is not partitioned."""
        record = await self._store.get(topic.partitioned_metadata_path)
        if record is None:
            return {}
        kept = decode_json(record.value, f"The record {topic.partitioned_metadata_path}").get("properties")
        return dict(kept) if isinstance(kept, dict) else {}

    async def partitioned(self, namespace: NamespaceName, domain: TopicDomain) -> list[TopicName]:
        """The partitioned topics of a namespace, sorted by their encoded names."""
        found = []
        for number, name in enumerate(await self._store.children(f"{PARTITIONED_TOPICS_ROOT}/{namespace}/{domain}"), 1):
            found.append(namespace.topic(decode_name(name), domain))
            if number % _SLICE == 0:
                await asyncio.sleep(0)
        return found

    async def create_partitioned(
        self, topic: TopicName, partitions: int, properties: Mapping[str, str] | None = None
    ) -> bool:
        """Register a partitioned topic; False when one of that name is there already."""
        record: dict[str, Any] = {"partitions": partitions, "deleted": False}
        if properties:
            record["properties"] = dict(properties)
        return await self._create(topic.partitioned_metadata_path, record)

    async def grow_partitioned(self, topic: TopicName, partitions: int) -> None:
        """Give a partitioned topic more partitions. TopicNotFound when it is none, BadSetting when it would shrink."""
        path = topic.partitioned_metadata_path
        for _ in range(_WRITE_ATTEMPTS):
            record = await self._store.get(path)
            if record is None:
                raise TopicNotFound(f"Partitioned topic {topic} does not exist")
            value = decode_json(record.value, f"The record {path}")
            if partitions <= value.get("partitions", 0):
                raise BadSetting(
                    f"{topic} has {value['partitions']} partitions; the new number {partitions} must be larger"
                )
            try:
                await self._store.put(
                    path, json.dumps({**value, "partitions": partitions}).encode(), expected_version=record.version
                )
            except BadVersion:
                continue
            return
        raise ServiceNotReady(f"The record of {topic} is changed by others all the time; try again")

    async def delete_partitioned(self, topic: TopicName) -> None:
        """Forget a partitioned topic; nothing happens when there is none."""
        try:
            await self._store.delete(topic.partitioned_metadata_path)
        except NoRecord:
            return

    async def _create(self, path: str, value: dict[str, Any]) -> bool:
        try:
            await self._store.put(path, json.dumps(value).encode(), expected_version=MUST_NOT_EXIST)
        except BadVersion:
            return False
        return True
