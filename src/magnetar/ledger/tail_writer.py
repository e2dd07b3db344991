# SPDX-License-Identifier: Apache-2.0
"""The recoverer's pen: writes recovered entries back to a whole write set, byte for byte, with the recovery flag.

Failed bookies are replaced in memory only; the closing record carries the new segments, or nothing does. Until it is
closed the ledger's entries also lie where its stored record says, so a recoverer may die at any step.
Carries.
"""

import asyncio
import logging
from collections import deque

from magnetar.errors import BookieUnavailable, MagnetarError, NotEnoughBookies, WrongMasterKey
from magnetar.ledger.channel import NO_ANSWER
from magnetar.ledger.parts import LedgerParts
from magnetar.ledger.placement import affinity_of
from magnetar.ledger.quorum import AckWindow
from magnetar.ledger.record import LedgerRecord
from magnetar.wire.bookkeeper.codes import ReturnCode

_log = logging.getLogger(__name__)


class TailWriter:
    __slots__ = (
        "_error",
        "_failed",
        "_master_key",
        "_members",
        "_parts",
        "_pending",
        "_progress",
        "_suspects",
        "_window",
        "record",
    )

    def __init__(self, record: LedgerRecord, start: int, master_key: bytes, parts: LedgerParts) -> None:
        # The record as it should be closed: the stored one with the segments changed here.
        self.record = record
        self._parts = parts
        self._master_key = master_key
        self._window = AckWindow(record.quorum, start)
        self._pending: deque[bytes] = deque()
        # Members that failed and could not be replaced; bookies that failed here, which are not chosen again.
        self._failed: dict[int, None] = {}
        self._suspects: dict[str, None] = {}
        self._members = {bookie: i for i, bookie in enumerate(record.last_segment.ensemble)}
        self._error: MagnetarError | None = None
        self._progress = asyncio.Event()

    @property
    def last_entry(self) -> int:
        return self._window.pushed

    @property
    def pending_entries(self) -> int:
        return len(self._pending)

    def append(self, entry: bytes) -> None:
        """Write back the entry after the last one."""
        entry_id = self._window.pushed = self._window.pushed + 1
        self._pending.append(entry)
        ensemble = self.record.last_segment.ensemble
        for member in self.record.quorum.write_set(entry_id):
            self._send(ensemble[member], entry_id, entry)

    def on_added(self, bookie: str, first: int, last: int, code: int) -> None:
        member = self._members.get(bookie)
        if member is None or self._error is not None:
            return
        if code == 0:
            if self._window.on_acked(member, first, last):
                for _ in range(len(self._pending) - (self._window.pushed - self._window.confirmed)):
                    self._pending.popleft()
        elif code == ReturnCode.UNAUTHORIZED:
            self._error = WrongMasterKey(f"{bookie} refuses the password of ledger {self.record.ledger_id}.")
        else:
            self._on_member_failed(member, code)
        self._progress.set()

    async def drain(self, entries_max: int = 0) -> None:
        """Until at most so many entries are not confirmed. BookieUnavailable when their bookies stay silent."""
        while len(self._pending) > entries_max and self._error is None:
            self._progress.clear()
            mark = self._window.pushed
            try:
                async with asyncio.timeout(self._parts.settings.add_timeout_ms / 1000):
                    await self._progress.wait()
            except TimeoutError:
                for member in self._window.silent_members(mark):
                    self._on_member_failed(member, NO_ANSWER)
        if self._error is not None:
            raise self._error

    # --- private ------------------------------------------------------------------------------

    def _send(self, bookie: str, entry_id: int, entry: bytes) -> None:
        channel = self._parts.channels(bookie)
        channel.add(self.record.ledger_id, entry_id, entry, self._master_key, self, recovery=True)

    def _on_member_failed(self, member: int, code: int) -> None:
        quorum, ensemble = self.record.quorum, self.record.last_segment.ensemble
        if member in self._failed:
            return
        self._failed[member] = None
        self._suspects[ensemble[member]] = None
        self._parts.placement.on_bookie_failed(ensemble[member])
        _log.warning("ledger %d: %s failed a recovery add (%d)", self.record.ledger_id, ensemble[member], code)
        try:
            affinity = affinity_of(self.record.custom or {})
            chosen = self._parts.placement.replacements(
                quorum, ensemble, [member], excluded=self._suspects, affinity=affinity
            )
        except NotEnoughBookies:
            if not quorum.may_confirm_without(self._failed):
                bookies = ", ".join(ensemble[i] for i in self._failed)
                self._error = BookieUnavailable(
                    f"Ledger {self.record.ledger_id} cannot be recovered without {bookies}: no other bookie is left."
                )
            return
        del self._failed[member]
        changed = tuple(chosen.get(i, bookie) for i, bookie in enumerate(ensemble))
        first = self._window.confirmed + 1
        self.record = self.record.with_ensemble(first, changed)
        self._members = {bookie: i for i, bookie in enumerate(changed)}
        self._window.on_replaced([member])
        for entry_id in self._window.entries_for(member):
            self._send(changed[member], entry_id, self._pending[entry_id - first])
