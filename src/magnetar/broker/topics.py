# SPDX-License-Identifier: Apache-2.0
"""The topics that this broker serves: loaded on first use, kept, unloaded.

Owns every loaded Topic. A topic is loaded once however many clients ask for it at the same time; a load that fails
leaves nothing behind, and the next client tries again. A topic whose storage failed is closed and loaded anew from
its ledgers.
Carries.
"""

import asyncio
import logging

from magnetar.broker.dispatch.parts import DispatchMemory
from magnetar.broker.dispatch.pump import Pump
from magnetar.broker.namespaces import Namespaces
from magnetar.broker.topic import Topic
from magnetar.config.broker import BrokerSettings
from magnetar.errors import MagnetarError, NotSupported, ServiceNotReady, TopicNotFound
from magnetar.managed_ledger.managed_ledgers import ManagedLedgers
from magnetar.names import TopicDomain, TopicName
from magnetar.runtime.clock import WallClock
from magnetar.runtime.tasks import Tasks

_log = logging.getLogger(__name__)


class Topics:
    def __init__(
        self,
        namespaces: Namespaces,
        managed_ledgers: ManagedLedgers,
        settings: BrokerSettings,
        clock: WallClock,
        tasks: Tasks,
    ) -> None:
        self.namespaces = namespaces
        self.managed_ledgers = managed_ledgers
        self._settings = settings
        self._clock = clock
        self._tasks = tasks
        self.dispatch = DispatchMemory()
        self._loaded: dict[TopicName, Topic] = {}
        self._loading: dict[TopicName, asyncio.Future[Topic]] = {}
        self._closing = False

    def loaded(self) -> list[Topic]:
        return list(self._loaded.values())

    def pumps(self) -> list[Pump]:
        """The pumps of all subscriptions that are loaded here."""
        return [subscription.pump for topic in self._loaded.values() for subscription in topic.subscriptions.values()]

    async def load(self, name: TopicName, *, create: bool) -> Topic:
        """The topic of this name. TopicNotFound when it is absent and may not be made."""
        if self._closing:
            raise ServiceNotReady("The broker is stopping; look the topic up again")
        topic = self._loaded.get(name)
        if topic is not None:
            return topic
        loading = self._loading.get(name)
        if loading is None:
            loading = asyncio.get_running_loop().create_future()
            self._loading[name] = loading
            self._tasks.start(self._load(name, create, loading), f"load {name}")
        return await asyncio.shield(loading)

    async def partitions(self, name: TopicName, *, create: bool) -> int:
        """Partition count for a client that wants to use a topic; auto-creation makes a partitioned one where that
        is the rule.
        """
        await self.namespaces.require(name.namespace)
        count = await self.namespaces.partitions(name)
        settings = self._settings
        if count or name.is_partition or not create:
            return count
        if not (settings.allow_auto_topic_creation and settings.auto_topic_creation_partitioned):
            return 0
        if name.domain is TopicDomain.PERSISTENT and await self.managed_ledgers.exists(name.persistence_name):
            return 0
        await self.namespaces.create_partitioned(name, settings.default_partitions)
        return await self.namespaces.partitions(name)

    async def unload(self, name: TopicName) -> None:
        topic = self._loaded.get(name)
        if topic is not None:
            await topic.close()
            if self._loaded.get(name) is topic:
                del self._loaded[name]

    async def close(self) -> None:
        self._closing = True
        for name in list(self._loaded):
            try:
                await self.unload(name)
            except MagnetarError as error:
                _log.warning("closing topic %s failed: %s", name, error)

    async def _load(self, name: TopicName, create: bool, loading: asyncio.Future[Topic]) -> None:
        try:
            topic = await self._open(name, create)
        except MagnetarError as error:
            loading.set_exception(error)
            # Every client that waited may have left.
            loading.exception()
        else:
            self._loaded[name] = topic
            loading.set_result(topic)
        finally:
            del self._loading[name]
            loading.cancel()

    async def _open(self, name: TopicName, create: bool) -> Topic:
        if name.domain is not TopicDomain.PERSISTENT:
            raise NotSupported("Non-persistent topics are not served yet")
        await self.namespaces.require(name.namespace)
        if not await self.managed_ledgers.exists(name.persistence_name):
            await self._refuse_creation(name, create)
        loop = asyncio.get_running_loop()
        topic = Topic(
            name,
            self._settings,
            self._clock,
            self._tasks,
            call_soon=loop.call_soon,
            call_later=loop.call_later,
            on_failed=self._on_topic_failed,
            dispatch=self.dispatch,
        )
        await topic.attach(await self.managed_ledgers.open(name.persistence_name, topic))
        return topic

    async def _refuse_creation(self, name: TopicName, create: bool) -> None:
        if name.is_partition:
            count = await self.namespaces.partitions(name.base)
            if name.partition_index < count:
                return
        if not (create and self._settings.allow_auto_topic_creation):
            raise TopicNotFound(f"Topic {name} does not exist and may not be created automatically")

    def _on_topic_failed(self, topic: Topic, error: MagnetarError) -> None:
        if self._closing or self._loaded.get(topic.name) is not topic:
            return
        _log.warning("topic %s is closed and loaded anew, its storage failed: %s", topic.name, error)
        del self._loaded[topic.name]
        self._tasks.start(self._close_failed(topic), f"close failed {topic.name}")

    async def _close_failed(self, topic: Topic) -> None:
        try:
            await topic.close()
        except MagnetarError as error:
            _log.warning("closing topic %s after a failure: %s", topic.name, error)
