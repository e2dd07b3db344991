# SPDX-License-Identifier: Apache-2.0
"""Segments of a topic's snapshot of transactions: aborted ones that fill a segment are written once, beside the log.

Owns the segments' ledgers; the snapshot names each of them, and before one is made or deleted it names it as unused,
so that a crash leaves no ledger that nobody knows. One step at a time, in a task of its own. Never decides what is
aborted.
Carries.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from magnetar.broker.transactions.buffer import TransactionBuffer
from magnetar.broker.transactions.segment_format import ABORTED_BYTES, decode_segment, encode_segment
from magnetar.broker.transactions.txn_id import TxnId
from magnetar.errors import MagnetarError
from magnetar.ids import Position
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.runtime.tasks import Tasks

_SEGMENT: Final = "segment"
_UNUSED: Final = "unused"

_log = logging.getLogger(__name__)


class SnapshotSegments:
    __slots__ = ("_buffer", "_is_closed", "_is_working", "_managed_ledger", "_save", "_segments", "_tasks", "_unused")

    def __init__(
        self,
        buffer: TransactionBuffer,
        managed_ledger: ManagedLedger,
        tasks: Tasks,
        save: Callable[[], Awaitable[None]],
    ) -> None:
        self._buffer = buffer
        self._managed_ledger = managed_ledger
        self._tasks = tasks
        # Returns when the snapshot is durable, with what `properties` says.
        self._save = save
        # By ledger: where the last of its transactions was aborted.
        self._segments: dict[int, Position] = {}
        self._unused: dict[int, None] = {}
        self._is_working = False
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._segments)

    def properties(self) -> dict[str, int]:
        segments = {f"{_SEGMENT}:{each}:{last.ledger_id}": last.entry_id for each, last in self._segments.items()}
        return {**segments, **{f"{_UNUSED}:{each}": 0 for each in self._unused}}

    async def restore(self, properties: Mapping[str, int]) -> list[tuple[TxnId, Position]]:
        """What the segments of a snapshot hold. Raises when one cannot be read: readers would see what was aborted."""
        for name, entry_id in properties.items():
            kind, *numbers = name.split(":")
            if kind == _SEGMENT:
                ledger_id, last_ledger_id = map(int, numbers)
                self._segments[ledger_id] = Position(last_ledger_id, entry_id)
            elif kind == _UNUSED:
                self._unused[int(numbers[0])] = None
        side_ledgers = self._managed_ledger.side_ledgers
        return [each for ledger_id in self._segments for each in decode_segment(await side_ledgers.read(ledger_id, 0))]

    def look_around(self, segment_bytes: int) -> None:
        """Start what is to be done, if anything is: seal what fills a segment, delete what is needed no more."""
        count = max(1, segment_bytes // ABORTED_BYTES)
        has_work = self._unused or self._buffer.unsealed >= count or self._trimmed()
        if has_work and not self._is_working and not self._is_closed:
            work = self._work(count)
            try:
                self._tasks.start(work, f"{self._managed_ledger.name}: segments of transactions")
            except MagnetarError as error:
                _log.info("%s: segments of transactions are left for later: %s", self._managed_ledger.name, error)
            else:
                self._is_working = True

    def close(self) -> None:
        """Nothing new is begun; what was begun is the next owner's to delete."""
        self._is_closed = True

    async def delete_all(self) -> None:
        """The topic is deleted."""
        self.close()
        for ledger_id in (*self._segments, *self._unused):
            await self._managed_ledger.side_ledgers.delete(ledger_id)

    # --- inside -----------------------------------------------------------------------------------

    def _trimmed(self) -> list[int]:
        """Segments of which nothing is in the log any more."""
        first = self._managed_ledger.ledgers.before_first
        return [ledger_id for ledger_id, last in self._segments.items() if last < first]

    async def _work(self, count: int) -> None:
        try:
            while self._buffer.unsealed >= count and not self._is_closed:
                await self._seal(count)
            for ledger_id in self._trimmed():
                del self._segments[ledger_id]
                self._unused[ledger_id] = None
            if self._unused and not self._is_closed:
                await self._delete_unused()
        except MagnetarError as error:
            _log.warning("%s: segments of transactions: %s", self._managed_ledger.name, error)
        finally:
            self._is_working = False

    async def _seal(self, count: int) -> None:
        side_ledgers = self._managed_ledger.side_ledgers
        ledger_id = await side_ledgers.reserve_id()
        self._unused[ledger_id] = None
        await self._save()
        aborted = self._buffer.oldest_unsealed(count)
        if self._is_closed or not aborted:
            return
        about = {
            "component": b"transaction-snapshot-segment",
            "pulsar/managed-ledger": self._managed_ledger.name.encode(),
        }
        await side_ledgers.write(ledger_id, [encode_segment(aborted)], about)
        self._buffer.seal(aborted)
        del self._unused[ledger_id]
        self._segments[ledger_id] = aborted[-1][1]
        await self._save()

    async def _delete_unused(self) -> None:
        await self._save()
        for ledger_id in list(self._unused):
            await self._managed_ledger.side_ledgers.delete(ledger_id)
            del self._unused[ledger_id]
