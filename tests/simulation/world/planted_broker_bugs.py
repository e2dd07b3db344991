# SPDX-License-Identifier: Apache-2.0
"""Bugs to plant in transactions, delays, compaction, deduplication and the embedded store.

`planted_bugs.py` names them.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from pyroaring import BitMap

from magnetar.bookie.compaction import Compactor
from magnetar.bookie.entry_log import EntryLogWriter
from magnetar.broker.compaction.horizon import Horizon
from magnetar.broker.compaction.keys import LatestKeys
from magnetar.broker.compaction.topic_compaction import TopicCompaction
from magnetar.broker.deduplication import Deduplication
from magnetar.broker.delayed.bucket_format import SegmentFacts
from magnetar.broker.delayed.delayed_index import DelayedIndex
from magnetar.broker.dispatch.sieve import Sieve
from magnetar.broker.transactions.buffer import TransactionBuffer
from magnetar.broker.transactions.pending_ack_log import PendingAckLog
from magnetar.broker.transactions.topic_transactions import TopicTransactions
from magnetar.broker.transactions.txn_id import TxnId
from magnetar.ids import Position
from magnetar.managed_ledger.cursor import Cursor
from magnetar.metadata.durable_tree import DurableTree
from magnetar.metadata.tree import Effect, RecordTree
from magnetar.wire.proto.pending_ack_pb2 import ACK, PendingAckMetadataEntry

# --- transactions -------------------------------------------------------------------------------------------


def aborted_is_visible() -> AbstractContextManager[Any]:
    """What was sent in a transaction that was aborted is shown like what was committed."""
    on_marker = TransactionBuffer.on_marker

    def always_committed(self: TransactionBuffer, txn_id: TxnId, position: Position, *, commit: bool) -> None:
        on_marker(self, txn_id, position, commit=True)

    return patch.object(TransactionBuffer, "on_marker", always_committed)


def marker_not_stored() -> AbstractContextManager[Any]:
    """The end of a transaction on a topic is answered from memory: the next owner never hears of it."""

    def in_memory(self: TopicTransactions, txn_id: TxnId, *, commit: bool) -> asyncio.Future[None]:
        ending = self._ending[txn_id] = asyncio.get_running_loop().create_future()
        self._on_ended(txn_id, self._managed_ledger.last_confirmed, commit=commit)
        return ending

    return patch.object(TopicTransactions, "_write_marker", in_memory)


def pending_ack_not_saved() -> AbstractContextManager[Any]:
    """An acknowledgement in a transaction is only claimed in memory: the next owner commits nothing."""
    append = PendingAckLog._append

    def forget(self: PendingAckLog, record: PendingAckMetadataEntry, *rest: Any) -> None:
        if record.pending_ack_op != ACK:
            append(self, record, *rest)

    return patch.object(PendingAckLog, "_append", forget)


def transactions_not_replayed() -> AbstractContextManager[Any]:
    """A topic's new owner knows of transactions what the last snapshot says, and not what lies behind it."""

    async def nothing(self: TopicTransactions, after: Position) -> None:
        return

    return patch.object(TopicTransactions, "_replay", nothing)


# --- delays, compaction, deduplication ----------------------------------------------------------------------


def buckets_not_scheduled() -> AbstractContextManager[Any]:
    """Delayed messages that a bucket has are known again after a restart, and nobody waits for their time."""

    def only_known(self: DelayedIndex, bucket: str, segments: Iterable[SegmentFacts]) -> None:
        for segment in segments:
            for ledger_id, bitmap in segment.entries.items():
                self._known[ledger_id] = self._known.get(ledger_id, BitMap()) | bitmap

    return patch.object(DelayedIndex, "add_stored", only_known)


def delays_cut_short() -> AbstractContextManager[Any]:
    """A message is due two seconds before its time."""
    keep = Sieve._keep_for_later

    def shorter(self: Sieve, position: Position, deliver_at_ms: int, again: bool) -> bool:
        return keep(self, position, deliver_at_ms - 2_000, again)

    return patch.object(Sieve, "_keep_for_later", shorter)


def horizon_ahead() -> AbstractContextManager[Any]:
    """A compacted ledger stands for what came while it was written, too."""
    write = TopicCompaction._write

    async def ahead(self: TopicCompaction, cursor: Cursor, keys: LatestKeys, through: Position) -> Horizon:
        horizon = await write(self, cursor, keys, through)
        return horizon._replace(last=self._managed_ledger.last_confirmed)

    return patch.object(TopicCompaction, "_write", ahead)


def duplicates_ahead() -> AbstractContextManager[Any]:
    """What is only on its way to storage is saved as stored: sent again after a crash, it is dropped."""

    def ahead(self: Deduplication) -> dict[str, int]:
        return {name: known.appended for name, known in self._known.items() if known.appended >= 0}

    return patch.object(Deduplication, "snapshot", ahead)


# --- the embedded store, and a bookie's collection ----------------------------------------------------------


def metadata_before_sync() -> AbstractContextManager[Any]:
    """A change is answered as soon as it is queued for the log."""
    append = DurableTree._append

    def at_once(self: DurableTree, effects: list[Effect]) -> asyncio.Future[None]:
        synced = append(self, effects)
        self._on_synced(self._log.sequence)
        return synced

    return patch.object(DurableTree, "_append", at_once)


def versions_ignored() -> AbstractContextManager[Any]:
    """A record is replaced whatever version of it was expected."""
    return patch.object(RecordTree, "_check_replaceable", lambda self, path, held, expected_version, owner: None)


class _Unsynced:
    """A writer of an entry log that syncs no entry before its log ends, and says that it has."""

    has_unsynced = False

    def __init__(self, writer: EntryLogWriter) -> None:
        self._writer = writer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)

    async def append(self, entries: Iterable[list[bytes]], rows: bytearray) -> None:
        self._writer._unsynced_bytes_max = sys.maxsize
        await self._writer.append(entries, rows)

    async def sync(self) -> None:
        return


@contextmanager
def copies_not_synced() -> Iterator[None]:
    """The index leads to an entry's copy, and the log it came from goes, before the copy is durable."""
    copy: Callable[..., Awaitable[None]] = Compactor._copy
    move: Callable[..., Awaitable[None]] = Compactor._move

    async def careless_copy(self: Compactor, log_id: int, piece: list[Any], writer: Any, moves: list[Any]) -> None:
        await copy(self, log_id, piece, _Unsynced(writer), moves)

    async def careless_move(self: Compactor, moves: list[Any], writer: Any) -> None:
        await move(self, moves, _Unsynced(writer))

    with patch.object(Compactor, "_copy", careless_copy), patch.object(Compactor, "_move", careless_move):
        yield
