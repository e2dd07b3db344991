# SPDX-License-Identifier: Apache-2.0
"""The transactions of a broker: the coordinators that it serves, and the topics and subscriptions that take part.

Owns the coordinators that are open here, opened when the first client comes or when an earlier owner left work, and
the watch over their time-outs. What comes to a topic or subscription in a transaction that is not known there is taken
only if its coordinator says that it is open. Never reads a frame.
Carries.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from magnetar.broker.namespaces import Namespaces
from magnetar.broker.subscription import Subscription
from magnetar.broker.topic import Topic
from magnetar.broker.topics import Topics
from magnetar.broker.transactions.coordinator import LOG_NAME, Coordinator
from magnetar.broker.transactions.pending_ack_log import PendingAckLog
from magnetar.broker.transactions.subscription_acks import has_pending_acks, open_pending_acks
from magnetar.broker.transactions.txn_id import TxnId
from magnetar.config.broker import BrokerSettings
from magnetar.errors import (
    MagnetarError,
    NotAuthorized,
    NoTransactionCoordinator,
    NotSupported,
    SubscriptionNotFound,
)
from magnetar.names import TopicName
from magnetar.runtime.clock import WallClock
from magnetar.runtime.tasks import Tasks

ASSIGN_TOPIC: Final = TopicName.parse("persistent://pulsar/system/transaction_coordinator_assign")
# Ends that are on their way at the same time.
_TASKS_MAX: Final = 200_000
_TICK_S: Final = 0.1
# Coordinators that nobody has asked for since the start may have work that an earlier owner left.
_LOOK_S: Final = 10.0

_log = logging.getLogger(__name__)


class Transactions:
    def __init__(
        self,
        topics: Topics,
        namespaces: Namespaces,
        settings: BrokerSettings,
        clock: WallClock,
        on_crash: Callable[[str, BaseException], None],
    ) -> None:
        self.is_enabled = settings.transactions_enabled
        # Whether other brokers serve topics too: their ends cannot be told yet.
        self.is_shared = False
        self._topics = topics
        self._namespaces = namespaces
        self._settings = settings
        self._clock = clock
        self._tasks = Tasks("transactions", on_crash, tasks_max=_TASKS_MAX)
        self._amount = 0
        self._open: dict[int, Coordinator] = {}
        self._opening: dict[int, asyncio.Lock] = {}
        self._turns = asyncio.Semaphore(settings.transaction_participants_at_once)
        self._is_closed = False

    # --- life -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Put the coordinators on record, and take up what was left undone."""
        if not self.is_enabled or self.is_shared:
            return
        await self._namespaces.create_partitioned(ASSIGN_TOPIC, self._settings.transaction_coordinators)
        self._amount = await self._namespaces.partitions(ASSIGN_TOPIC)
        await self._open_left()
        self._tasks.start(self._watch(), "watch time-outs")

    async def close(self) -> None:
        self._is_closed = True
        for coordinator in list(self._open.values()):
            await coordinator.close()
        self._open.clear()
        await self._tasks.close()

    async def close_in(self, chosen: Callable[[TopicName], bool]) -> None:
        """Coordinators whose topic goes to another broker."""
        for number, coordinator in list(self._open.items()):
            if chosen(ASSIGN_TOPIC.partition(number)):
                self._forget(coordinator)
                await coordinator.close()

    # --- coordinators -----------------------------------------------------------------------------

    def coordinators(self) -> list[Coordinator]:
        """Those that are open here."""
        return list(self._open.values())

    @property
    def amount(self) -> int:
        """How many coordinators the cluster has."""
        return self._amount

    async def coordinator(self, number: int) -> Coordinator:
        """NoTransactionCoordinator when there is none of that number, or another broker serves it."""
        self.check_enabled()
        if self._is_closed or not 0 <= number < self._amount:
            raise NoTransactionCoordinator(f"There is no transaction coordinator {number}; there are {self._amount}")
        try:
            await self._topics.check_served(ASSIGN_TOPIC.partition(number))
        except MagnetarError as error:
            raise NoTransactionCoordinator(f"Transaction coordinator {number} is not served here: {error}") from error
        async with self._opening.setdefault(number, asyncio.Lock()):
            present = self._open.get(number)
            if present is not None and not present.is_closed:
                return present
            opened = await Coordinator.open(
                number, self._topics.managed_ledgers, self, self._settings, self._clock, self._tasks
            )
            opened.on_failed = self._on_failed
            self._open[number] = opened
            return opened

    async def grow(self, amount: int) -> None:
        """More coordinators."""
        self.check_enabled()
        await self._namespaces.grow_partitioned(ASSIGN_TOPIC, amount)
        self._amount = await self._namespaces.partitions(ASSIGN_TOPIC)

    async def of(self, txn_id: TxnId) -> Coordinator:
        return await self.coordinator(txn_id.most)

    def check_enabled(self) -> None:
        if not self.is_enabled:
            raise NotSupported("Transactions are not enabled: set transactionCoordinatorEnabled=true")
        if self.is_shared:
            raise NotSupported("Transactions are kept by a broker that is alone: in a cluster they are not served yet")

    # --- what comes to topics ---------------------------------------------------------------------

    def admits(self, topic: Topic, txn_id: TxnId) -> bool:
        """Whether a message may be taken at once; otherwise `admit` first."""
        return topic.transactions.admits(txn_id)

    async def admit(self, topic: Topic, txn_id: TxnId) -> None:
        """Ask the coordinator, and note the topic there: the end must reach it. Refused when it is not open."""
        coordinator = await self.of(txn_id)
        await coordinator.add_partitions(txn_id, [str(topic.name)])
        await topic.transactions.admit(txn_id)
        # It may have ended while the topic got ready.
        if coordinator.is_closed:
            raise NoTransactionCoordinator(f"Transaction coordinator {txn_id.most} has moved")
        coordinator.state.open(txn_id)

    async def pending_acks(self, topic: Topic, subscription: Subscription, txn_id: TxnId) -> PendingAckLog:
        """Where acknowledgements in this transaction go; noted at its coordinator. Refused when it is not open."""
        coordinator = await self.of(txn_id)
        await coordinator.add_subscriptions(txn_id, [(str(topic.name), subscription.name)])
        opened = await self._pending_acks(topic, subscription)
        if coordinator.is_closed:
            raise NoTransactionCoordinator(f"Transaction coordinator {txn_id.most} has moved")
        coordinator.state.open(txn_id)
        return opened

    async def _pending_acks(self, topic: Topic, subscription: Subscription) -> PendingAckLog:
        if subscription.pending_acks is not None:
            return subscription.pending_acks
        records_max = topic.settings.pending_ack_records_max
        return await open_pending_acks(topic.name, subscription, self._topics.managed_ledgers, self._tasks, records_max)

    # --- participants -----------------------------------------------------------------------------

    async def end_on_partition(self, topic: str, txn_id: TxnId, *, commit: bool, low_watermark: int) -> None:
        async with self._turns:
            await self.end_here(topic, txn_id, commit=commit)

    async def end_on_subscription(
        self, topic: str, subscription: str, txn_id: TxnId, *, commit: bool, low_watermark: int
    ) -> None:
        async with self._turns:
            await self.end_here(topic, txn_id, subscription=subscription, commit=commit)

    async def end_here(self, topic: str, txn_id: TxnId, *, commit: bool, subscription: str | None = None) -> None:
        """End a transaction on a topic or a subscription of this broker. ServiceNotReady when another serves it."""
        loaded = await self._topics.load(TopicName.parse(topic), create=False)
        if subscription is None:
            await loaded.transactions.end(txn_id, commit=commit)
            return
        found = loaded.subscriptions.get(subscription)
        if found is None:
            raise SubscriptionNotFound(f"Topic {topic} has no subscription '{subscription}'")
        if has_pending_acks(found):
            await (await self._pending_acks(loaded, found)).end(txn_id, commit=commit)

    # --- inside -----------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Abort what is open for too long; now and then look for work that was left."""
        looked_s = 0.0
        while True:
            await self._clock.pause(_TICK_S)
            for coordinator in self.coordinators():
                try:
                    coordinator.abort_expired()
                except MagnetarError as error:
                    _log.warning("aborting what is open for too long: %s", error)
            looked_s += _TICK_S
            if looked_s >= _LOOK_S:
                looked_s = 0.0
                await self._open_left()

    async def _open_left(self) -> None:
        """Open the coordinators that have a log and are served here, so that what is undone gets done."""
        for number in range(self._amount):
            if number in self._open or self._is_closed:
                continue
            try:
                if await self._topics.managed_ledgers.exists(LOG_NAME.format(number)):
                    await self.coordinator(number)
            except MagnetarError as error:
                _log.info("transaction coordinator %d is not opened now: %s", number, error)

    def _on_failed(self, coordinator: Coordinator) -> None:
        self._forget(coordinator)
        if not self._tasks.is_closed:
            self._tasks.start(coordinator.log.close(), f"close the log of coordinator {coordinator.coordinator_id}")

    def _forget(self, coordinator: Coordinator) -> None:
        if self._open.get(coordinator.coordinator_id) is coordinator:
            del self._open[coordinator.coordinator_id]


def check_owner(coordinator: Coordinator, txn_id: TxnId, role: str, *, is_super_user: bool) -> None:
    """A transaction is its opener's."""
    owner = coordinator.state.find(txn_id).owner
    if owner and owner != role and not is_super_user:
        raise NotAuthorized(f"Transaction {txn_id} is another client's")
