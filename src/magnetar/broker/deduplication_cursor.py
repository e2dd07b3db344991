# SPDX-License-Identifier: Apache-2.0
"""Where deduplication is kept: the cursor `pulsar.dedup`, whose properties are the sequence ids up to its position.

As in Apache Pulsar, so that either broker goes on where the other stopped. A new owner takes the snapshot and replays
the entries behind it before the topic takes a message; long replays save their progress. Never judges a message.
Carries.
"""

import logging
from typing import Final

from magnetar.broker.deduplication import Chunk, Deduplication, Identity, signed
from magnetar.broker.producer import Producer, replicator_name
from magnetar.config.broker import BrokerSettings
from magnetar.errors import BadFrame
from magnetar.ids import Position
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.entry import Entry
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.runtime.clock import WallClock
from magnetar.wire import broker_entry, message
from magnetar.wire.proto.pulsar_api_pb2 import MessageMetadata

CURSOR: Final = "pulsar.dedup"
_REPLAY_ENTRIES: Final = 100
_REPLAY_BYTES: Final = 4 * 1024 * 1024

_log = logging.getLogger(__name__)


def chunk_of(metadata: MessageMetadata) -> Chunk | None:
    """Which part of a chunked message this is; None for one that is whole."""
    if metadata.num_chunks_from_msg <= 1:
        return None
    return Chunk(metadata.uuid, metadata.chunk_id, metadata.num_chunks_from_msg)


def identity_of(metadata: MessageMetadata) -> Identity:
    """By what a stored message is known."""
    lowest = highest = signed(metadata.sequence_id)
    if metadata.HasField("highest_sequence_id"):
        highest = max(lowest, signed(metadata.highest_sequence_id))
    return Identity(metadata.producer_name, lowest, highest, chunk_of(metadata))


def identity_of_send(
    producer: Producer, sequence_id: int, highest_sequence_id: int, payload: bytes, is_chunk: bool
) -> Identity:
    """By what a message that comes is known: what SEND says, or what its own producer said in another cluster."""
    if producer.is_replicator:
        return identity_of(message.read_metadata(payload))
    lowest = signed(sequence_id)
    highest = max(lowest, signed(highest_sequence_id)) if highest_sequence_id else lowest
    return Identity(producer.name, lowest, highest, chunk_of(message.read_metadata(payload)) if is_chunk else None)


class DeduplicationCursor:
    def __init__(
        self,
        managed_ledger: ManagedLedger,
        cursor: Cursor,
        settings: BrokerSettings,
        clock: WallClock,
        *,
        appends_before: int,
    ) -> None:
        self.cursor = cursor
        self.tracker = Deduplication(settings.deduplication_producers_max, appends_before=appends_before)
        self.tracker.restore(cursor.properties, clock.now_ms())
        self._managed_ledger = managed_ledger
        self._settings = settings
        self._clock = clock
        self._entries_since = 0
        self._saved_ms = clock.now_ms()
        # Until everything behind the snapshot is replayed, a new one would forget what is not.
        self._is_recovered = False

    async def recover(self) -> None:
        """Replay what lies behind the snapshot. A topic that loads takes no message before this returns; where it is
        switched on, the cursor is new and nothing lies behind it but what came while it was made.
        """
        await self._replay(self._managed_ledger.last_confirmed)
        self._is_recovered = True

    @staticmethod
    async def delete(managed_ledger: ManagedLedger) -> None:
        """Deduplication is off: its cursor must not hold the log back."""
        if CURSOR in managed_ledger.cursors:
            await managed_ledger.delete_cursor(CURSOR)

    def on_persisted(self, count: int, last: Position) -> None:
        self.tracker.on_persisted(count)
        self._entries_since += count
        if self._entries_since >= self._settings.deduplication_entries_interval and self._is_recovered:
            self._save(last)

    def upkeep(self) -> None:
        """What time brings: a snapshot of what came lately, and producers that have not been seen for long."""
        if not self._is_recovered:
            return
        now_ms = self._clock.now_ms()
        inactivity_ms = self._settings.deduplication_producer_inactivity_minutes * 60_000
        forgotten = self.tracker.forget_inactive(now_ms - inactivity_ms)
        is_due = now_ms - self._saved_ms >= self._settings.deduplication_snapshot_interval_s * 1000
        if forgotten or (self._entries_since and is_due):
            self._save(self._managed_ledger.last_confirmed)

    def close(self) -> None:
        """Nothing is on its way any more: the next owner has nothing to replay."""
        if self._entries_since and self._is_recovered and not self.cursor.is_closed:
            self._save(self._managed_ledger.last_confirmed)

    # --- inside -------------------------------------------------------------------------------------

    def _save(self, position: Position) -> None:
        """Position and sequence ids change together; the cursor saves them soon, in one write."""
        self._entries_since = 0
        self._saved_ms = self._clock.now_ms()
        self.cursor.ack_cumulative(position, properties=self.tracker.snapshot())

    async def _replay(self, through: Position) -> None:
        position = self._managed_ledger.next_position(self.cursor.mark_delete)
        replayed = 0
        while position <= through:
            entries = await self._managed_ledger.read(position, entries_max=_REPLAY_ENTRIES, bytes_max=_REPLAY_BYTES)
            if not entries:
                break
            for entry in entries:
                if entry.position > through:
                    break
                self._replay_entry(entry)
                position = entry.position
                replayed += 1
                self._entries_since += 1
            if position >= through or entries[-1].position > through:
                break
            if self._entries_since >= self._settings.deduplication_entries_interval:
                self._save(position)
            position = self._managed_ledger.next_position(position)
        if replayed:
            _log.info("%s: deduplication replayed %d entries", self._managed_ledger.name, replayed)

    def _replay_entry(self, entry: Entry) -> None:
        try:
            metadata = message.read_metadata(entry.body, broker_entry.message_start(entry.body))
        except BadFrame as error:
            _log.warning("entry %d:%d cannot be parsed and is not deduplicated: %s", *entry.position, error)
            return
        if metadata.HasField("marker_type"):
            return
        if metadata.replicated_from:
            self.tracker.on_replicator(replicator_name(metadata.replicated_from, self._settings.cluster_name))
        self.tracker.replay(identity_of(metadata), self._clock.now_ms())
