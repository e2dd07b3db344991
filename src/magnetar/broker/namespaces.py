# SPDX-License-Identifier: Apache-2.0
"""Tenants, namespaces and partitioned topics, as they stand in the metadata store.

Owns the reading and writing of those records, in the JSON that Apache Pulsar keeps there, so that its tools can
read them. Never loads a topic.
Carries.
"""

import json
from typing import Any

from magnetar.errors import BadVersion, Damaged, TopicNotFound
from magnetar.metadata.store import MUST_NOT_EXIST, MetadataStore
from magnetar.names import NamespaceName, TopicName, cluster_path, tenant_path

PARTITIONS_MAX = 100_000


class Namespaces:
    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def initialize(self, cluster: str, service_url: str, web_url: str) -> None:
        """Make what a new cluster starts with; what is there already stays as it is."""
        await self._create(cluster_path(cluster), {"serviceUrl": web_url, "brokerServiceUrl": service_url})
        for tenant, namespaces in (("public", ["default"]), ("pulsar", ["system"])):
            await self._create(tenant_path(tenant), {"adminRoles": [], "allowedClusters": [cluster]})
            for name in namespaces:
                policies = {"replication_clusters": [cluster], "bundles": {"numBundles": 1}}
                await self._create(NamespaceName(tenant, name).policies_path, policies)

    async def require(self, namespace: NamespaceName) -> None:
        if not await self._store.exists(namespace.policies_path):
            raise TopicNotFound(f"Namespace not found: {namespace}. Create it, or use one that exists")

    async def partitions(self, topic: TopicName) -> int:
        """How many partitions a topic has; 0 when it is not partitioned."""
        record = await self._store.get(topic.partitioned_metadata_path)
        if record is None:
            return 0
        partitions = self._decode(topic.partitioned_metadata_path, record.value).get("partitions")
        if not isinstance(partitions, int) or not 0 <= partitions <= PARTITIONS_MAX:
            raise Damaged(f"The record {topic.partitioned_metadata_path} has no usable partition count: {partitions!r}")
        return partitions

    async def create_partitioned(self, topic: TopicName, partitions: int) -> bool:
        """Register a partitioned topic; False when one of that name is there already."""
        return await self._create(topic.partitioned_metadata_path, {"partitions": partitions, "deleted": False})

    async def _create(self, path: str, value: dict[str, Any]) -> bool:
        try:
            await self._store.put(path, json.dumps(value).encode(), expected_version=MUST_NOT_EXIST)
        except BadVersion:
            return False
        return True

    @staticmethod
    def _decode(path: str, value: bytes) -> dict[str, Any]:
        try:
            decoded = json.loads(value)
        except ValueError as error:
            raise Damaged(f"The record {path} is not JSON: {error}") from error
        if not isinstance(decoded, dict):
            raise Damaged(f"The record {path} is not a JSON object")
        return decoded
