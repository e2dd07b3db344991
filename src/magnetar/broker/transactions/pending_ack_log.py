# SPDX-License-Identifier: Apache-2.0
"""Acknowledgements in transactions on one subscription: logged when they come, applied when their transaction commits.

Owns the log `<topic>-<subscription>__transaction_pending_ack`, whose records are Apache Pulsar's, and the claims in
memory. The commit's record is durable before the cursor is told; a restart replays the log, and applying a commit twice
changes nothing. Records go when the cursor is saved with what they say: what still waits is written again first, so
the log stays short. Never sends a message.
Carries.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from google.protobuf.message import DecodeError

from magnetar.broker.transactions.ended import EndedTransactions
from magnetar.broker.transactions.pending_acks import Claim, PendingAcks, claim_of
from magnetar.broker.transactions.record_batch import BatchLimits
from magnetar.broker.transactions.record_log import RecordLog
from magnetar.broker.transactions.txn_id import TxnId
from magnetar.errors import BadPosition, DamagedRecord, MagnetarError, ServiceNotReady
from magnetar.ids import Position
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.managed_ledgers import ManagedLedgers
from magnetar.names import TopicName
from magnetar.runtime.tasks import Tasks
from magnetar.wire.proto.pending_ack_pb2 import ABORT, ACK, COMMIT, PendingAckMetadataEntry
from magnetar.wire.proto.pulsar_api_pb2 import CommandAck

LOG_CURSOR: Final = "__pending_ack_state"
_SUFFIX: Final = "__transaction_pending_ack"

_log = logging.getLogger(__name__)

Applied = Callable[[list[Claim], Claim | None], None]


def log_name(topic: TopicName, subscription: str) -> str:
    return topic.namespace.topic(f"{topic.local_name}-{subscription}{_SUFFIX}").persistence_name


class PendingAckLog:
    def __init__(
        self,
        log: RecordLog,
        cursor: Cursor,
        managed_ledger: ManagedLedger,
        tasks: Tasks,
        *,
        records_max: int,
        on_committed: Applied,
        on_aborted: Applied,
    ) -> None:
        self.acks = PendingAcks()
        self.ended = EndedTransactions()
        self.log = log
        self._cursor = cursor
        self._managed_ledger = managed_ledger
        self._tasks = tasks
        self._records_max = records_max
        self._on_committed = on_committed
        self._on_aborted = on_aborted
        self._ending: dict[TxnId, asyncio.Future[None]] = {}
        self._records = 0
        self._shortening = asyncio.Lock()

    @staticmethod
    async def open(
        managed_ledgers: ManagedLedgers,
        name: str,
        cursor: Cursor,
        managed_ledger: ManagedLedger,
        tasks: Tasks,
        *,
        records_max: int,
        on_committed: Applied,
        on_aborted: Applied,
        batches: BatchLimits | None = None,
    ) -> "PendingAckLog":
        """Take the log over and replay it: what was committed is applied again, what is open is claimed."""
        log = await RecordLog.open(managed_ledgers, name, LOG_CURSOR, batches)
        pending = PendingAckLog(
            log,
            cursor,
            managed_ledger,
            tasks,
            records_max=records_max,
            on_committed=on_committed,
            on_aborted=on_aborted,
        )
        try:
            async for _, data in log.records():
                pending._replay(data)
        except BaseException:
            await log.close()
            raise
        return pending

    # --- acknowledgements -------------------------------------------------------------------------

    async def ack(self, txn_id: TxnId, claims: list[Claim]) -> None:
        """Claim entries or parts of them; returns when that is durable. TransactionConflict when one is not free."""
        self._check(txn_id, (claim.position for claim in claims))
        self.acks.check(txn_id, claims, self._cursor.state)
        self._append(record_of(ACK, txn_id, CommandAck.Individual, claims))
        self.acks.add(txn_id, claims)
        await self.log.synced()

    async def ack_cumulative(self, txn_id: TxnId, claim: Claim) -> None:
        self._check(txn_id, (claim.position,))
        self.acks.check_cumulative(txn_id, claim, self._cursor.state)
        self._append(record_of(ACK, txn_id, CommandAck.Cumulative, [claim]))
        self.acks.add_cumulative(txn_id, claim)
        await self.log.synced()

    async def end(self, txn_id: TxnId, *, commit: bool) -> None:
        """Returns when the end is durable and applied. Again: the same."""
        ending = self._ending.get(txn_id)
        if ending is None:
            self.ended.note(txn_id)
            if txn_id not in self.acks:
                return
            ending = self._ending[txn_id] = asyncio.get_running_loop().create_future()
            try:
                self._append(record_of(COMMIT if commit else ABORT, txn_id))
                self._tasks.start(self._finish(txn_id, ending, commit=commit), f"{self.log.name}: end {txn_id}")
            except MagnetarError:
                del self._ending[txn_id]
                raise
        await asyncio.shield(ending)

    async def _finish(self, txn_id: TxnId, ending: asyncio.Future[None], *, commit: bool) -> None:
        try:
            await self.log.synced()
            (self._on_committed if commit else self._on_aborted)(*self.acks.remove(txn_id))
            ending.set_result(None)
        except MagnetarError as error:
            ending.set_exception(error)
            ending.exception()
            return
        finally:
            self._ending.pop(txn_id, None)
            ending.cancel()
        if self._records >= self._records_max:
            await self._shorten_quietly()

    # --- the log ----------------------------------------------------------------------------------

    async def shorten(self) -> None:
        """Save the cursor, write what still waits again, and let go of the records before that.

        Before a seek too: what was committed must not be applied again at the new place, whoever opens the log.
        """
        async with self._shortening:
            while self._ending:
                await asyncio.wait(list(self._ending.values()))
            # What is written again must not share an entry with what it stands for: that would be replayed, too.
            self.log.cut()
            marks: list[Position] = []
            for txn_id, claims, cumulative in list(self.acks.claims()):
                if claims:
                    self._append(record_of(ACK, txn_id, CommandAck.Individual, claims), marks.append)
                if cumulative is not None:
                    self._append(record_of(ACK, txn_id, CommandAck.Cumulative, [cumulative]), marks.append)
            if not marks and not self.acks:
                records = self._records
                through = self.log.ledger.last_confirmed
                await self._cursor.flush()
                self.log.forget_before(self.log.ledger.next_position(through))
                self._records -= records
            else:
                await self.log.synced()
                await self._cursor.flush()
                if marks:
                    self.log.forget_before(min(marks))
                    self._records = len(marks)
            await self.log.forgotten()

    async def close(self) -> None:
        await self.log.close()

    async def delete(self) -> None:
        await self.log.delete()

    async def _shorten_quietly(self) -> None:
        try:
            await self.shorten()
        except MagnetarError as error:
            _log.warning("%s is not shortened: %s", self.log.name, error)

    def _append(self, record: PendingAckMetadataEntry, on_stored: Callable[[Position], None] | None = None) -> None:
        self.log.append(record.SerializeToString(), on_stored)
        self._records += 1

    def _check(self, txn_id: TxnId, positions: Iterable[Position]) -> None:
        self.ended.check(txn_id)
        if txn_id in self._ending:
            raise ServiceNotReady(f"Transaction {txn_id} is being ended")
        ledgers = self._managed_ledger.ledgers
        for position in positions:
            if position > self._cursor.mark_delete and not ledgers.has_place(position):
                raise BadPosition(f"Message {position.ledger_id}:{position.entry_id} is not in this topic, or not yet")

    def _replay(self, data: bytes) -> None:
        try:
            record = PendingAckMetadataEntry.FromString(data)
        except DecodeError as error:
            raise DamagedRecord(f"A record of {self.log.name} cannot be parsed: {error}") from error
        self._records += 1
        txn_id = TxnId(record.txnid_most_bits, record.txnid_least_bits)
        if record.pending_ack_op == ACK:
            claims = [
                claim_of(Position(each.ledgerId, each.entryId), each.ack_set, each.batch_size)
                for each in record.pending_ack_metadata
            ]
            if record.ack_type == CommandAck.Cumulative:
                self.acks.add_cumulative(txn_id, claims[0])
            else:
                self.acks.add(txn_id, claims)
            return
        ended = self.acks.remove(txn_id)
        if record.pending_ack_op == COMMIT:
            self._on_committed(*ended)


def record_of(
    op: int, txn_id: TxnId, kind: "CommandAck.AckType.ValueType | None" = None, claims: Iterable[Claim] = ()
) -> PendingAckMetadataEntry:
    """As it is stored; the format is in docs/formats/transactions.md."""
    record = PendingAckMetadataEntry(
        pending_ack_op=op,  # type: ignore[arg-type]
        ack_type=kind,
        txnid_most_bits=txn_id.most,
        txnid_least_bits=txn_id.least,
    )
    for claim in claims:
        added = record.pending_ack_metadata.add(ledgerId=claim.position.ledger_id, entryId=claim.position.entry_id)
        if claim.ack_set:
            added.ack_set.extend(word - 2**64 if word >= 2**63 else word for word in claim.ack_set)
            added.batch_size = claim.batch_size
    return record
