# SPDX-License-Identifier: Apache-2.0
"""One ledger being written: packs entries, sends each to its write set, says how far they are confirmed.

Owns the unconfirmed entries and the writer's view of the ledger's record. `quorum.py` decides how far;
`ensemble_change.py` puts other bookies in the place of failed ones. Never waits in `append`, never confirms past what
the recorded ensemble holds, never confirms anything after it has failed.

A failure leaves the outcome of unconfirmed entries unknown (R9): some bookies may hold them.
Carries.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol, cast

from magnetar.errors import BadVersion, LedgerClosed, LedgerFenced, MagnetarError, WrongMasterKey
from magnetar.ledger.catalog import Versioned
from magnetar.ledger.channel import NO_ANSWER
from magnetar.ledger.ensemble_change import EnsembleChange
from magnetar.ledger.parts import LedgerParts
from magnetar.ledger.quorum import AckWindow
from magnetar.runtime.disk import Buffer
from magnetar.wire.bookkeeper.codes import ReturnCode
from magnetar.wire.bookkeeper.digest import DigestType
from magnetar.wire.bookkeeper.entry import EntryPacker, pack_crc32c

_FENCED: Final = int(ReturnCode.FENCED)
_UNAUTHORIZED: Final = int(ReturnCode.UNAUTHORIZED)

# What an idle writer has in flight: an empty deque has more bytes than the rest of it. Nothing can be put into it.
_NOTHING: Final = cast("deque[bytes]", ())

_log = logging.getLogger(__name__)


class WriterListener(Protocol):
    def on_confirmed(self, writer: "LedgerWriter", entry_id: int) -> None:
        """Every entry up to this one is safe; the number only rises."""

    def on_failed(self, writer: "LedgerWriter", error: MagnetarError) -> None:
        """Told once: nothing after last_add_confirmed will be confirmed."""


class LedgerWriter:
    __slots__ = (
        "_adds",
        "_change",
        "_confirmation",
        "_drained",
        "_idle_mark",
        "_is_crc32c",
        "_is_single",
        "_lac_interval_ms",
        "_lac_timer",
        "_listener",
        "_master_key",
        "_members",
        "_packer",
        "_parts",
        "_pending",
        "_refusal",
        "_silence_mark",
        "_silence_timer",
        "_sole_bookie",
        "_sole_channel",
        "_told_lac",
        "_window",
        "is_over",
        "known",
        "last_add_pushed",
        "ledger_id",
        "length",
    )

    def __init__(self, known: Versioned, parts: LedgerParts, listener: WriterListener) -> None:
        record = known.record
        self.ledger_id: Final = record.ledger_id
        self.known = known
        # Body bytes of all that was appended; of the confirmed entries once the writer is over.
        self.length = 0
        self.last_add_pushed = -1
        self._parts = parts
        self._listener = listener
        self._packer = EntryPacker(record.ledger_id, record.digest, record.password)
        self._is_crc32c = record.digest is DigestType.CRC32C
        self._master_key = self._packer.master_key
        self._window = AckWindow(record.quorum)
        # Packed entries from last_add_confirmed + 1 to last_add_pushed; its own as long as the silence is watched.
        self._pending = _NOTHING
        # What append raises, from close or failure on; over: nothing is confirmed any more.
        self._refusal: MagnetarError | None = None
        self.is_over = False
        self._drained: asyncio.Future[None] | None = None
        # Told at the next confirmation, or at the end.
        self._confirmation: asyncio.Future[None] | None = None
        self._change = EnsembleChange(self, parts)
        self._silence_timer: asyncio.TimerHandle | None = None
        self._silence_mark = -1
        self._lac_interval_ms = parts.settings.explicit_lac_interval_ms
        self._lac_timer: asyncio.TimerHandle | None = None
        self._idle_mark = self._told_lac = -1
        self._adopt_ensemble(record.last_segment.ensemble)
        self._watch_idleness()

    # --- the hot path -------------------------------------------------------------------------

    def append(self, parts: Sequence[Buffer]) -> bytes:
        """Send one entry; returns its packed bytes, its id is last_add_pushed. LedgerFenced, LedgerClosed when over."""
        if self._refusal is not None:
            raise self._refusal.with_traceback(None)
        entry_id = self.last_add_pushed + 1
        window = self._window
        length = self.length
        for part in parts:
            length += len(part)
        if self._is_crc32c:
            entry = pack_crc32c(self.ledger_id, entry_id, window.confirmed, length, parts)
        else:
            entry = self._packer.pack(entry_id, window.confirmed, length, parts)
        self.length = length
        self.last_add_pushed = window.pushed = entry_id
        if self._silence_timer is None:
            self._watch_silence()
        self._pending.append(entry)
        if self._is_single:
            self._sole_channel.add(self.ledger_id, entry_id, entry, self._master_key, self)
        else:
            for member in window.quorum.write_set(entry_id):
                self._adds[member](self.ledger_id, entry_id, entry, self._master_key, self)
        return entry

    def append_run(self, entries: Sequence[Sequence[Buffer]]) -> list[bytes]:
        """As append for entries that came together; the last one's id is last_add_pushed."""
        if self._refusal is not None:
            raise self._refusal.with_traceback(None)
        first = self.last_add_pushed + 1
        window = self._window
        packed, self.length = self._packer.pack_run(first, window.confirmed, self.length, entries)
        self.last_add_pushed = window.pushed = first + len(packed) - 1
        if self._silence_timer is None:
            self._watch_silence()
        self._pending += packed
        if self._is_single:
            self._sole_channel.add_run(self.ledger_id, first, packed, self._master_key, self)
        else:
            for entry_id, entry in enumerate(packed, first):
                for member in window.quorum.write_set(entry_id):
                    self._adds[member](self.ledger_id, entry_id, entry, self._master_key, self)
        return packed

    def on_added(self, bookie: str, first: int, last: int, code: int) -> None:
        member = 0 if bookie is self._sole_bookie else self._members.get(bookie)
        if member is None or self.is_over:
            return
        if code == 0:
            if self._window.on_acked(member, first, last):
                self._tell_confirmed()
        elif code == _FENCED:
            self.fail(LedgerFenced(f"Ledger {self.ledger_id} was fenced on {bookie}: another owner has taken it over."))
        elif code == _UNAUTHORIZED:
            self.fail(WrongMasterKey(f"{bookie} refuses the password of ledger {self.ledger_id}."))
        else:
            self._change.on_member_failed(member, code)

    # --- questions ----------------------------------------------------------------------------

    @property
    def last_add_confirmed(self) -> int:
        return self._window.confirmed

    @property
    def pending_entries(self) -> int:
        return len(self._pending)

    @property
    def pending_bytes(self) -> int:
        """Packed bytes in flight."""
        return sum(map(len, self._pending))

    @property
    def error(self) -> MagnetarError | None:
        """Why nothing more can be appended; None while it can."""
        return self._refusal

    async def force(self) -> int:
        """Wait until all appended so far is confirmed, and have every bookie make it durable; how far that is.

        What failed the writer, or BookieUnavailable when an ack quorum of bookies did not answer.
        """
        wanted = self.last_add_pushed
        while self.last_add_confirmed < wanted:
            if self.is_over:
                raise self._refusal or LedgerClosed(f"Ledger {self.ledger_id} is closed.")
            if self._confirmation is None:
                self._confirmation = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._confirmation)
        forced = 0
        trouble: MagnetarError | None = None
        for bookie in self.known.record.last_segment.ensemble:
            try:
                await self._parts.channels(bookie).force(self.ledger_id)
                forced += 1
            except MagnetarError as error:
                trouble = error
        quorum = self.known.record.quorum
        if trouble is not None and forced <= quorum.ensemble_size - quorum.ack_quorum:
            raise trouble
        return wanted

    # --- ending -------------------------------------------------------------------------------

    async def close(self) -> None:
        """Take no more entries, wait until those in flight are confirmed or have failed, close the ledger on record.

        LedgerFenced or LedgerClosed when another client ends it elsewhere: open it with recovery to learn where (R10).
        """
        if self._refusal is None:
            self._refusal = LedgerClosed(f"Ledger {self.ledger_id} is closed: nothing can be added.")
        if self._pending:
            if self._drained is None:
                self._drained = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._drained)
        if not self.is_over:
            self._end()
        await self._change.finish()
        if isinstance(self._refusal, LedgerFenced | WrongMasterKey):
            raise self._refusal.with_traceback(None)
        await self._close_on_record()

    def fail(self, error: MagnetarError) -> None:
        """Nothing after last_add_confirmed will be confirmed; the listener learns it once."""
        if self.is_over:
            return
        self._refusal = error
        self._end()
        self._listener.on_failed(self, error)

    # --- for the ensemble change --------------------------------------------------------------

    def hold(self) -> None:
        self._window.hold()

    def adopt(self, known: Versioned, members: Sequence[int]) -> None:
        """Other bookies stand at these members, on record: send them what they must hold."""
        self.known = known
        if self.is_over:
            return
        self._window.on_replaced(members)
        self._adopt_ensemble(known.record.last_segment.ensemble)
        first = self._window.confirmed + 1
        for member in members:
            for entry_id in self._window.entries_for(member):
                self._adds[member](self.ledger_id, entry_id, self._pending[entry_id - first], self._master_key, self)
        self._silence_mark = self._window.confirmed

    def release(self) -> None:
        if self._window.is_held and not self.is_over and self._window.release():
            self._tell_confirmed()

    # --- private ------------------------------------------------------------------------------

    def _adopt_ensemble(self, ensemble: tuple[str, ...]) -> None:
        self._members = {bookie: i for i, bookie in enumerate(ensemble)}
        channels = [self._parts.channels(bookie) for bookie in ensemble]
        self._adds = [channel.add for channel in channels]
        self._sole_channel = channels[0]
        self._is_single = len(ensemble) == 1
        # As its channel has it, so that it is known by identity.
        self._sole_bookie = channels[0].bookie if self._is_single else None

    def _tell_confirmed(self) -> None:
        confirmed = self._window.confirmed
        pending = self._pending
        if confirmed == self.last_add_pushed:
            pending.clear()
        else:
            for _ in range(len(pending) - (self.last_add_pushed - confirmed)):
                pending.popleft()
        self._listener.on_confirmed(self, confirmed)
        if self._confirmation is not None:
            self._wake_forcing()
        if self._drained is not None and not pending and not self._drained.done():
            self._drained.set_result(None)

    def _end(self) -> None:
        self.is_over = True
        self.length -= sum(len(entry) - self._packer.header_bytes for entry in self._pending)
        self._pending = _NOTHING
        for timer in (self._silence_timer, self._lac_timer):
            if timer is not None:
                timer.cancel()
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._wake_forcing()

    def _wake_forcing(self) -> None:
        waiting, self._confirmation = self._confirmation, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    async def _close_on_record(self) -> None:
        while not self.known.record.is_closed:
            record = self.known.record
            if not record.is_open:
                raise LedgerFenced(f"Ledger {self.ledger_id} is being recovered by another client.")
            try:
                closed = record.closed(self.last_add_confirmed, self.length)
                self.known = await self._parts.catalog.replace(self.known, closed)
            except BadVersion:
                self.known = await self._parts.catalog.load(self.ledger_id)
        if self.known.record.last_entry != self.last_add_confirmed:
            raise LedgerClosed(
                f"Ledger {self.ledger_id} was closed by another client at entry {self.known.record.last_entry},"
                f" not at {self.last_add_confirmed}."
            )

    def _watch_silence(self) -> None:
        loop = asyncio.get_running_loop()
        if self._pending is _NOTHING:
            self._pending = deque()
        self._silence_mark = self.last_add_pushed
        self._silence_timer = loop.call_later(self._parts.settings.add_timeout_ms / 1000, self._on_silence_checked)

    def _on_silence_checked(self) -> None:
        """Entries that were in flight at the last check, a whole timeout ago, and still are: their bookies failed."""
        self._silence_timer = None
        if self.is_over or not self._pending:
            self._pending = _NOTHING
            return
        if not self._window.is_held:
            for member in self._window.silent_members(self._silence_mark):
                self._change.on_member_failed(member, NO_ANSWER)
        if not self.is_over:
            self._watch_silence()

    def tell_when_idle(self, interval_ms: int) -> None:
        """Say so often how far the ledger is confirmed while nothing is appended, for readers that follow it.

        0: as often as the settings say, which may be never.
        """
        self._lac_interval_ms = interval_ms or self._parts.settings.explicit_lac_interval_ms
        if self._lac_timer is None and not self.is_over:
            self._watch_idleness()

    def _watch_idleness(self) -> None:
        interval_s = self._lac_interval_ms / 1000
        loop = asyncio.get_running_loop()
        self._lac_timer = loop.call_later(interval_s, self._on_idleness_checked) if interval_s > 0 else None

    def _on_idleness_checked(self) -> None:
        """A writer that appends tells its last add confirmed with each entry; an idle one must say it."""
        confirmed = self._window.confirmed
        if self.last_add_pushed == self._idle_mark and confirmed > self._told_lac:
            body = self._packer.pack_last_confirmed(confirmed)
            # A group of tasks that is full or closing leaves it to the next check.
            with contextlib.suppress(MagnetarError):
                self._parts.tasks.start(self._tell_explicitly(confirmed, body), f"LAC of ledger {self.ledger_id}")
                self._told_lac = confirmed
        self._idle_mark = self.last_add_pushed
        self._watch_idleness()

    async def _tell_explicitly(self, confirmed: int, body: bytes) -> None:
        for bookie in list(self._members):
            try:
                channel = self._parts.channels(bookie)
                await channel.write_last_confirmed(self.ledger_id, confirmed, body, self._master_key)
            except MagnetarError as error:
                _log.debug("ledger %d: %s was not told the last add confirmed: %s", self.ledger_id, bookie, error)
