# SPDX-License-Identifier: Apache-2.0
"""Transactions on one topic: takes their messages, writes the markers that end them, remembers who is aborted.

Owned by a Topic. What readers may see is the buffer's answer, which changes only by what is durable. A cursor of its
own, `pulsar.transactions`, keeps a snapshot of the buffer up to its position; a new owner replays the entries behind
it, which the cursor keeps from being trimmed. A topic that no transaction has touched has no such cursor and pays
nothing. Never asks a coordinator.
Carries.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from magnetar.broker.producer import Producer
from magnetar.broker.transactions.ended import EndedTransactions
from magnetar.broker.transactions.marker import PRODUCER_NAME, encode_marker, read_in_transaction
from magnetar.broker.transactions.shadow_looks import ShadowLooks
from magnetar.broker.transactions.snapshot_segments import SnapshotSegments
from magnetar.broker.transactions.txn_id import TxnId
from magnetar.errors import MagnetarError
from magnetar.ids import LATEST, Position
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.managed_ledger import ManagedLedger

if TYPE_CHECKING:
    from magnetar.broker.dispatch.parts import DispatchParts
    from magnetar.broker.topic import Topic

CURSOR: Final = "pulsar.transactions"
_REPLAY_ENTRIES: Final = 100
_REPLAY_BYTES: Final = 4 * 1024 * 1024
# Bytes of a segment that is never full.
_NO_ROOM: Final = 2**63

_log = logging.getLogger(__name__)


class TopicTransactions:
    def __init__(self, topic: "Topic", managed_ledger: ManagedLedger, parts: "DispatchParts") -> None:
        self.buffer = parts.buffer
        self.buffer.attach(managed_ledger.ledgers)
        self.ended = EndedTransactions()
        self._topic = topic
        self._managed_ledger = managed_ledger
        self._clock = clock = parts.clock
        self._tasks = parts.tasks
        self._cursor: Cursor | None = None
        self._preparing: asyncio.Lock | None = None
        # Transactions whose messages are taken without another question.
        self._admitted: dict[TxnId, None] = {}
        # Why the coordinator refuses one, while what waited for its answer is refused.
        self.refused: dict[TxnId, MagnetarError] = {}
        # What was appended and is not yet durable: the how manieth append, whose, and how it ends, if it does.
        self.on_the_way: deque[tuple[int, TxnId, bool | None]] | None = None
        self._ending: dict[TxnId, asyncio.Future[None]] = {}
        # Where there are segments, or may be; None: everything is in the snapshot itself.
        self._segments: SnapshotSegments | None = None
        self._saved_changes = 0
        self._saved_ms = clock.now_ms()
        # Made for the first marker: few topics ever have one.
        self._markers: _Markers | None = None
        # Of a topic that others write.
        self.looks: ShadowLooks | None = None

    # --- for the topic ----------------------------------------------------------------------------

    @staticmethod
    async def open(topic: "Topic", managed_ledger: ManagedLedger, parts: "DispatchParts") -> "TopicTransactions":
        """Come to the state that the last owner left, before the topic serves anyone."""
        transactions = TopicTransactions(topic, managed_ledger, parts)
        topic.compaction.buffer = parts.buffer
        cursor = transactions._cursor = managed_ledger.cursors.get(CURSOR)
        if cursor is not None:
            segments = SnapshotSegments(parts.buffer, managed_ledger, parts.tasks, transactions._save_now)
            transactions.buffer.restore(cursor.properties, await segments.restore(cursor.properties))
            if segments.properties():
                transactions._segments = segments
            await transactions._replay(cursor.mark_delete)
        return transactions

    def on_persisted(self, first_append: int, ledger_id: int, first_entry: int, last_entry: int) -> None:
        """Entries first..last are durable, the first of them was the how manieth append. Before readers are woken."""
        if not self.on_the_way:
            return
        through = first_append + last_entry - first_entry
        while self.on_the_way and self.on_the_way[0][0] <= through:
            append, txn_id, commit = self.on_the_way.popleft()
            position = Position(ledger_id, first_entry + append - first_append)
            if commit is None:
                self.buffer.on_message(txn_id, position)
            else:
                self._on_ended(txn_id, position, commit=commit)
        if self.buffer.changes - self._saved_changes >= self._topic.settings.transaction_snapshot_changes:
            self._save()
            self._look_after_segments()

    def upkeep(self) -> None:
        if self._cursor is None or self._cursor.is_closed:
            return
        is_due = self._clock.now_ms() - self._saved_ms >= self._topic.settings.transaction_snapshot_interval_ms
        if is_due and self._cursor.mark_delete < self._managed_ledger.last_confirmed:
            self._save()
        self._look_after_segments()

    async def delete_stored(self) -> None:
        """What is kept beside the log; the topic is deleted."""
        if self._segments is not None:
            await self._segments.delete_all()

    def close(self) -> None:
        if self._segments is not None:
            self._segments.close()
        if self._cursor is not None and not self._cursor.is_closed:
            self._save()

    @property
    def saved_ms(self) -> int:
        """When the snapshot was last saved, or the topic was loaded."""
        return self._saved_ms

    # --- messages ---------------------------------------------------------------------------------

    def admits(self, txn_id: TxnId) -> bool:
        return txn_id in self._admitted

    def check_not_refused(self, txn_id: TxnId) -> None:
        self.ended.check(txn_id)
        error = self.refused.get(txn_id)
        if error is not None:
            raise error

    async def admit(self, txn_id: TxnId) -> None:
        """Its coordinator says that it is open: take its messages from now on. The first one makes the cursor."""
        if self._preparing is None:
            self._preparing = asyncio.Lock()
        async with self._preparing:
            if self._cursor is None:
                self._cursor = await self._managed_ledger.open_cursor(CURSOR, initial=LATEST)
        self.ended.check(txn_id)
        self._admitted[txn_id] = None

    def publish(
        self,
        txn_id: TxnId,
        producer: Producer,
        sequence_id: int,
        highest_sequence_id: int,
        messages: int,
        payload: bytes,
        *,
        is_chunk: bool = False,
    ) -> None:
        """As the topic's, in a transaction that was admitted."""
        self.ended.check(txn_id)
        append = self._topic.answers.appended
        self._topic.publish(producer, sequence_id, highest_sequence_id, messages, payload, is_chunk=is_chunk)
        # One that is stored already is answered without an append.
        if self._topic.answers.appended > append:
            self._await_outcome(append, txn_id, None)

    def _await_outcome(self, append: int, txn_id: TxnId, commit: bool | None) -> None:
        if self.on_the_way is None:
            self.on_the_way = deque()
            self._topic.has_transactions = True
        self.on_the_way.append((append, txn_id, commit))

    # --- the end of a transaction -----------------------------------------------------------------

    def holds(self, txn_id: TxnId) -> bool:
        """Whether it has messages here, and no end yet."""
        return txn_id in self.buffer.open or any(each == txn_id for _, each, _ in self.on_the_way or ())

    async def end(self, txn_id: TxnId, *, commit: bool) -> None:
        """Returns when the end is durable and readers see it. Again: the same."""
        ending = self._ending.get(txn_id)
        if ending is None:
            self._admitted.pop(txn_id, None)
            self.ended.note(txn_id)
            if not self.holds(txn_id):
                return
            if self._managed_ledger.is_terminated:
                await self._end_without_marker(txn_id, commit=commit)
                return
            ending = self._write_marker(txn_id, commit=commit)
        await asyncio.shield(ending)

    def _write_marker(self, txn_id: TxnId, *, commit: bool) -> asyncio.Future[None]:
        append = self._topic.answers.appended
        payload = encode_marker(txn_id, self._clock.now_ms(), commit=commit)
        if self._markers is None:
            self._markers = _Markers(self._on_marker_failed)
        self._topic.publish(self._markers.producer, self._markers.next(txn_id), 0, 1, payload, is_marker=True)
        self._await_outcome(append, txn_id, commit)
        ending = self._ending[txn_id] = asyncio.get_running_loop().create_future()
        return ending

    async def _end_without_marker(self, txn_id: TxnId, *, commit: bool) -> None:
        """A terminated topic takes no marker; the snapshot says it, and nothing can come behind it."""
        assert self._cursor is not None
        self._on_ended(txn_id, self._managed_ledger.last_confirmed, commit=commit)
        self._save()
        await self._cursor.flush()
        for subscription in list(self._topic.subscriptions.values()):
            subscription.wake()
        if self._topic.replication is not None:
            self._topic.replication.wake()

    def _on_ended(self, txn_id: TxnId, position: Position, *, commit: bool) -> None:
        self.buffer.on_marker(txn_id, position, commit=commit)
        if self._markers is not None:
            self._markers.forget(txn_id)
        ending = self._ending.pop(txn_id, None)
        if ending is not None and not ending.done():
            ending.set_result(None)

    def _on_marker_failed(self, txn_id: TxnId, error: MagnetarError) -> None:
        """The topic closes and comes back; whoever ends the transaction tries again there."""
        ending = self._ending.pop(txn_id, None)
        if ending is not None and not ending.done():
            ending.set_exception(error)
            ending.exception()

    # --- what is kept -----------------------------------------------------------------------------

    def _save(self) -> None:
        """Position and snapshot change together; the cursor saves them soon, in one write."""
        assert self._cursor is not None
        self._saved_changes = self.buffer.changes
        self._saved_ms = self._clock.now_ms()
        properties = self.buffer.snapshot()
        if self._segments is not None:
            properties.update(self._segments.properties())
        self._cursor.ack_cumulative(self._managed_ledger.last_confirmed, properties=properties)

    async def _save_now(self) -> None:
        assert self._cursor is not None
        if not self._cursor.is_closed:
            self._save()
        await self._cursor.flush()

    def _look_after_segments(self) -> None:
        settings = self._topic.settings
        if self._segments is None and settings.transaction_snapshot_segmented:
            self._segments = SnapshotSegments(self.buffer, self._managed_ledger, self._tasks, self._save_now)
        if self._segments is not None:
            # Those that are there are looked after in any case.
            room = settings.transaction_snapshot_segment_bytes if settings.transaction_snapshot_segmented else _NO_ROOM
            self._segments.look_around(room)

    async def _replay(self, after: Position) -> None:
        ledger = self._managed_ledger
        position, replayed = ledger.next_position(after), 0
        while position <= ledger.last_confirmed:
            entries = await ledger.read(position, entries_max=_REPLAY_ENTRIES, bytes_max=_REPLAY_BYTES)
            if not entries:
                break
            for entry in entries:
                found = read_in_transaction(entry)
                if found is None:
                    continue
                replayed += 1
                if found.commit is None:
                    self.buffer.on_message(found.txn_id, entry.position)
                else:
                    self.buffer.on_marker(found.txn_id, entry.position, commit=found.commit)
            position = ledger.next_position(entries[-1].position)
        if replayed:
            _log.info("%s: replayed %d entries of transactions", ledger.name, replayed)


class _Markers:
    """The producer of a topic's markers: its link hears of failures alone, the rest comes with the entries."""

    def __init__(self, on_failed: Callable[[TxnId, MagnetarError], None]) -> None:
        self.producer = Producer(self, 0, PRODUCER_NAME, name_generated=True, epoch=0)
        self._on_failed = on_failed
        self._numbers: dict[TxnId, int] = {}
        self._last = 0

    def next(self, txn_id: TxnId) -> int:
        self._last += 1
        self._numbers[txn_id] = self._last
        return self._last

    def forget(self, txn_id: TxnId) -> None:
        self._numbers.pop(txn_id, None)

    def send_refusal(self, producer: Producer, sequence_id: int, size: int, error: MagnetarError) -> None:
        for txn_id, number in list(self._numbers.items()):
            if number == sequence_id:
                self.forget(txn_id)
                self._on_failed(txn_id, error)

    def send_receipts(
        self, producer: Producer, receipts: list[tuple[int, int]], ledger_id: int, first_entry_id: int, size: int
    ) -> None:
        """That a marker is durable is told with all entries."""

    def send_duplicate_receipt(self, producer: Producer, sequence_id: int, highest_sequence_id: int, size: int) -> None:
        """Markers are never deduplicated."""

    def hold_back(self, seconds: float) -> None:
        """Markers do not wait: readers wait for them."""

    async def is_alive(self) -> bool:
        return True

    def disconnect_producer(self, producer: Producer) -> None:
        """It is in nobody's session."""
