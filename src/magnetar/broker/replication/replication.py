# SPDX-License-Identifier: Apache-2.0
"""Which topics of this broker go to other clusters: asked whenever a topic is loaded and when policies change.

Owns the clients of other clusters and the tasks that use them. A topic that goes nowhere is not touched.
Assembles.
"""

from collections.abc import Callable
from random import Random

from magnetar.broker.as_client import AsClient
from magnetar.broker.namespaces import Namespaces
from magnetar.broker.own_cursors import is_replication
from magnetar.broker.replication.parts import ReplicationParts
from magnetar.broker.replication.remote_clusters import RemoteClusters
from magnetar.broker.replication.topic_replication import TopicReplication
from magnetar.broker.schemas.registry import SchemaRegistry
from magnetar.broker.shadow_topic import ShadowTopic
from magnetar.broker.topic import Topic
from magnetar.broker.topic_list import is_system_topic
from magnetar.config.broker import BrokerSettings
from magnetar.config.security import SecuritySettings
from magnetar.metadata.store import MetadataStore
from magnetar.runtime.clock import WallClock
from magnetar.runtime.tasks import Tasks

# Each topic has one task for each cluster that it goes to, and one for its subscriptions.
_TASKS_MAX = 1_000_000


class Replication:
    def __init__(
        self,
        settings: BrokerSettings,
        store: MetadataStore,
        as_client: AsClient,
        security: SecuritySettings,
        namespaces: Namespaces,
        schemas: SchemaRegistry,
        clock: WallClock,
        on_crash: Callable[[str, BaseException], None],
        random: Random,
    ) -> None:
        self._tasks = Tasks("replication", on_crash, tasks_max=_TASKS_MAX)
        self._clusters = RemoteClusters(store, as_client, security, clock)
        self._parts = ReplicationParts(
            settings.cluster_name, settings, self._clusters, namespaces, schemas, clock, random, self._tasks
        )

    async def apply(self, topic: Topic) -> None:
        """Bring a topic to what its policies say; returns when every cluster that they name has its cursor."""
        if topic.policies is None or isinstance(topic, ShadowTopic) or is_system_topic(topic.name):
            return
        named = topic.policies.replication_clusters
        if not named or topic.policies.damage:
            # No record says anything that can be used: no reason to forget how far others have got.
            return
        others = [cluster for cluster in named if cluster != self._parts.cluster]
        is_known = any(map(is_replication, topic.managed_ledger.cursors))
        if topic.replication is None and (others or is_known):
            topic.replication = TopicReplication(topic, self._parts)
        if topic.replication is not None:
            await topic.replication.apply(others)

    async def close(self) -> None:
        await self._tasks.close()
        await self._clusters.close()
