# SPDX-License-Identifier: Apache-2.0
"""Which topics there are, which may be made, and how many partitions they have: what the metadata store says of them.

Owns the rules of automatic creation and the limits on numbers of topics. A partition of a partitioned topic exists as
soon as the number of partitions says so, loaded or not. Never loads a topic.
Carries.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from magnetar.broker.namespaces import PARTITIONS_MAX, Namespaces
from magnetar.broker.policies.policies import Policies
from magnetar.broker.topic_list import ListMode, is_system_topic
from magnetar.config.broker import BrokerSettings
from magnetar.errors import BadSetting, LimitReached, NotSupported, TopicExists, TopicNotFound
from magnetar.managed_ledger.managed_ledgers import ManagedLedgers
from magnetar.names import NamespaceName, TopicDomain, TopicName, in_order

# Names that are read before other work on the loop has its turn.
_SLICE: Final = 100
_RECORDS_PER_SLICE: Final = 20


class TopicDirectory:
    def __init__(
        self, namespaces: Namespaces, managed_ledgers: ManagedLedgers, settings: BrokerSettings, policies: Policies
    ) -> None:
        self._namespaces = namespaces
        self._managed_ledgers = managed_ledgers
        self._settings = settings
        self._policies = policies

    # --- what there is ------------------------------------------------------------------------------

    async def exists(self, name: TopicName) -> bool:
        """Whether a topic of this name is stored, or is a partition of one."""
        if name.is_persistent and await self._managed_ledgers.exists(name.persistence_name):
            return True
        return name.is_partition and name.partition_index < await self._namespaces.partitions(name.base)

    async def require(self, name: TopicName) -> None:
        if not await self.exists(name):
            raise TopicNotFound(f"Topic {name} not found")

    async def require_partitioned(self, name: TopicName) -> int:
        """The number of partitions. TopicNotFound when the topic is not partitioned."""
        count = await self._namespaces.partitions(name)
        if not count or name.is_partition:
            raise TopicNotFound(f"Partitioned topic {name} not found")
        return count

    async def names(
        self, namespace: NamespaceName, mode: ListMode, in_memory: Sequence[TopicName] = ()
    ) -> list[TopicName]:
        """The users' topics of a namespace, each partition by itself, sorted. TopicNotFound without the namespace."""
        await self._namespaces.require(namespace)
        found: dict[TopicName, None] = {}
        if mode is not ListMode.NON_PERSISTENT:
            for number, name in enumerate(
                await self._managed_ledgers.names(f"{namespace}/{TopicDomain.PERSISTENT}"), 1
            ):
                topic = TopicName.from_persistence_name(name)
                if not is_system_topic(topic):
                    found[topic] = None
                if number % _SLICE == 0:
                    await asyncio.sleep(0)
            found.update(dict.fromkeys(await self._partitions_in(namespace, TopicDomain.PERSISTENT)))
        if mode is not ListMode.PERSISTENT:
            found.update(dict.fromkeys(name for name in in_memory if not is_system_topic(name)))
            found.update(dict.fromkeys(await self._partitions_in(namespace, TopicDomain.NON_PERSISTENT)))
        return in_order(found)

    async def partitions(self, name: TopicName, *, create: bool) -> int:
        """Partition count for a client that wants to use a topic; made partitioned where that is the rule.

        0 for a topic that is not partitioned. TopicNotFound when there is none and none may be made.
        """
        await self._namespaces.require(name.namespace)
        count = 0 if name.is_partition else await self._namespaces.partitions(name)
        if count:
            return count
        creation = (await self._policies.effective_namespace(name.namespace)).topic_creation
        if not (create and creation.allowed):
            if name.is_persistent:
                await self.require(name)
            return 0
        if name.is_partition or not creation.partitions or is_system_topic(name):
            return 0
        if await self.exists(name):
            return 0
        await self.create_partitioned(name, creation.partitions, must_be_new=False)
        return await self._namespaces.partitions(name)

    # --- what may be made ---------------------------------------------------------------------------

    async def check_may_open(self, name: TopicName, *, create: bool) -> None:
        """Let a topic be loaded if it exists, or may be made now because someone uses it."""
        await self._namespaces.require(name.namespace)
        if await self.exists(name):
            return
        count = await self._namespaces.partitions(name)
        if count and name.is_partition:
            raise TopicNotFound(f"Topic {name} does not exist: {name.base} has {count} partitions")
        if count:
            raise NotSupported(f"Topic {name} is partitioned: it has {count} partitions and takes no messages itself")
        if not (create and (await self._policies.effective_namespace(name.namespace)).topic_creation.allowed):
            raise TopicNotFound(f"Topic {name} does not exist and may not be created automatically")
        await self._check_room(name.namespace, 1)

    async def check_new(self, name: TopicName) -> None:
        """TopicExists when a topic of this name is there, partitioned or not."""
        await self._namespaces.require(name.namespace)
        if await self.exists(name) or await self._namespaces.partitions(name):
            raise TopicExists(f"This topic already exists: {name}")
        await self._check_room(name.namespace, 1)

    async def create_partitioned(
        self,
        name: TopicName,
        partitions: int,
        *,
        properties: Mapping[str, str] | None = None,
        must_be_new: bool = True,
    ) -> None:
        """Make a partitioned topic; its partitions come into being when they are used."""
        if name.is_partition:
            raise NotSupported(f"{name} is a partition and cannot have partitions itself")
        self._check_partitions(partitions)
        if must_be_new:
            await self.check_new(name)
        await self._check_room(name.namespace, partitions)
        if not await self._namespaces.create_partitioned(name, partitions, properties) and must_be_new:
            raise TopicExists(f"This topic already exists: {name}")

    async def grow_partitioned(self, name: TopicName, partitions: int) -> None:
        """More partitions, online: clients notice at their next look."""
        self._check_partitions(partitions)
        count = await self.require_partitioned(name)
        await self._check_room(name.namespace, partitions - count)
        await self._namespaces.grow_partitioned(name, partitions)

    async def missing_partitions(self, name: TopicName) -> list[TopicName]:
        """Partitions that the record counts and of which nothing is stored yet."""
        count = await self.require_partitioned(name)
        partitions = [name.partition(index) for index in range(count)]
        return [each for each in partitions if not await self._managed_ledgers.exists(each.persistence_name)]

    # --- inside -------------------------------------------------------------------------------------

    async def _partitions_in(self, namespace: NamespaceName, domain: TopicDomain) -> list[TopicName]:
        """Of the users' topics."""
        partitions: list[TopicName] = []
        for number, topic in enumerate(await self._namespaces.partitioned(namespace, domain), 1):
            if is_system_topic(topic):
                continue
            for index in range(await self._namespaces.partitions(topic)):
                partitions.append(topic.partition(index))
                if len(partitions) % _SLICE == 0:
                    await asyncio.sleep(0)
            if number % _RECORDS_PER_SLICE == 0:
                await asyncio.sleep(0)
        return partitions

    def _check_partitions(self, partitions: int) -> None:
        partitions_max = self._settings.partitions_per_topic_max or PARTITIONS_MAX
        if not 1 <= partitions <= partitions_max:
            raise BadSetting(f"Number of partitions {partitions} should be between 1 and {partitions_max}")

    async def _check_room(self, namespace: NamespaceName, more: int) -> None:
        topics_max = (await self._policies.effective_namespace(namespace)).topics_max
        if topics_max and len(await self.names(namespace, ListMode.PERSISTENT)) + more > topics_max:
            raise LimitReached(f"Exceed maximum number of topics in namespace: {topics_max}")
