# SPDX-License-Identifier: Apache-2.0
"""One transaction coordinator: logs what its transactions do, decides their end, and carries the outcome to everyone.

Owns its state and its log. A decision is told to nobody before its record is durable, and then it is final: the
participants are told, again and again until each has done it, over restarts too. Ended by its log's failure: whoever
is next opens it anew. Never writes to a topic itself.
Carries.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from magnetar.broker.transactions.coordinator_state import CoordinatorState, Transaction, decode
from magnetar.broker.transactions.record_batch import BatchLimits
from magnetar.broker.transactions.record_log import RecordLog
from magnetar.broker.transactions.txn_id import TxnId
from magnetar.config.broker import BrokerSettings
from magnetar.errors import (
    BadName,
    MagnetarError,
    NoTransactionCoordinator,
    SubscriptionNotFound,
    TopicNotFound,
)
from magnetar.managed_ledger.managed_ledgers import ManagedLedgers
from magnetar.runtime.clock import WallClock
from magnetar.runtime.tasks import Tasks
from magnetar.wire.proto.transaction_metadata_pb2 import TransactionMetadataEntry as Record

LOG_NAME: Final = "pulsar/system/persistent/__transaction_log_{}"
CURSOR: Final = "transaction.subscription"
# The highest id that was given out, saved with the place from which the log is kept.
LAST_ID_PROPERTY: Final = "max_local_txn_id"
_RETRY_S_MIN: Final = 0.1
_RETRY_S_MAX: Final = 5.0

_log = logging.getLogger(__name__)


class Participants(Protocol):
    """Topics and subscriptions, wherever they are served. Both calls may be repeated."""

    async def end_on_partition(self, topic: str, txn_id: TxnId, *, commit: bool, low_watermark: int) -> None: ...

    async def end_on_subscription(
        self, topic: str, subscription: str, txn_id: TxnId, *, commit: bool, low_watermark: int
    ) -> None: ...


class Coordinator:
    def __init__(
        self,
        state: CoordinatorState,
        log: RecordLog,
        participants: Participants,
        settings: BrokerSettings,
        clock: WallClock,
        tasks: Tasks,
        *,
        is_shared: bool = False,
    ) -> None:
        self.state = state
        self.log = log
        self.is_closed = False
        # Told when this coordinator is of no more use.
        self.on_failed: Callable[[Coordinator], None] | None = None
        self._participants = participants
        self._settings = settings
        self._clock = clock
        self._tasks = tasks
        self._is_shared = is_shared
        self._ending: dict[TxnId, asyncio.Event] = {}
        log.on_failed = self._on_log_failed

    @staticmethod
    async def open(
        coordinator_id: int,
        managed_ledgers: ManagedLedgers,
        participants: Participants,
        settings: BrokerSettings,
        clock: WallClock,
        tasks: Tasks,
        *,
        is_shared: bool = False,
    ) -> "Coordinator":
        """Take the coordinator over from whoever had it, and go on where that one stopped.

        Shared: another broker may take it over in turn.
        """
        log = await RecordLog.open(managed_ledgers, LOG_NAME.format(coordinator_id), CURSOR, _batches(settings))
        try:
            state = CoordinatorState(
                coordinator_id,
                active_max=settings.transactions_active_max,
                ended_max=settings.transactions_ended_max,
                last_id=log.cursor.properties.get(LAST_ID_PROPERTY, 0),
            )
            async for position, data in log.records():
                record = decode(data)
                state.apply(record)
                state.on_stored(record, position)
        except BaseException:
            await log.close()
            raise
        coordinator = Coordinator(state, log, participants, settings, clock, tasks, is_shared=is_shared)
        for transaction in state.transactions():
            if transaction.is_ending:
                coordinator._start_ending(transaction)
        return coordinator

    @property
    def coordinator_id(self) -> int:
        return self.state.coordinator_id

    # --- for clients ------------------------------------------------------------------------------

    async def new(self, timeout_ms: int, owner: str = "") -> TxnId:
        self._check_open()
        record = self.state.new(timeout_ms, self._clock.now_ms(), owner)
        await self._logged(record)
        return TxnId(self.coordinator_id, record.txnid_least_bits)

    async def add_partitions(self, txn_id: TxnId, partitions: Iterable[str]) -> None:
        """Where another broker may have taken over unnoticed, only what it writes now proves that it is the one."""
        self._check_open()
        again = self._is_shared
        await self._logged(self.state.add_partitions(txn_id, partitions, self._clock.now_ms(), again=again))

    async def add_subscriptions(self, txn_id: TxnId, subscriptions: Iterable[tuple[str, str]]) -> None:
        """As `add_partitions`."""
        self._check_open()
        again = self._is_shared
        await self._logged(self.state.add_subscriptions(txn_id, subscriptions, self._clock.now_ms(), again=again))

    async def end(self, txn_id: TxnId, *, commit: bool) -> None:
        """Returns when the decision is durable and every participant has carried it out, or soon after that it will:
        what is decided is final.
        """
        self._check_open()
        await self._logged(self._decide(txn_id, commit=commit))
        done = self._ending.get(txn_id)
        if done is None:
            return
        try:
            async with asyncio.timeout(self._settings.transaction_participant_timeout_ms / 1000):
                await done.wait()
        except TimeoutError:
            _log.info("transaction %s is decided; some of its participants are yet to hear of it", txn_id)

    # --- for the broker ---------------------------------------------------------------------------

    def abort_expired(self) -> int:
        """Decide the end of transactions whose time is up; returns how many."""
        if self.is_closed:
            return 0
        expired = self.state.expired(self._clock.now_ms())
        for txn_id in expired:
            _log.info("transaction %s is aborted: its time is up", txn_id)
            record = self._decide(txn_id, commit=False)
            if record is not None:
                self._append(record)
        return len(expired)

    async def close(self) -> None:
        if not self.is_closed:
            self._stop()
            await self.log.close()

    # --- inside -----------------------------------------------------------------------------------

    def _decide(self, txn_id: TxnId, *, commit: bool) -> Record | None:
        record = self.state.end(txn_id, commit=commit, now_ms=self._clock.now_ms())
        transaction = self.state.find(txn_id)
        if record is not None:
            self._start_ending(transaction)
        return record

    async def _logged(self, record: Record | None) -> None:
        """Without a record of its own a wish is fulfilled by an earlier one, which may be on its way."""
        if record is not None:
            self._append(record)
        await self.log.synced()

    def _append(self, record: Record) -> None:
        try:
            self.log.append(record.SerializeToString(), lambda position: self.state.on_stored(record, position))
        except MagnetarError as error:
            # The state is ahead of the log now: it must not be used any more.
            self._on_log_failed(error)
            raise NoTransactionCoordinator(f"Coordinator {self.coordinator_id} is opened anew: {error}") from error

    def _start_ending(self, transaction: Transaction) -> None:
        done = self._ending[transaction.id] = asyncio.Event()
        try:
            self._tasks.start(self._carry_out(transaction, done), f"end transaction {transaction.id}")
        except MagnetarError as error:
            # It is done by whoever opens the coordinator next.
            self._on_log_failed(error)

    async def _carry_out(self, transaction: Transaction, done: asyncio.Event) -> None:
        """Tell every participant until all have done it, then note that nothing is left to do."""
        try:
            # Let the decision be appended by whoever made it.
            await asyncio.sleep(0)
            await self.log.synced()
            partitions, subscriptions = list(transaction.partitions), list(transaction.subscriptions)
            await asyncio.gather(
                *(self._end_partition(transaction, topic) for topic in partitions),
                *(self._end_subscription(transaction, *pair) for pair in subscriptions),
            )
            if self.is_closed:
                return
            self._append(self.state.finish(transaction.id, self._clock.now_ms()))
            self._let_go()
        except MagnetarError as error:
            _log.info("transaction %s is ended by the coordinator's next owner: %s", transaction.id, error)
        finally:
            del self._ending[transaction.id]
            done.set()

    async def _end_partition(self, transaction: Transaction, topic: str) -> None:
        async def step() -> None:
            await self._participants.end_on_partition(
                topic, transaction.id, commit=transaction.is_commit, low_watermark=self.state.low_watermark
            )

        await self._until_done(step, f"transaction {transaction.id} on {topic}")

    async def _end_subscription(self, transaction: Transaction, topic: str, subscription: str) -> None:
        async def step() -> None:
            await self._participants.end_on_subscription(
                topic,
                subscription,
                transaction.id,
                commit=transaction.is_commit,
                low_watermark=self.state.low_watermark,
            )

        await self._until_done(step, f"transaction {transaction.id} on subscription {subscription} of {topic}")

    async def _until_done(self, step: "Callable[[], object]", what: str) -> None:
        delay_s = _RETRY_S_MIN
        while not self.is_closed:
            try:
                await step()  # type: ignore[misc]
            except (TopicNotFound, SubscriptionNotFound, BadName) as error:
                _log.info("%s needs no end: %s", what, error)
                return
            except MagnetarError as error:
                _log.warning("%s is not ended yet, trying again: %s", what, error)
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, _RETRY_S_MAX)
            else:
                return

    def _let_go(self) -> None:
        kept_from = self.state.kept_from
        if kept_from is not None:
            self.log.forget_before(kept_from, {LAST_ID_PROPERTY: self.state.last_id})

    def _on_log_failed(self, error: MagnetarError) -> None:
        if not self.is_closed:
            self._stop()
            if self.on_failed is not None:
                self.on_failed(self)

    def _stop(self) -> None:
        self.is_closed = True
        for done in self._ending.values():
            done.set()

    def _check_open(self) -> None:
        if self.is_closed:
            raise NoTransactionCoordinator(f"Coordinator {self.coordinator_id} is not served here now")


def _batches(settings: BrokerSettings) -> BatchLimits | None:
    if not settings.transaction_log_batched:
        return None
    return BatchLimits(
        settings.transaction_log_batch_records_max,
        settings.transaction_log_batch_bytes_max,
        settings.transaction_log_batch_delay_ms,
    )
