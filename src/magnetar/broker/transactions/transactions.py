# SPDX-License-Identifier: Apache-2.0
"""The transactions of a broker: the coordinators that it serves, and the topics and subscriptions that take part.

Owns the coordinators that are open here, opened when the first client comes or when an earlier owner left work, and
the watch over their time-outs. What comes to a topic or subscription in a transaction that is not known there is taken
only if its coordinator says that it is open. In a cluster, coordinators and participants may be other brokers': they
are asked over connections of this broker's own, and nobody says that there is nothing to end before the store has
said that it still owns the place. Never reads a frame.
Carries.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from magnetar.broker.namespaces import Namespaces
from magnetar.broker.peer_requests import PeerRequests
from magnetar.broker.subscription import Subscription
from magnetar.broker.topic import Topic
from magnetar.broker.topics import Topics
from magnetar.broker.transactions.coordinator import LOG_NAME, Coordinator
from magnetar.broker.transactions.pending_ack_log import PendingAckLog
from magnetar.broker.transactions.subscription_acks import has_pending_acks, open_pending_acks
from magnetar.broker.transactions.txn_id import TxnId
from magnetar.client.connection import Connection
from magnetar.config.broker import BrokerSettings
from magnetar.errors import (
    MagnetarError,
    NotAuthorized,
    NoTransactionCoordinator,
    NotSupported,
    SubscriptionNotFound,
)
from magnetar.names import ASSIGN_TOPIC, TopicName
from magnetar.runtime.clock import WallClock
from magnetar.runtime.tasks import Tasks
from magnetar.wire.commands import Type
from magnetar.wire.proto import pulsar_api_pb2 as pb

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
        # How to reach the other brokers of a cluster; None where this one serves everything.
        self._peers: PeerRequests | None = None
        # Whether this broker looks after coordinators that nobody serves.
        self._is_leader: Callable[[], bool] = lambda: True
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

    def share(self, peers: PeerRequests, is_leader: Callable[[], bool]) -> None:
        """Other brokers serve topics and coordinators too; before `start`."""
        self._peers = peers
        self._is_leader = is_leader

    async def start(self) -> None:
        """Put the coordinators on record, and take up what was left undone."""
        if not self.is_enabled:
            return
        await self._namespaces.create_partitioned(ASSIGN_TOPIC, self._settings.transaction_coordinators)
        self._amount = await self._namespaces.partitions(ASSIGN_TOPIC)
        if self._peers is None:
            await self._open_left()
        self._tasks.start(self._watch(), "watch time-outs")
        self._tasks.start(self._look_for_work(), "look for work that was left")

    async def close(self) -> None:
        self._is_closed = True
        for coordinator in list(self._open.values()):
            await coordinator.close()
        self._open.clear()
        await self._tasks.close()
        if self._peers is not None:
            await self._peers.close()

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
        if number >= self._amount:
            # Another broker may have been told to make more.
            self._amount = await self._namespaces.partitions(ASSIGN_TOPIC)
        if self._is_closed or not 0 <= number < self._amount:
            raise NoTransactionCoordinator(f"There is no transaction coordinator {number}; there are {self._amount}")
        await self._check_served(number)
        async with self._opening.setdefault(number, asyncio.Lock()):
            present = self._open.get(number)
            if present is not None and not present.is_closed:
                return present
            opened = await Coordinator.open(
                number,
                self._topics.managed_ledgers,
                self,
                self._settings,
                self._clock,
                self._tasks,
                is_shared=self._peers is not None,
            )
            opened.on_failed = self._on_failed
            self._open[number] = opened
            try:
                # Its bundle may have left while it was opened, and `close_in` found nothing to close.
                await self._check_served(number)
            except BaseException:
                self._forget(opened)
                await opened.close()
                raise
            return opened

    async def _check_served(self, number: int) -> None:
        try:
            await self._topics.check_served(ASSIGN_TOPIC.partition(number))
        except MagnetarError as error:
            raise NoTransactionCoordinator(f"Transaction coordinator {number} is not served here: {error}") from error

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

    # --- what comes to topics ---------------------------------------------------------------------

    def admits(self, topic: Topic, txn_id: TxnId) -> bool:
        """Whether a message may be taken at once; otherwise `admit` first."""
        return topic.transactions.admits(txn_id)

    async def admit(self, topic: Topic, txn_id: TxnId) -> None:
        """Ask the coordinator, and note the topic there: the end must reach it. Refused when it is not open."""
        coordinator = await self._register(txn_id, partition=str(topic.name))
        # What ends from now on ends here as well, and is refused then.
        await topic.transactions.admit(txn_id)
        if coordinator is not None:
            # It may have ended while the topic got ready.
            self._check_still_open(coordinator, txn_id)

    async def pending_acks(self, topic: Topic, subscription: Subscription, txn_id: TxnId) -> PendingAckLog:
        """Where acknowledgements in this transaction go; noted at its coordinator. Refused when it is not open."""
        pair = (str(topic.name), subscription.name)
        coordinator = await self._register(txn_id, subscription=pair)
        is_new = subscription.pending_acks is None
        opened = await self._pending_acks(topic, subscription)
        if coordinator is not None:
            self._check_still_open(coordinator, txn_id)
        elif is_new:
            # It may have ended while there was no log that could know of it.
            await self._register(txn_id, subscription=pair)
        return opened

    async def _register(
        self, txn_id: TxnId, *, partition: str = "", subscription: tuple[str, str] | None = None
    ) -> Coordinator | None:
        """Note who takes part at the transaction's coordinator, which is returned if this broker serves it."""
        self.check_enabled()
        owner = None if self._peers is None else await self._peers.owner_of(ASSIGN_TOPIC.partition(txn_id.most))
        if owner is not None:
            if subscription is None:
                await owner.request(Type.ADD_PARTITION_TO_TXN, _partition_request(txn_id, partition))
            else:
                await owner.request(Type.ADD_SUBSCRIPTION_TO_TXN, _subscription_request(txn_id, *subscription))
            return None
        coordinator = await self.of(txn_id)
        if subscription is None:
            await coordinator.add_partitions(txn_id, [partition])
        else:
            await coordinator.add_subscriptions(txn_id, [subscription])
        return coordinator

    @staticmethod
    def _check_still_open(coordinator: Coordinator, txn_id: TxnId) -> None:
        if coordinator.is_closed:
            raise NoTransactionCoordinator(f"Transaction coordinator {txn_id.most} has moved")
        coordinator.state.open(txn_id)

    async def _pending_acks(self, topic: Topic, subscription: Subscription) -> PendingAckLog:
        if subscription.pending_acks is not None:
            return subscription.pending_acks
        managed_ledgers = self._topics.managed_ledgers
        return await open_pending_acks(topic.name, subscription, managed_ledgers, self._tasks, topic.settings)

    # --- participants -----------------------------------------------------------------------------

    async def end_on_partition(self, topic: str, txn_id: TxnId, *, commit: bool, low_watermark: int) -> None:
        async with self._turns:
            owner = await self._owner_of(topic)
            if owner is None:
                await self.end_here(topic, txn_id, commit=commit)
            else:
                request = pb.CommandEndTxnOnPartition(topic=topic)
                _fill_end(request, txn_id, commit=commit, low_watermark=low_watermark)
                await owner.request(Type.END_TXN_ON_PARTITION, request)

    async def end_on_subscription(
        self, topic: str, subscription: str, txn_id: TxnId, *, commit: bool, low_watermark: int
    ) -> None:
        async with self._turns:
            owner = await self._owner_of(topic)
            if owner is None:
                await self.end_here(topic, txn_id, subscription=subscription, commit=commit)
            else:
                request = pb.CommandEndTxnOnSubscription()
                request.subscription.topic, request.subscription.subscription = topic, subscription
                _fill_end(request, txn_id, commit=commit, low_watermark=low_watermark)
                await owner.request(Type.END_TXN_ON_SUBSCRIPTION, request)

    async def _owner_of(self, topic: str) -> Connection | None:
        return None if self._peers is None else await self._peers.owner_of(TopicName.parse(topic))

    async def end_here(self, topic: str, txn_id: TxnId, *, commit: bool, subscription: str | None = None) -> None:
        """End a transaction on a topic or a subscription of this broker. ServiceNotReady when another serves it."""
        loaded = await self._topics.load(TopicName.parse(topic), create=False)
        if subscription is None:
            if self._peers is not None and not loaded.transactions.holds(txn_id):
                await loaded.managed_ledger.confirm_ownership()
            await loaded.transactions.end(txn_id, commit=commit)
            return
        found = loaded.subscriptions.get(subscription)
        if found is None:
            raise SubscriptionNotFound(f"Topic {topic} has no subscription '{subscription}'")
        if self._peers is None and not has_pending_acks(found):
            return
        pending = await self._pending_acks(loaded, found)
        if self._peers is not None and txn_id not in pending.acks:
            await pending.log.ledger.confirm_ownership()
        await pending.end(txn_id, commit=commit)

    # --- inside -----------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Abort what is open for too long."""
        while True:
            await self._clock.pause(_TICK_S)
            for coordinator in self.coordinators():
                try:
                    coordinator.abort_expired()
                except MagnetarError as error:
                    _log.warning("aborting what is open for too long: %s", error)

    async def _look_for_work(self) -> None:
        while True:
            await self._clock.pause(_LOOK_S)
            await self._open_left()

    async def _open_left(self) -> None:
        """Have the coordinators opened that have a log, so that what is undone gets done."""
        for number in range(self._amount):
            if number in self._open or self._is_closed:
                continue
            try:
                if await self._topics.managed_ledgers.exists(LOG_NAME.format(number)):
                    await self._take_up(number)
            except MagnetarError as error:
                _log.info("transaction coordinator %d is not opened now: %s", number, error)

    async def _take_up(self, number: int) -> None:
        """Here if it is served here; the leader has one that nobody serves assigned, and whoever gets it opens it."""
        if self._peers is not None and self._is_leader():
            owner = await self._peers.owner_of(ASSIGN_TOPIC.partition(number))
            if owner is not None:
                await owner.request(Type.TC_CLIENT_CONNECT_REQUEST, pb.CommandTcClientConnectRequest(tc_id=number))
                return
        await self.coordinator(number)

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


def _partition_request(txn_id: TxnId, partition: str) -> pb.CommandAddPartitionToTxn:
    request = pb.CommandAddPartitionToTxn(partitions=[partition])
    request.txnid_most_bits, request.txnid_least_bits = txn_id
    return request


def _subscription_request(txn_id: TxnId, topic: str, subscription: str) -> pb.CommandAddSubscriptionToTxn:
    request = pb.CommandAddSubscriptionToTxn()
    request.txnid_most_bits, request.txnid_least_bits = txn_id
    request.subscription.add(topic=topic, subscription=subscription)
    return request


def _fill_end(
    request: pb.CommandEndTxnOnPartition | pb.CommandEndTxnOnSubscription,
    txn_id: TxnId,
    *,
    commit: bool,
    low_watermark: int,
) -> None:
    request.txnid_most_bits, request.txnid_least_bits = txn_id
    request.txn_action = pb.COMMIT if commit else pb.ABORT
    request.txnid_least_bits_of_low_watermark = low_watermark
