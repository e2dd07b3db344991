# SPDX-License-Identifier: Apache-2.0
"""The replicators of one topic: one for each other cluster that its policies name.

Owned by a Topic, which closes it before its log. A cluster that is named has its cursor before the topic takes the next
message; one that is not named any more loses its cursor, and what it had not got stays here.
Carries.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from magnetar.broker.producer import REPLICATOR_PREFIX
from magnetar.broker.replication.parts import ReplicationParts
from magnetar.broker.replication.replicated import is_replicated
from magnetar.broker.replication.replicator import Replicator, cursor_name
from magnetar.broker.replication.subscription_places import SubscriptionPlaces
from magnetar.ids import EARLIEST, LATEST

if TYPE_CHECKING:
    from magnetar.broker.topic import Topic


class TopicReplication:
    def __init__(self, topic: "Topic", parts: ReplicationParts) -> None:
        self.replicators: dict[str, Replicator] = {}
        self.places = SubscriptionPlaces(topic, parts, self.replicators)
        self._topic = topic
        self._parts = parts
        self._running: dict[str, asyncio.Task[None]] = {}
        self._turn = asyncio.Lock()
        self._is_closed = False

    async def apply(self, clusters: Sequence[str]) -> None:
        """Replicate to these clusters, and to no others, from now on."""
        async with self._turn:
            if self._is_closed:
                return
            for cluster in [cluster for cluster in self.replicators if cluster not in clusters]:
                await self._end(cluster)
            ledger = self._topic.managed_ledger
            for name in [name for name in ledger.cursors if name.startswith(REPLICATOR_PREFIX)]:
                if name.removeprefix(REPLICATOR_PREFIX) not in clusters:
                    await ledger.delete_cursor(name)
            for cluster in clusters:
                if cluster not in self.replicators:
                    await self._start(cluster)
            if any(is_replicated(subscription.cursor) for subscription in self._topic.subscriptions.values()):
                self.places.watch()

    async def _start(self, cluster: str) -> None:
        start = EARLIEST if self._parts.settings.replication_start_at == "earliest" else LATEST
        cursor = await self._topic.managed_ledger.open_cursor(cursor_name(cluster), initial=start)
        replicator = Replicator(self._topic, cursor, cluster, self._parts, self.places.on_marker)
        self._running[cluster] = self._parts.tasks.start(replicator.run(), f"replicate {self._topic.name} to {cluster}")
        self.replicators[cluster] = replicator

    async def _end(self, cluster: str) -> None:
        del self.replicators[cluster]
        task = self._running.pop(cluster)
        task.cancel()
        await asyncio.wait((task,))

    def wake(self) -> None:
        """The topic has more to read, or may read more of what it has."""
        for replicator in self.replicators.values():
            replicator.wake()

    @property
    def has_backlog(self) -> bool:
        return any(replicator.backlog_entries for replicator in self.replicators.values())

    async def close(self) -> None:
        async with self._turn:
            self._is_closed = True
            await self.places.close()
            for cluster in list(self.replicators):
                await self._end(cluster)
