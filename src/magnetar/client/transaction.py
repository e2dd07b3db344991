# SPDX-License-Identifier: Apache-2.0
"""Transactions: messages and acknowledgements, over many topics, that count all together or not at all.

`Coordinators` finds the brokers that keep transactions; a `Transaction` is one of theirs. Topics and subscriptions are
registered before they are used in it; it is ended once, by commit or abort, after everything in it is answered.
Carries.
"""

import asyncio
import logging
from enum import Enum
from itertools import count
from types import TracebackType
from typing import Any, Final, Self

from magnetar.client.acknowledgements import Acknowledgements
from magnetar.client.connection import Connection
from magnetar.client.core import Core
from magnetar.client.receipt import Receipt
from magnetar.errors import BadTransactionStatus, MagnetarError, NoTransactionCoordinator
from magnetar.ids import MessageId
from magnetar.names import ASSIGN_TOPIC, TopicName
from magnetar.wire.commands import Type
from magnetar.wire.proto import pulsar_api_pb2 as pb

DEFAULT_TIMEOUT_MS: Final = 60_000

_log = logging.getLogger(__name__)


class Coordinators:
    """The transaction coordinators of a cluster, taken in turn."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._turns = count()
        self._attached: dict[int, Connection] = {}
        self._amount = 0

    async def begin(self, timeout_ms: int) -> "Transaction":
        async def ask() -> Transaction:
            if not self._amount:
                self._amount = await self._core.lookup.partitions(ASSIGN_TOPIC)
                if not self._amount:
                    raise NoTransactionCoordinator("this cluster keeps no transactions")
            coordinator = next(self._turns) % self._amount
            request = pb.CommandNewTxn(txn_ttl_millis=timeout_ms, tc_id=coordinator)
            answer = await self._ask(coordinator, Type.NEW_TXN, request)
            return Transaction(self, (answer.txnid_most_bits, answer.txnid_least_bits), coordinator)

        return await self._core.retried(ask)

    async def request(self, coordinator: int, kind: "Type.ValueType", message: Any) -> Any:
        """Of a transaction that is there: asked again while its coordinator moves, which changes nothing."""
        return await self._core.retried(lambda: self._ask(coordinator, kind, message))

    async def _ask(self, coordinator: int, kind: "Type.ValueType", message: Any) -> Any:
        connection = await self._connection(coordinator)
        try:
            return await connection.request(kind, message)
        except NoTransactionCoordinator:
            # Another broker serves it now.
            if self._attached.get(coordinator) is connection:
                del self._attached[coordinator]
            raise

    async def _connection(self, coordinator: int) -> Connection:
        """The connection of a coordinator, which must have been greeted there."""
        known = self._attached.get(coordinator)
        if known is not None and known.is_open:
            return known
        way = await self._core.lookup.locate(ASSIGN_TOPIC.partition(coordinator))
        connection = await self._core.pool.connect(way)
        await connection.request(Type.TC_CLIENT_CONNECT_REQUEST, pb.CommandTcClientConnectRequest(tc_id=coordinator))
        self._attached[coordinator] = connection
        return connection


class TransactionState(Enum):
    OPEN = "open"
    COMMITTING = "committing"
    COMMITTED = "committed"
    ABORTING = "aborting"
    ABORTED = "aborted"
    ERROR = "in an unknown state"


class Transaction:
    """`async with client.transaction() as txn`: commits at the end, aborts on an error."""

    def __init__(self, coordinators: Coordinators, ids: tuple[int, int], coordinator: int) -> None:
        self.ids = ids
        self.state = TransactionState.OPEN
        self._coordinators = coordinators
        self._coordinator = coordinator
        self._partitions: dict[str, asyncio.Event] = {}
        self._subscriptions: dict[tuple[str, str], asyncio.Event] = {}
        self._receipts: list[Receipt] = []

    def __str__(self) -> str:
        return f"({self.ids[0]},{self.ids[1]})"

    async def register_partition(self, topic: TopicName) -> None:
        """Before the first message to a topic."""
        self._check_open()
        request = pb.CommandAddPartitionToTxn(partitions=[str(topic)])
        await self._register(self._partitions, str(topic), Type.ADD_PARTITION_TO_TXN, request)

    async def register_subscription(self, topic: TopicName, subscription: str) -> None:
        """Before the first acknowledgement on a subscription."""
        self._check_open()
        request = pb.CommandAddSubscriptionToTxn()
        request.subscription.add(topic=str(topic), subscription=subscription)
        await self._register(self._subscriptions, (str(topic), subscription), Type.ADD_SUBSCRIPTION_TO_TXN, request)

    async def _register(
        self, known: dict[Any, asyncio.Event], key: object, kind: "Type.ValueType", request: Any
    ) -> None:
        """Once per key; whoever comes meanwhile waits for the same answer."""
        present = known.get(key)
        if present is not None:
            await present.wait()
            self._check_open()
            if key in known:
                return
        done = known[key] = asyncio.Event()
        request.txnid_most_bits, request.txnid_least_bits = self.ids
        try:
            await self._coordinators.request(self._coordinator, kind, request)
        except BaseException:
            known.pop(key, None)
            raise
        finally:
            done.set()

    def register_send(self, receipt: Receipt) -> None:
        self._receipts.append(receipt)

    async def acknowledge(self, acks: Acknowledgements, message_id: MessageId, *, cumulative: bool = False) -> None:
        self._check_open()
        await acks.send_in_transaction(message_id, self.ids, cumulative=cumulative)

    async def commit(self) -> None:
        """Make everything in it count. Raises if a message in it was not stored: then it is aborted instead."""
        self._check_open()
        self.state = TransactionState.COMMITTING
        try:
            for receipt in self._receipts:
                await receipt
        except BaseException:
            self.state = TransactionState.OPEN
            await self.abort()
            raise
        await self._end(pb.COMMIT, TransactionState.COMMITTED)

    async def abort(self) -> None:
        """Have nothing in it count; its acknowledgements are void, its messages never seen."""
        self._check_open()
        self.state = TransactionState.ABORTING
        for receipt in self._receipts:
            try:
                await receipt
            except MagnetarError as error:
                _log.debug("transaction %s: a message of an aborted transaction failed: %s", self, error)
        await self._end(pb.ABORT, TransactionState.ABORTED)

    async def _end(self, action: "pb.TxnAction.ValueType", outcome: TransactionState) -> None:
        request = pb.CommandEndTxn(txn_action=action)
        request.txnid_most_bits, request.txnid_least_bits = self.ids
        try:
            await self._coordinators.request(self._coordinator, Type.END_TXN, request)
        except BaseException:
            self.state = TransactionState.ERROR
            raise
        self.state = outcome

    def _check_open(self) -> None:
        if self.state is not TransactionState.OPEN:
            raise BadTransactionStatus(f"transaction {self} is {self.state.value}")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.state is not TransactionState.OPEN:
            return
        if error is None:
            await self.commit()
        else:
            await self.abort()
