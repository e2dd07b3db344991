# SPDX-License-Identifier: Apache-2.0
"""Keeping loaded topics to their policies: at once when a record changes, and in rounds for what time brings.

Owns the rounds: expiry of messages, backlog quotas, unused subscriptions, compaction, replication. A topic that fails
in a round is logged and looked at again in the next; the others are not held up. Never decides what a policy means.
Carries.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable

from magnetar.broker.backlog import delete_unused_subscriptions, enforce_quotas, expire_messages
from magnetar.broker.compaction.topic_compaction import CompactionStatus
from magnetar.broker.policies.policies import Policies
from magnetar.broker.policies.topic_settings import storage_settings
from magnetar.broker.policies.values import QuotaType
from magnetar.broker.topic import Topic
from magnetar.broker.topics import Topics
from magnetar.config.broker import BrokerSettings
from magnetar.errors import MagnetarError, OwnerClosed, TooManyRequests
from magnetar.names import NamespaceName, TopicName
from magnetar.runtime.clock import WallClock
from magnetar.runtime.metrics import Histogram
from magnetar.runtime.tasks import Tasks

_log = logging.getLogger(__name__)

# Topics that are looked at before clients have their turn.
_TOPICS_PER_TURN = 20
_NAMESPACES_COUNTED_MAX = 1_000

Step = Callable[[Topic], Awaitable[object]]


class PolicyUpkeep:
    def __init__(
        self, topics: Topics, policies: Policies, settings: BrokerSettings, clock: WallClock, tasks: Tasks
    ) -> None:
        self._topics = topics
        self._policies = policies
        self._settings = settings
        self._clock = clock
        self._tasks = tasks
        # Topics whose policies changed, in order; one task applies them.
        self._changed: dict[TopicName, None] = {}
        self._is_applying = False
        self._applied = asyncio.Event()
        self._now_s = asyncio.get_running_loop().time
        # How long it took to look at the backlog of one topic.
        self.quota_check_s = Histogram()
        # How often backlogs of a namespace were cut for being too large or too old.
        self.evictions: Counter[tuple[str, str]] = Counter()
        self._end_listening = policies.on_changed(self._on_changed)

    def start(self) -> None:
        settings = self._settings
        now_ms = self._clock.now_ms
        rounds: list[tuple[str, int, Step]] = [
            (
                "message expiry",
                settings.message_expiry_check_interval_s,
                lambda topic: expire_messages(topic, now_ms()),
            ),
            (
                "subscription expiry",
                settings.subscription_expiry_check_interval_s,
                lambda topic: delete_unused_subscriptions(topic, now_ms()),
            ),
        ]
        rounds.append(("replication", settings.replication_check_interval_s, self._topics.replicate))
        rounds.append(("compaction", settings.compaction_check_interval_s, self._compact_when_due))
        if settings.backlog_quota_check_enabled:
            interval_s = settings.backlog_quota_check_interval_s
            rounds.append(("backlog quotas", interval_s, self._enforce_quotas))
        for name, interval_s, step in rounds:
            self._tasks.start(self._every(interval_s, name, step), f"policies: {name}")

    def close(self) -> None:
        self._end_listening()

    async def apply_now(self, namespace: NamespaceName, topic: TopicName | None) -> None:
        """Somebody changed a record here: return when every topic that is loaded knows."""
        self._on_changed(namespace, topic)
        while self._is_applying:
            await self._applied.wait()

    async def run(self, name: str, step: Step) -> None:
        """One round over the topics that are loaded now."""
        for number, topic in enumerate(self._topics.loaded(), 1):
            try:
                if self._topics.find(topic.name) is topic:
                    await step(topic)
            except MagnetarError as error:
                _log.warning("%s of topic %s: %s", name, topic.name, error)
            if number % _TOPICS_PER_TURN == 0:
                await asyncio.sleep(0)

    async def _every(self, interval_s: int, name: str, step: Step) -> None:
        while True:
            await self._clock.pause(interval_s)
            await self.run(name, step)

    async def _enforce_quotas(self, topic: Topic) -> None:
        started_s = self._now_s()
        await enforce_quotas(topic, self._clock.now_ms(), self._note_eviction)
        self.quota_check_s.observe(self._now_s() - started_s)

    def _note_eviction(self, topic: Topic, kind: QuotaType) -> None:
        key = (str(topic.name.namespace), "size" if kind is QuotaType.SIZE else "time")
        is_counted = key in self.evictions or len(self.evictions) < _NAMESPACES_COUNTED_MAX
        self.evictions[key if is_counted else ("other", key[1])] += 1

    @staticmethod
    async def _compact_when_due(topic: Topic) -> None:
        """One topic after the other: compaction is for when there is time."""
        threshold = 0 if topic.policies is None else topic.policies.compaction_threshold_bytes
        compaction = topic.compaction
        is_running = compaction.status is CompactionStatus.RUNNING
        if 0 < threshold < compaction.bytes_since and not is_running and not compaction.is_complete:
            await asyncio.wait((compaction.start(),))

    # --- changes ------------------------------------------------------------------------------------

    def _on_changed(self, namespace: NamespaceName, topic: TopicName | None) -> None:
        for name in self._topics.present_names():
            if name.namespace == namespace and topic in (None, name.base):
                self._changed[name] = None
        if self._changed and not self._is_applying:
            try:
                self._tasks.start(self._apply_changed(), "policies: apply")
                self._is_applying = True
                self._applied.clear()
            except (OwnerClosed, TooManyRequests) as error:
                _log.warning("policies are applied with the next change: %s", error)

    async def _apply_changed(self) -> None:
        try:
            while self._changed:
                name = next(iter(self._changed))
                del self._changed[name]
                topic = await self._topics.present(name)
                if topic is not None:
                    try:
                        await self._apply(topic)
                    except MagnetarError as error:
                        _log.warning("new policies of topic %s: %s", name, error)
                    # Working out what holds for a topic takes a while; clients have their turn in between.
                    await asyncio.sleep(0)
        finally:
            self._is_applying = False
            self._applied.set()

    async def _apply(self, topic: Topic) -> None:
        policies = await self._policies.effective(topic.name)
        if policies == topic.policies:
            return
        topic.apply(policies)
        await self._topics.groups.apply(topic)
        ledger = topic.managed_ledger
        ledger.settings = storage_settings(self._topics.managed_ledgers.settings, policies)
        ledger.upkeep()
        if policies.deduplication_enabled != topic.is_deduplicated:
            await topic.set_deduplication(policies.deduplication_enabled)
        await self._topics.replicate(topic)
        if self._settings.backlog_quota_check_enabled:
            await enforce_quotas(topic, self._clock.now_ms(), self._note_eviction)
