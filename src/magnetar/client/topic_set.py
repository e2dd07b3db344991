# SPDX-License-Identifier: Apache-2.0
"""The topics of one consumer, and the consumer of each of their partitions, as topics and partitions come and go.

A fixed list of names, or a pattern over a namespace: then brokers that can are asked to tell of changes, and all are
asked from time to time. New partitions of known topics are found the same way.
Carries.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeAlias

from magnetar.client.core import Core
from magnetar.client.lookup import Mode
from magnetar.client.options import RegexSubscriptionMode
from magnetar.client.partition_consumer import PartitionConsumer
from magnetar.client.topic_watch import TopicWatch
from magnetar.errors import BadName, MagnetarError, TopicNotFound
from magnetar.names import NamespaceName, TopicDomain, TopicName
from magnetar.runtime.tasks import Tasks
from magnetar.wire.proto import pulsar_api_pb2 as pb

MakePartition: TypeAlias = Callable[[TopicName, int], PartitionConsumer]

_MODES: Final[dict[RegexSubscriptionMode, "Mode.ValueType"]] = {
    RegexSubscriptionMode.PersistentOnly: pb.CommandGetTopicsOfNamespace.PERSISTENT,
    RegexSubscriptionMode.NonPersistentOnly: pb.CommandGetTopicsOfNamespace.NON_PERSISTENT,
    RegexSubscriptionMode.AllTopics: pb.CommandGetTopicsOfNamespace.ALL,
}

_log = logging.getLogger(__name__)


class Matcher(Protocol):
    def fullmatch(self, text: str, /) -> object | None: ...


class TopicPattern:
    """Which topics of a namespace are meant. The pattern is matched against the name without its domain."""

    def __init__(
        self,
        pattern: "str | re.Pattern[str]",
        mode: RegexSubscriptionMode,
        compiled: Callable[[str], Matcher] = re.compile,
    ) -> None:
        """`compiled`: what reads the pattern, for who must not be held up by it."""
        text = pattern if isinstance(pattern, str) else pattern.pattern
        domain, separator, rest = text.partition("://")
        parts = (rest if separator else text).split("/", 2)
        if len(parts) == 1:
            parts = ["public", "default", parts[0]]
        if len(parts) == 2:
            raise BadName(f"Topic pattern {text[:100]!r} should be tenant/namespace/pattern")
        self.namespace = NamespaceName(parts[0], parts[1])
        self.text = f"{domain if separator else TopicDomain.PERSISTENT}://{self.namespace}/{parts[2]}"
        self.mode = _MODES[mode]
        self._compiled = compiled(f"{re.escape(str(self.namespace))}/(?:{parts[2]})")

    def matches(self, topic: TopicName) -> bool:
        return self._compiled.fullmatch(str(topic.base).partition("://")[2]) is not None

    def select(self, names: Sequence[str]) -> list[TopicName]:
        """Topics, each once and without its partitions, in the order of their names. System topics are left out."""
        found = {TopicName.parse(name).base: None for name in names}
        return sorted(topic for topic in found if self.matches(topic) and not topic.local_name.startswith("__"))


class TopicSet:
    def __init__(
        self,
        core: Core,
        topics: Sequence[TopicName],
        tasks: Tasks,
        *,
        pattern: TopicPattern | None = None,
        discovery_interval_s: float = 60.0,
    ) -> None:
        self._core = core
        self._tasks = tasks
        self._topics = list(topics)
        self._pattern = pattern
        self._interval_s = discovery_interval_s
        self._partitions: dict[str, PartitionConsumer] = {}
        self._counts: dict[TopicName, int] = {}
        self._make: MakePartition | None = None
        self._watch: TopicWatch | None = None
        self._turn = asyncio.Lock()
        self.consumer_name = ""

    @property
    def is_dynamic(self) -> bool:
        return self._pattern is not None

    @property
    def name(self) -> str:
        if self._pattern is not None:
            return self._pattern.text
        return str(self._topics[0]) if len(self._topics) == 1 else ",".join(str(topic) for topic in self._topics)

    @property
    def partitions(self) -> list[PartitionConsumer]:
        return list(self._partitions.values())

    def find(self, topic: str | None, partition: int) -> PartitionConsumer | None:
        """The consumer of a topic, or of a partition where there is one topic, or the only one."""
        if topic is not None:
            return self._partitions.get(topic)
        if len(self._partitions) == 1:
            return next(iter(self._partitions.values()))
        if len(self._topics) == 1 and partition >= 0:
            return self._partitions.get(str(self._topics[0].partition(partition)))
        return None

    def ask_one(self) -> None:
        for partition in self._partitions.values():
            partition.ask_one()

    # --- opening -------------------------------------------------------------------------------

    async def open(self, make: MakePartition) -> None:
        self._make = make
        if self._pattern is not None:
            self._topics = await self._discover()
        await self._add(self._topics)
        if self._pattern is not None:
            self._watch = TopicWatch(self._core, self._pattern.namespace, self._pattern.text, self._on_changed)
            self._tasks.start(self._watch.run(), "watch topics")
            self._tasks.start(self._repeat(self._refresh_topics, self._interval_s), "discover topics")
        interval_s = self._core.settings.partitions_update_interval_seconds
        if interval_s > 0:
            self._tasks.start(self._repeat(self.update_partitions, interval_s), "watch partitions")

    async def _add(self, topics: Sequence[TopicName]) -> None:
        """Subscribe to all partitions of these topics; all or none."""
        counts = {topic: await self._count(topic) for topic in topics}
        names = [name for topic, count in counts.items() for name in _partition_names(topic, count)]
        await self._attach([name for name in names if str(name) not in self._partitions])
        self._counts |= counts

    async def _count(self, topic: TopicName) -> int:
        return 0 if topic.is_partition else await self._core.partitions_of(topic)

    async def _attach(self, names: Sequence[TopicName]) -> None:
        assert self._make is not None
        share = len(self._partitions) + len(names)
        made = [self._make(name, share) for name in names]
        try:
            async with asyncio.TaskGroup() as group:
                for partition in made:
                    group.create_task(partition.open())
        except BaseExceptionGroup as errors:
            await asyncio.gather(*(partition.close() for partition in made))
            raise errors.exceptions[0] from None
        except BaseException:
            await asyncio.gather(*(partition.close() for partition in made))
            raise
        for partition in made:
            self._partitions[str(partition.topic)] = partition
            self.consumer_name = self.consumer_name or partition.name

    # --- changes -------------------------------------------------------------------------------

    async def _repeat(self, check: Callable[[], Awaitable[None]], interval_s: float) -> None:
        while True:
            await asyncio.sleep(interval_s)
            await self._guarded(check)

    async def _guarded(self, check: Callable[[], Awaitable[None]]) -> None:
        try:
            await check()
        except MagnetarError as error:
            _log.info("%s: its topics cannot be checked now: %s", self.name, error)

    async def update_partitions(self) -> None:
        """Look for new partitions now."""
        async with self._turn:
            for topic in list(self._topics):
                if topic.is_partition:
                    continue
                count = await self._core.lookup.partitions(topic)
                if count > self._counts.get(topic, 0) > 0:
                    await self._attach(_partition_names(topic, count)[self._counts[topic] :])
                    self._counts[topic] = count

    async def _discover(self) -> list[TopicName]:
        assert self._pattern is not None
        found = await self._core.lookup.topics(self._pattern.namespace, self._pattern.mode, self._pattern.text, "")
        return self._pattern.select(found.topics)

    async def _refresh_topics(self) -> None:
        await self._apply(await self._discover())

    def _on_changed(self, added: Sequence[str], removed: Sequence[str]) -> None:
        """A broker told of topics that came or went."""
        self._tasks.start(self._guarded(self._refresh_topics), "topics changed")

    async def _apply(self, topics: list[TopicName]) -> None:
        """Subscribe to what is new, leave what is gone."""
        async with self._turn:
            for topic in [topic for topic in topics if topic not in self._topics]:
                try:
                    await self._add([topic])
                    self._topics.append(topic)
                except TopicNotFound:
                    _log.debug("%s came and went", topic)
            for topic in [topic for topic in self._topics if topic not in topics]:
                self._topics.remove(topic)
                for name in _partition_names(topic, self._counts.pop(topic, 0)):
                    partition = self._partitions.pop(str(name), None)
                    if partition is not None:
                        await partition.close()

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
        await asyncio.gather(*(partition.close() for partition in self._partitions.values()))


def _partition_names(topic: TopicName, count: int) -> list[TopicName]:
    return [topic.partition(index) for index in range(count)] if count > 0 else [topic]
