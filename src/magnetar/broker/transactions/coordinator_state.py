# SPDX-License-Identifier: Apache-2.0
"""The transactions of one coordinator: what each may do next, and the record that says so.

Told of every wish, it refuses or answers with the record to log, and has taken it over already: what is decided later
builds on it. Nobody outside hears of a decision before its record is durable; a log that fails ends the whole machine,
and its successor replays the records that were stored. A status only goes forward: OPEN, then COMMITTING and COMMITTED,
or ABORTING and ABORTED. The last ended ones stay known, so that who asks again gets the same answer.

Invariants: an id is given out once; what is COMMITTING never aborts, what is ABORTING never commits; the log is kept
from the first record of the oldest transaction that is known.
Decides.
"""

import heapq
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final

from google.protobuf.message import DecodeError

from magnetar.broker.transactions.txn_id import TxnId
from magnetar.errors import BadTransactionStatus, DamagedRecord, TooManyRequests, TransactionNotFound
from magnetar.ids import Position
from magnetar.wire.proto.transaction_metadata_pb2 import TransactionMetadataEntry as Record

# Topics and subscriptions that one transaction may touch.
PARTICIPANTS_MAX: Final = 10_000
# Transactions that are open or being ended, where the settings name no limit.
ACTIVE_MAX: Final = 100_000
# For a client that names no time-out: something must free the readers of what it leaves open.
DEFAULT_TIMEOUT_MS: Final = 60_000


class Status(Enum):
    """Numbered as in the log."""

    OPEN = 0
    COMMITTING = 1
    COMMITTED = 2
    ABORTING = 3
    ABORTED = 4


_ENDING: Final = (Status.COMMITTING, Status.ABORTING)
_ENDED: Final = {Status.COMMITTING: Status.COMMITTED, Status.ABORTING: Status.ABORTED}


class Transaction:
    __slots__ = (
        "first",
        "id",
        "modified_ms",
        "owner",
        "partitions",
        "started_ms",
        "status",
        "subscriptions",
        "timeout_ms",
    )

    def __init__(self, txn_id: TxnId, timeout_ms: int, started_ms: int, owner: str) -> None:
        self.id = txn_id
        self.status = Status.OPEN
        # Dicts keep the order in which they were registered.
        self.partitions: dict[str, None] = {}
        self.subscriptions: dict[tuple[str, str], None] = {}
        self.timeout_ms = timeout_ms
        self.started_ms = self.modified_ms = started_ms
        self.owner = owner
        # Where its first record lies, once that is durable.
        self.first: Position | None = None

    @property
    def is_active(self) -> bool:
        return self.status is Status.OPEN or self.is_ending

    @property
    def is_ending(self) -> bool:
        return self.status in _ENDING

    @property
    def is_commit(self) -> bool:
        return self.status in (Status.COMMITTING, Status.COMMITTED)

    @property
    def due_ms(self) -> int:
        return self.started_ms + self.timeout_ms


class CoordinatorState:
    __slots__ = ("_active_max", "_due", "_ended", "_ended_max", "_known", "coordinator_id", "last_id")

    def __init__(self, coordinator_id: int, *, active_max: int = 0, ended_max: int = 1_000, last_id: int = 0) -> None:
        self.coordinator_id = coordinator_id
        # The highest id that was given out.
        self.last_id = last_id
        self._active_max = active_max or ACTIVE_MAX
        self._ended_max = ended_max
        # In the order of their ids.
        self._known: dict[int, Transaction] = {}
        self._ended: dict[int, None] = {}
        self._due: list[tuple[int, int]] = []

    # --- wishes ---------------------------------------------------------------------------------

    def new(self, timeout_ms: int, now_ms: int, owner: str = "") -> Record:
        if self.active >= self._active_max:
            raise TooManyRequests(
                f"Coordinator {self.coordinator_id} has {self.active} transactions, which is its limit"
            )
        record = self._record(Record.NEW, self.last_id + 1, now_ms)
        record.timeout_ms = timeout_ms or DEFAULT_TIMEOUT_MS
        record.start_time = now_ms
        if owner:
            record.owner = owner
        self.apply(record)
        return record

    def add_partitions(
        self, txn_id: TxnId, partitions: Iterable[str], now_ms: int, *, again: bool = False
    ) -> Record | None:
        """None when all of them are registered already, unless that is to be logged once more."""
        transaction = self.open(txn_id)
        named = list(dict.fromkeys(partitions))
        new = [name for name in named if name not in transaction.partitions]
        if not new and not again:
            return None
        self._check_room(transaction, len(new))
        record = self._record(Record.ADD_PARTITION, txn_id.least, now_ms)
        record.partitions.extend(new or named)
        self.apply(record)
        return record

    def add_subscriptions(
        self, txn_id: TxnId, subscriptions: Iterable[tuple[str, str]], now_ms: int, *, again: bool = False
    ) -> Record | None:
        """As `add_partitions`; each is a topic and a subscription."""
        transaction = self.open(txn_id)
        named = list(dict.fromkeys(subscriptions))
        new = [pair for pair in named if pair not in transaction.subscriptions]
        if not new and not again:
            return None
        self._check_room(transaction, len(new))
        record = self._record(Record.ADD_SUBSCRIPTION, txn_id.least, now_ms)
        for topic, subscription in new or named:
            record.subscriptions.add(topic=topic, subscription=subscription)
        self.apply(record)
        return record

    def end(self, txn_id: TxnId, *, commit: bool, now_ms: int) -> Record | None:
        """The decision; None when it was made before and is the same. BadTransactionStatus when it was the other."""
        transaction = self.find(txn_id)
        if transaction.status is not Status.OPEN:
            if transaction.is_commit is commit:
                return None
            raise BadTransactionStatus(f"Transaction {txn_id} is {transaction.status.name}")
        record = self._record(Record.UPDATE, txn_id.least, now_ms)
        record.expected_status = Status.OPEN.value  # type: ignore[assignment]
        record.new_status = (Status.COMMITTING if commit else Status.ABORTING).value
        self.apply(record)
        return record

    def finish(self, txn_id: TxnId, now_ms: int) -> Record:
        """Every participant knows the outcome."""
        transaction = self.find(txn_id)
        if transaction.status not in _ENDING:
            raise BadTransactionStatus(f"Transaction {txn_id} is {transaction.status.name}")
        record = self._record(Record.UPDATE, txn_id.least, now_ms)
        record.expected_status = transaction.status.value
        record.new_status = _ENDED[transaction.status].value  # type: ignore[assignment]
        self.apply(record)
        return record

    # --- questions --------------------------------------------------------------------------------

    @property
    def active(self) -> int:
        return len(self._known) - len(self._ended)

    def transactions(self) -> Iterator[Transaction]:
        """Those that are open or being ended, oldest first."""
        return (transaction for transaction in list(self._known.values()) if transaction.is_active)

    def find(self, txn_id: TxnId) -> Transaction:
        found = self._known.get(txn_id.least) if txn_id.most == self.coordinator_id else None
        if found is None:
            raise TransactionNotFound(f"Transaction {txn_id} is not known; it may have ended long ago")
        return found

    def open(self, txn_id: TxnId) -> Transaction:
        transaction = self.find(txn_id)
        if transaction.status is not Status.OPEN:
            raise BadTransactionStatus(f"Transaction {txn_id} is {transaction.status.name}")
        return transaction

    def expired(self, now_ms: int) -> list[TxnId]:
        """Open transactions whose time is up."""
        found: list[TxnId] = []
        while self._due and self._due[0][0] <= now_ms:
            _, least = heapq.heappop(self._due)
            transaction = self._known.get(least)
            if transaction is not None and transaction.status is Status.OPEN:
                found.append(transaction.id)
        return found

    @property
    def next_due_ms(self) -> int | None:
        return self._due[0][0] if self._due else None

    @property
    def low_watermark(self) -> int:
        """Every transaction up to this id has ended."""
        return next((transaction.id.least - 1 for transaction in self.transactions()), self.last_id)

    @property
    def kept_from(self) -> Position | None:
        """Where the first record lies that is still needed; None when that is not known."""
        return next(iter(self._known.values())).first if self._known else None

    # --- records ----------------------------------------------------------------------------------

    def apply(self, record: Record) -> None:
        """Take over a record, decided just now or replayed. What does not fit to the status is no longer true."""
        least = record.txnid_least_bits
        self.last_id = max(self.last_id, least, record.max_local_txn_id)
        if record.metadata_op == Record.NEW:
            if least not in self._known:
                txn_id = TxnId(self.coordinator_id, least)
                added = Transaction(txn_id, record.timeout_ms, record.start_time, record.owner)
                self._known[least] = added
                heapq.heappush(self._due, (added.due_ms, least))
            return
        transaction = self._known.get(least)
        if transaction is None:
            return
        transaction.modified_ms = record.last_modification_time
        if record.metadata_op == Record.ADD_PARTITION:
            transaction.partitions.update(dict.fromkeys(record.partitions))
        elif record.metadata_op == Record.ADD_SUBSCRIPTION:
            pairs = [(each.topic, each.subscription) for each in record.subscriptions]
            transaction.subscriptions.update(dict.fromkeys(pairs))
        elif record.expected_status == transaction.status.value:
            self._move(transaction, Status(record.new_status))

    def on_stored(self, record: Record, position: Position) -> None:
        transaction = self._known.get(record.txnid_least_bits)
        if transaction is not None and record.metadata_op == Record.NEW and transaction.first is None:
            transaction.first = position

    # --- private ----------------------------------------------------------------------------------

    def _move(self, transaction: Transaction, status: Status) -> None:
        allowed = _ENDING if transaction.status is Status.OPEN else (_ENDED.get(transaction.status),)
        if status not in allowed:
            return
        transaction.status = status
        if not transaction.is_active:
            self._ended[transaction.id.least] = None
            transaction.partitions = {}
            transaction.subscriptions = {}
            while len(self._ended) > self._ended_max:
                oldest = next(iter(self._ended))
                del self._ended[oldest], self._known[oldest]

    def _record(self, op: "Record.TransactionMetadataOp.ValueType", least: int, now_ms: int) -> Record:
        return Record(
            metadata_op=op,
            txnid_most_bits=self.coordinator_id,
            txnid_least_bits=least,
            last_modification_time=now_ms,
            max_local_txn_id=max(self.last_id, least),
        )

    @staticmethod
    def _check_room(transaction: Transaction, more: int) -> None:
        if len(transaction.partitions) + len(transaction.subscriptions) + more > PARTICIPANTS_MAX:
            raise TooManyRequests(f"Transaction {transaction.id} touches {PARTICIPANTS_MAX} topics and subscriptions")


def decode(data: bytes) -> Record:
    try:
        return Record.FromString(data)
    except DecodeError as error:
        raise DamagedRecord(f"A record of a transaction log cannot be parsed: {error}") from error
