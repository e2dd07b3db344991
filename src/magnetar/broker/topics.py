# SPDX-License-Identifier: Apache-2.0
"""The topics that this broker serves: loaded on first use, kept, unloaded, deleted.

Owns every loaded Topic. A topic is loaded once however many clients ask for it at the same time; a load that fails
leaves nothing behind, and the next client tries again. A topic whose storage failed is closed and loaded anew from
its ledgers. Which topics may be made, and what is deleted with them, is in `topic_directory.py`.
Carries.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

from magnetar.broker.dispatch.entry_filters import entry_filters
from magnetar.broker.dispatch.parts import DispatchMemory
from magnetar.broker.dispatch.pump import Pump
from magnetar.broker.list_budget import ListBudget
from magnetar.broker.namespaces import Namespaces
from magnetar.broker.non_persistent_topic import NonPersistentTopic
from magnetar.broker.policies.policies import Policies
from magnetar.broker.policies.topic_settings import storage_settings
from magnetar.broker.rate_limit import NamedLimit, Rate, RateLimiter, limiter_for, named_limit
from magnetar.broker.resource_groups import ResourceGroups
from magnetar.broker.served import ServedTopic
from magnetar.broker.shadow_topic import ShadowTopic, shadow_source
from magnetar.broker.sheltered import sheltered
from magnetar.broker.timed import Timed
from magnetar.broker.topic import Topic
from magnetar.broker.topic_activity import inactive_since_ms, refuse_when_busy
from magnetar.broker.topic_directory import TopicDirectory
from magnetar.broker.topic_list import ListMode, check_not_a_log, is_system_topic
from magnetar.broker.topic_watches import TopicWatches
from magnetar.broker.transactions.subscription_acks import close_pending_acks, recover_pending_acks
from magnetar.config.broker import BrokerSettings
from magnetar.errors import MagnetarError, NotSupported, ServiceNotReady, TopicBusy, TopicExists, TopicNotFound
from magnetar.managed_ledger.managed_ledgers import ManagedLedgers
from magnetar.metadata.store import MetadataStore
from magnetar.names import NamespaceName, TopicName
from magnetar.runtime.clock import WallClock
from magnetar.runtime.tasks import Tasks
from magnetar.runtime.turn_end import turn_end

# Topics that are looked after before clients have their turn.
_LOOKED_AFTER_PER_TURN: Final = 20

_log = logging.getLogger(__name__)


class Topics:
    def __init__(
        self,
        namespaces: Namespaces,
        managed_ledgers: ManagedLedgers,
        settings: BrokerSettings,
        clock: WallClock,
        tasks: Tasks,
        store: MetadataStore,
        policies: Policies | None = None,
    ) -> None:
        self.namespaces = namespaces
        self.managed_ledgers = managed_ledgers
        self._settings = settings
        self._clock = clock
        self._tasks = tasks
        self.policies = policies or Policies(store, settings, managed_ledgers.settings)
        self.directory = TopicDirectory(namespaces, managed_ledgers, settings, self.policies)
        self.loads = Timed(asyncio.get_running_loop().time)
        # What lists of topics may take at one time, whoever asks for them.
        self.list_budget = ListBudget(settings)
        self.watches = TopicWatches(store, tasks, read=self.visible_names, exists=self.directory.exists)
        self.dispatch = DispatchMemory(filters=entry_filters(settings))
        self.policies.check_filters = self.dispatch.filters.check
        self.groups = ResourceGroups(store, tasks, self.loaded)
        self._loaded: dict[TopicName, Topic] = {}
        self._in_memory: dict[TopicName, NonPersistentTopic] = {}
        self._loading: dict[TopicName, asyncio.Future[Topic]] = {}
        # Topics that are on their way out, and when they have left; whoever wants them loads them afterwards.
        self._leaving: dict[TopicName, asyncio.Event] = {}
        self._upkeep: asyncio.Task[None] | None = None
        self._broker_limiter: RateLimiter | None = None
        self._dispatch_limit: NamedLimit | None = None
        self._closing = False
        # One of each for all topics: a bound method is an object of its own.
        loop = asyncio.get_running_loop()
        self._call_soon, self._call_later, self._now_s = turn_end().call, loop.call_later, loop.time
        self._on_failed = self._on_topic_failed
        # Told of every topic that is deleted for good, when its log is gone.
        self.on_deleted: Callable[[TopicName], Awaitable[object]] | None = None
        # Refuses a topic that another broker owns; asked before a topic is opened and again when it is.
        self.check_served: Callable[[TopicName], Awaitable[None]] = _serve_all
        # Brings a topic to the clusters that its policies name.
        self.replicate: Callable[[Topic], Awaitable[None]] = _stay_here
        # Told why a topic's storage failed.
        self.on_storage_failed: Callable[[TopicName, MagnetarError], None] | None = None

    def loaded(self) -> list[Topic]:
        return list(self._loaded.values())

    def in_memory(self) -> list[NonPersistentTopic]:
        """The non-persistent topics that are in use here."""
        return list(self._in_memory.values())

    def pumps(self) -> list[Pump]:
        """The pumps of all subscriptions that are loaded here."""
        return [subscription.pump for topic in self._loaded.values() for subscription in topic.subscriptions.values()]

    def find(self, name: TopicName) -> Topic | None:
        """The topic if it is loaded here."""
        return self._loaded.get(name)

    def present_names(self) -> list[TopicName]:
        """The stored topics that are loaded here or are being loaded."""
        return [*self._loaded, *self._loading]

    async def present_in(self, chosen: Callable[[TopicName], bool]) -> list[TopicName]:
        """The topics among the chosen that are served here, once those that are being loaded are."""
        loading = [future for name, future in self._loading.items() if chosen(name)]
        if loading:
            await asyncio.wait(loading)
        return [name for name in (*self._loaded, *self._in_memory) if chosen(name)]

    async def present(self, name: TopicName) -> Topic | None:
        """The topic if it is loaded here, once it is when it is being loaded."""
        loading = self._loading.get(name)
        if loading is not None:
            await asyncio.wait((loading,))
        return self._loaded.get(name)

    async def open(self, name: TopicName, *, create: bool) -> ServedTopic:
        """The topic of this name, stored or not. TopicNotFound when it is absent and may not be made."""
        if name.is_persistent:
            return await self.load(name, create=create)
        await self.check_served(name)
        if self._closing:
            raise ServiceNotReady("The broker is stopping; look the topic up again")
        if name not in self._in_memory:
            await self.directory.check_may_open(name, create=create)
            self._start_upkeep()
        topic = self._in_memory.get(name)
        if topic is None:
            topic = NonPersistentTopic(name, self._settings, self._tasks, self.dispatch.facts)
            self._in_memory[name] = topic
        return topic

    async def load(self, name: TopicName, *, create: bool) -> Topic:
        """The stored topic of this name. TopicNotFound when it is absent and may not be made."""
        check_not_a_log(name)
        await self.check_served(name)
        if self._closing:
            raise ServiceNotReady("The broker is stopping; look the topic up again")
        if name in self._leaving:
            raise ServiceNotReady(f"Topic {name} is being unloaded or deleted; look it up again")
        topic = self._loaded.get(name)
        if topic is not None:
            return topic
        loading = self._loading.get(name)
        if loading is None:
            loading = asyncio.get_running_loop().create_future()
            self._tasks.start(self._load(name, create, loading), f"load {name}")
            self._loading[name] = loading
        return await asyncio.shield(loading)

    async def names(self, namespace: NamespaceName, mode: ListMode = ListMode.PERSISTENT) -> Sequence[TopicName]:
        """The users' topics of a namespace: those that are stored, partitions included, and those in memory alone."""
        in_memory = [name for name in self._in_memory if name.namespace == namespace]
        return await self.directory.names(namespace, mode, in_memory)

    async def visible_names(
        self, namespace: NamespaceName, mode: ListMode = ListMode.PERSISTENT
    ) -> Sequence[TopicName]:
        """As `names`; a namespace that does not exist has no topics, which is what clients are told."""
        try:
            return await self.names(namespace, mode)
        except TopicNotFound:
            return ()

    async def partitions(self, name: TopicName, *, create: bool) -> int:
        """Partition count for a client that wants to use a topic; 0 for one that is not partitioned."""
        return await self.directory.partitions(name, create=create)

    async def unload(self, name: TopicName) -> None:
        """Close a topic here; its clients look it up again, and whoever serves it next finds everything."""
        in_memory = self._in_memory.pop(name, None)
        if in_memory is not None:
            await in_memory.close()
        leaving, topic = self._leaving.get(name), self._loaded.get(name)
        if leaving is not None:
            await leaving.wait()
        elif topic is not None:
            await sheltered(self._tasks, self._unload(topic), f"unload {name}")

    async def delete(self, name: TopicName, *, force: bool = False) -> None:
        """Delete a topic with everything that is stored of it. TopicNotFound, or TopicBusy unless it is forced."""
        in_memory = self._in_memory.get(name)
        if in_memory is not None:
            if not (force or in_memory.is_unused):
                raise TopicBusy(f"Topic {name} has producers or consumers")
            await self.unload(name)
            return
        if name in self._leaving:
            raise TopicBusy(f"Topic {name} is being unloaded or deleted already")
        await self.directory.require(name)
        topic = await self.load(name, create=False)
        if not force:
            refuse_when_busy(topic)
        await sheltered(self._tasks, self._delete(topic, force=force), f"delete {name}")

    async def create(self, name: TopicName, properties: Mapping[str, str] | None = None) -> None:
        """Make a topic that is not partitioned: a record alone, its first ledger comes with its first use.

        TopicExists when there is one of this name, partitioned or not.
        """
        check_not_a_log(name)
        await self.directory.check_new(name)
        if name.is_persistent and not await self.managed_ledgers.create(name.persistence_name, properties):
            raise TopicExists(f"This topic already exists: {name}")

    async def create_missing_partitions(self, name: TopicName) -> int:
        """Put on record what the number of partitions promises; returns how many were missing."""
        missing = await self.directory.missing_partitions(name)
        for partition in missing:
            await self.managed_ledgers.create(partition.persistence_name)
        return len(missing)

    async def delete_partitioned(self, name: TopicName, *, force: bool = False) -> None:
        """Delete a partitioned topic: its partitions, then the record that says how many there are.

        Whatever a crash leaves can be deleted again, because the record goes last.
        """
        count = await self.directory.require_partitioned(name)
        present = [name.partition(index) for index in range(count)]
        loaded = [self._loaded[partition] for partition in present if partition in self._loaded]
        if not force:
            for topic in loaded:
                refuse_when_busy(topic)
        for partition in present:
            if await self.managed_ledgers.exists(partition.persistence_name):
                await self.delete(partition, force=force)
        await self._forget(name)
        await self.namespaces.delete_partitioned(name)

    async def _forget(self, name: TopicName) -> None:
        """What is kept of a topic beside its log goes with it; partitions share theirs, which stay with the base."""
        if not name.is_partition:
            await self.policies.delete_topic(name)
            if self.on_deleted is not None:
                await self.on_deleted(name)

    def limit_publishing(self, rate: Rate) -> None:
        """What all topics of this broker may take together."""
        self._broker_limiter = limiter_for(rate, self._broker_limiter, asyncio.get_running_loop().time())
        for topic in self._loaded.values():
            topic.publish_rates.limit_broker(self._broker_limiter)

    def limit_dispatch(self, rate: Rate) -> None:
        """What all topics of this broker may send to consumers together."""
        now_s = asyncio.get_running_loop().time
        self._dispatch_limit = named_limit("dispatch rate of the broker", rate, self._dispatch_limit, now_s)
        for topic in self._loaded.values():
            topic.dispatch_rates.limit_broker(self._dispatch_limit)

    async def close(self) -> None:
        self._closing = True
        self.groups.close()
        if self._upkeep is not None:
            self._upkeep.cancel()
        for name in [*self._in_memory, *self._loaded]:
            try:
                await self.unload(name)
            except MagnetarError as error:
                _log.warning("closing topic %s failed: %s", name, error)

    # --- loading ------------------------------------------------------------------------------------

    async def _load(self, name: TopicName, create: bool, loading: asyncio.Future[Topic]) -> None:
        try:
            with self.loads.one():
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
        if not name.is_persistent:
            raise NotSupported(f"{name} is not persistent: nothing of it is stored")
        await self.directory.check_may_open(name, create=create)
        self._start_upkeep()
        source = await shadow_source(name, self.managed_ledgers, self.namespaces, self.policies)
        topic = (Topic if source is None else ShadowTopic)(
            name,
            self._settings,
            self._clock,
            self._tasks,
            call_soon=self._call_soon,
            call_later=self._call_later,
            on_failed=self._on_failed,
            now_s=self._now_s,
            dispatch=self.dispatch,
        )
        topic.publish_rates.limit_broker(self._broker_limiter)
        topic.dispatch_rates.limit_broker(self._dispatch_limit)
        policies = await self.policies.effective(name)
        topic.apply(policies)
        await self.groups.apply(topic)
        storage = storage_settings(self.managed_ledgers.settings, policies)
        managed_ledger = await self.managed_ledgers.open(
            name.persistence_name, topic, settings=storage, source=None if source is None else source.persistence_name
        )
        try:
            await topic.attach(managed_ledger, deduplicate=policies.deduplication_enabled)
            await recover_pending_acks(topic, self.managed_ledgers, self._tasks)
            if self._closing:
                raise ServiceNotReady("The broker is stopping; look the topic up again")
            await self.check_served(name)
            await self.replicate(topic)
        except BaseException:
            if topic.replication is not None:
                await topic.replication.close()
            await close_pending_acks(topic)
            await managed_ledger.close()
            raise
        return topic

    # --- leaving ------------------------------------------------------------------------------------

    # Each looks again whether the topic is leaving: it may have begun to since the task was started that runs this.

    async def _unload(self, topic: Topic) -> None:
        leaving = self._leaving.get(topic.name)
        if leaving is None:
            await self._leave(topic, topic.close())
        else:
            await leaving.wait()

    async def _delete(self, topic: Topic, *, force: bool) -> None:
        if topic.name in self._leaving:
            raise TopicBusy(f"Topic {topic.name} is being unloaded or deleted already")
        await self._leave(topic, self._delete_whole(topic, force=force))

    async def _delete_whole(self, topic: Topic, *, force: bool) -> None:
        """With all that is kept beside its log, before it can be made anew: a new one must not lose its schema."""
        await topic.delete(force=force)
        await self._forget(topic.name)

    async def _leave(self, topic: Topic, step: Coroutine[Any, Any, None]) -> None:
        """Close or delete a topic, unless it stays. Whoever comes next loads it from what is stored, come what may."""
        left = self._leaving[topic.name] = asyncio.Event()
        try:
            await step
        finally:
            del self._leaving[topic.name]
            left.set()
            if topic.is_closing and self._loaded.get(topic.name) is topic:
                del self._loaded[topic.name]

    def _on_topic_failed(self, topic: Topic, error: MagnetarError) -> None:
        if self._closing or self._loaded.get(topic.name) is not topic or topic.name in self._leaving:
            return
        if self.on_storage_failed is not None:
            self.on_storage_failed(topic.name, error)
        _log.warning("topic %s is closed and loaded anew, its storage failed: %s", topic.name, error)
        self._tasks.start(self._close_failed(topic), f"close failed {topic.name}")

    async def _close_failed(self, topic: Topic) -> None:
        try:
            await self._unload(topic)
        except MagnetarError as error:
            _log.warning("closing topic %s after a failure: %s", topic.name, error)

    # --- upkeep -------------------------------------------------------------------------------------

    def _start_upkeep(self) -> None:
        if self._upkeep is None:
            rate = Rate(self._settings.broker_publish_messages_per_s, self._settings.broker_publish_bytes_per_s)
            self.limit_publishing(rate)
            self.limit_dispatch(
                Rate(self._settings.broker_dispatch_messages_per_s, self._settings.broker_dispatch_bytes_per_s)
            )
            self._upkeep = self._tasks.start(self._look_after(), "topics: upkeep")

    async def _look_after(self) -> None:
        settings = self._settings
        looked_s = self._clock.elapsed_s()
        while True:
            await self._clock.pause(settings.topic_upkeep_interval_s)
            for number, topic in enumerate(self.loaded(), 1):
                if self._loaded.get(topic.name) is topic:
                    topic.upkeep()
                if number % _LOOKED_AFTER_PER_TURN == 0:
                    await asyncio.sleep(0)
            for name, in_memory in list(self._in_memory.items()):
                if in_memory.is_unused:
                    await self.unload(name)
            # By the clock, not by rounds: those that were missed are one.
            if self._clock.elapsed_s() - looked_s >= settings.inactive_topic_check_interval_s:
                looked_s = self._clock.elapsed_s()
                await self.delete_inactive()

    async def delete_inactive(self) -> None:
        """Delete topics that nothing has used for as long as their policies say; never what retention still keeps."""
        for topic in self.loaded():
            policy = topic.policies.inactivity if topic.policies is not None else None
            if policy is None or not policy.delete or topic.name in self._leaving or is_system_topic(topic.name):
                continue
            since_ms = inactive_since_ms(topic, policy.mode, self._clock.now_ms())
            retention_ms = topic.managed_ledger.settings.retention_ms
            if since_ms is None or (retention_ms < 0 and topic.managed_ledger.entries):
                continue
            if self._clock.now_ms() - since_ms < max(policy.duration_s * 1000, retention_ms):
                continue
            try:
                _log.info("deleting topic %s: nothing has used it for %d s", topic.name, policy.duration_s)
                # Nothing may come between the question and the end.
                await self._delete(topic, force=False)
            except MagnetarError as error:
                _log.warning("deleting the inactive topic %s: %s", topic.name, error)


async def _serve_all(name: TopicName) -> None:
    return


async def _stay_here(topic: Topic) -> None:
    return
