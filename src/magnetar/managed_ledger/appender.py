# SPDX-License-Identifier: Apache-2.0
"""The writing end of a managed ledger: one append after another, from ledger to ledger.

Owns the present writer, the previous one while it drains, and the appends that wait for a ledger. Appends are told as
persisted in their order and only once their ledger is on record. How it goes from one ledger to the next is in
`succession.py`, which calls back here. Never waits in `append`; never tells of an append twice.

States: writing (a writer is there), between ledgers (appends queue up), over (a refusal says why).
Carries.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final

from magnetar.errors import InvariantBroken, LedgerFenced, MagnetarError, OwnerClosed, TooManyRequests
from magnetar.ids import EARLIEST, Position
from magnetar.ledger.writer import LedgerWriter
from magnetar.managed_ledger.cursors import Cursors
from magnetar.managed_ledger.ledger_list import LedgerSpan
from magnetar.managed_ledger.log_record import LogRecord
from magnetar.managed_ledger.parts import LogParts, PersistListener
from magnetar.managed_ledger.rollover import Rollover, decide_rollover
from magnetar.managed_ledger.succession import OpenLedger, Succession
from magnetar.runtime.disk import Buffer

_NEVER: Final = 2**63
# An owner whose ledgers are fenced again and again, with nothing confirmed between, is not the owner any more.
_FENCES_MAX: Final = 2

_log = logging.getLogger(__name__)


class Appender:
    __slots__ = (
        "_busy",
        "_confirmed_before",
        "_current",
        "_cursors",
        "_fences",
        "_full_at",
        "_held",
        "_idle_waiters",
        "_is_over",
        "_keep",
        "_last_append_s",
        "_listener",
        "_log",
        "_loop",
        "_previous",
        "_queue",
        "_queue_bytes",
        "_refusal",
        "_seen_pushed",
        "_succession",
        "_told",
        "_writer",
    )

    def __init__(self, log: LogParts, record: LogRecord, cursors: Cursors, listener: PersistListener) -> None:
        self._log = log
        self._cursors = cursors
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._succession = Succession(log, record, self)
        # The ledger that was last told of, and what was confirmed before the first was.
        self._told: LedgerSpan | None = None
        self._confirmed_before = log.ledgers.last_position if len(log.ledgers) else EARLIEST
        self._writer: LedgerWriter | None = None
        self._current: OpenLedger | None = None
        self._previous: OpenLedger | None = None
        # How far the present ledger is confirmed while the previous one must be told first.
        self._held = -1
        self._keep: Callable[[bytes], None] = _keep_nothing
        self._full_at = _NEVER
        # Made when something must wait: an empty deque has more bytes than the rest of an idle appender.
        self._queue: deque[Buffer] | None = None
        self._queue_bytes = 0
        # One change of ledgers at a time.
        self._busy = False
        self._refusal: MagnetarError | None = None
        # Everything that waited was told as failed: nothing is told after that.
        self._is_over = False
        self._idle_waiters: list[asyncio.Future[None]] = []
        self._fences = 0
        # When an append was last seen, as precisely as check_rollover is called.
        self._last_append_s = self._log.clock.elapsed_s()
        self._seen_pushed = -1

    # --- the hot path -------------------------------------------------------------------------

    def append(self, parts: Sequence[Buffer]) -> None:
        """Take one entry; its outcome comes to the listener. Raises, and has then taken nothing, when it cannot:

        TooManyRequests when too much waits for a ledger, TopicTerminated, LedgerFenced, or why it is over.
        InvariantBroken after anything else: nobody knows then which answer belongs to which entry.
        """
        writer = self._writer
        try:
            if writer is None:
                self._enqueue(parts)
            else:
                try:
                    self._keep(writer.append(parts))
                except MagnetarError:
                    self._enqueue(parts)
                else:
                    if writer.last_add_pushed >= self._full_at:
                        self._on_full()
        except MagnetarError:
            raise
        except Exception as error:
            raise InvariantBroken(f"{self._log.name}: an append ended half-way: {error!r}") from error

    def append_run(self, entries: Sequence[Sequence[Buffer]]) -> bool:
        """Take several entries at once while there is a ledger with room for them; else False, and nothing is taken."""
        writer = self._writer
        current = self._current
        if writer is None or current is None or writer.last_add_pushed + len(entries) >= self._full_at:
            return False
        try:
            packed = writer.append_run(entries)
        except MagnetarError:
            return False
        except Exception as error:
            raise InvariantBroken(f"{self._log.name}: a run of appends ended half-way: {error!r}") from error
        current.tail.entries += packed
        return True

    def on_confirmed(self, writer: LedgerWriter, entry_id: int) -> None:
        current = self._current
        if self._previous is None and current is not None and writer is current.writer:
            self._tell(current, entry_id)
        else:
            self._on_confirmed_aside(writer, entry_id)

    def on_failed(self, writer: LedgerWriter, error: MagnetarError) -> None:
        """What was not confirmed goes to the next ledger, in order, before anyone is told."""
        known = [ledger.writer for ledger in (self._previous, self._current) if ledger is not None]
        if writer not in known:
            return
        _log.warning("%s: ledger %d failed: %s", self._log.name, writer.ledger_id, error)
        self._writer = None
        self._fences = self._fences + 1 if isinstance(error, LedgerFenced) else 0
        if self._fences >= _FENCES_MAX:
            self.give_up(error)
            return
        if self._fences:
            self._launch(self._succession.prove_ownership(), "prove ownership")
        if not self._busy:
            self._start(self._succession.replace_failed, "replace failed ledger")

    # --- questions ----------------------------------------------------------------------------

    @property
    def last_confirmed(self) -> Position:
        """How far the listener was told."""
        told = self._told
        return self._confirmed_before if told is None else Position(told.ledger_id, told.entries - 1)

    @property
    def current(self) -> OpenLedger | None:
        return self._current

    @property
    def previous(self) -> OpenLedger | None:
        return self._previous

    @property
    def refusal(self) -> MagnetarError | None:
        """Why nothing can be appended any more; None while it can."""
        return self._refusal

    @property
    def is_over(self) -> bool:
        """True once everything has failed; a change of ledgers that is under way ends without effect."""
        return self._is_over

    @property
    def pending_bytes(self) -> int:
        """Bytes that were appended and not yet told of."""
        current, previous = self._current, self._previous
        size = self._queue_bytes
        if previous is not None:
            size += previous.writer.pending_bytes
        if current is not None:
            size += current.writer.pending_bytes if previous is None else current.writer.length
        return size

    @property
    def pending_entries(self) -> int:
        count = 0 if self._queue is None else len(self._queue)
        for ledger in (self._previous, self._current):
            if ledger is not None:
                count += len(ledger.tail.entries) - (ledger.tail.confirmed + 1 - ledger.tail.base)
        return count

    # --- from one ledger to the next ----------------------------------------------------------

    async def open_first(self) -> None:
        """Give an empty log its first ledger; before anything is appended."""
        await self._succession.open_first()
        self._told, self._confirmed_before = None, self._log.ledgers.last_position

    def check_rollover(self) -> None:
        """Called from time to time: full ledgers that were too young, old ones, idle ones."""
        current = self._current
        if current is not None:
            current.writer.tell_when_idle(self._log.settings.confirmed_told_interval_ms)
        if current is None or self._busy or self._previous is not None or self._writer is None:
            return
        now_s = self._log.clock.elapsed_s()
        if current.writer.last_add_pushed != self._seen_pushed:
            self._seen_pushed = current.writer.last_add_pushed
            self._last_append_s = now_s
        choice = decide_rollover(
            self._log.settings,
            entries=current.writer.last_add_pushed + 1,
            size_bytes=current.writer.length,
            age_ms=int((now_s - current.born_s) * 1000),
            idle_ms=int((now_s - self._last_append_s) * 1000),
        )
        if choice is Rollover.ROLL:
            self._start(self._succession.roll, "roll ledger")
        elif choice is Rollover.CLOSE and not self.pending_entries:
            self._start(self._succession.close_idle, "close idle ledger")

    def adopt(self, ledger: OpenLedger) -> None:
        """Appends go to this ledger from now on: first what was left over, then what has queued up."""
        if self._current is not None and not self._current.is_over:
            self._previous = self._current
            self._held = -1
        self._current = ledger
        ledger.writer.tell_when_idle(self._log.settings.confirmed_told_interval_ms)
        self._keep = ledger.tail.entries.append
        self._log.tails[ledger.tail.ledger_id] = ledger.tail
        self._seen_pushed = -1
        self._full_at = self._log.settings.ledger_entries_max - 1
        self._drain_queue(ledger.writer)
        if self._refusal is None:
            self._writer = ledger.writer

    def wait_for_ledger(self) -> None:
        """Appends queue up from now on."""
        self._writer = None

    def on_listed(self, ledger: OpenLedger) -> None:
        """The ledger is on record: what it confirmed meanwhile may be told."""
        self._previous = None
        if self._held >= 0:
            self._tell(ledger, self._held)
            self._held = -1

    def on_recovered(self, ledger: OpenLedger, last_entry: int) -> None:
        """A failed ledger was closed on record at this entry; the appends behind it wait for the next ledger."""
        if last_entry >= ledger.span.entries:
            self._tell(ledger, last_entry)
        self._requeue(ledger.tail.take_unconfirmed())
        ledger.is_over = True
        if self._previous is ledger:
            self._previous = None
        elif self._current is ledger:
            self._current = None

    def abandon(self, ledger: OpenLedger) -> None:
        """A ledger that never came on record is given up; its appends go before all that wait."""
        ledger.is_over = True
        self._log.tails.pop(ledger.tail.ledger_id, None)
        self._held = -1
        self._requeue(ledger.tail.take_unconfirmed())
        if self._current is ledger:
            self._current = None

    def retire(self, ledger: OpenLedger) -> None:
        """The ledger is closed and on record, and nothing waits in it."""
        ledger.is_over = True
        if self._current is ledger:
            self._current = None
            self._writer = None

    def postpone_rollover(self) -> None:
        """The next ledger could not be made: this one is written past its limits for a while."""
        current = self._current
        if current is not None:
            self._full_at = current.writer.last_add_pushed + max(1, self._log.settings.ledger_entries_max // 10)

    def give_up(self, error: MagnetarError) -> None:
        """Nothing will be appended any more; everything that waits fails."""
        if self._refusal is None or self.pending_entries:
            count = self.pending_entries
            self._refusal = self._refusal or error
            self._writer = None
            self._previous = self._current = None
            self._queue = None
            self._queue_bytes = 0
            self._is_over = True
            self._listener.on_append_failed(count, error)
        self._wake_waiters()

    # --- ending -------------------------------------------------------------------------------

    def refuse(self, refusal: MagnetarError, *, instead: bool = False) -> None:
        """Take no more appends; those on their way go on. The first reason stays, unless this one is instead of it."""
        if self._refusal is None or instead:
            self._refusal = refusal
        self._writer = None

    async def drained(self) -> None:
        """Wait until nothing is on its way and no ledger is being changed."""
        while self._busy or self.pending_entries:
            await self._change()

    async def settled(self) -> None:
        """Wait until no ledger is being changed, whatever is on its way."""
        while self._busy:
            await self._change()

    async def end(self, *, terminated: bool) -> None:
        """Close the present ledger on record, with the end of the log if it is terminated. After `drained`."""
        await self._succession.end(terminated=terminated)

    # --- private ------------------------------------------------------------------------------

    async def _change(self) -> None:
        waiter = self._loop.create_future()
        self._idle_waiters.append(waiter)
        await waiter

    def _tell(self, ledger: OpenLedger, entry_id: int) -> None:
        span = ledger.span
        first = span.entries
        if entry_id < first:
            return
        tail = ledger.tail
        cursors = self._cursors
        is_kept = bool(cursors.durable or cursors.non_durable or tail.cached_bytes)
        size = tail.on_confirmed(entry_id) if is_kept else tail.pass_on(entry_id)
        span.entries = entry_id + 1
        span.size_bytes += size - tail.header_bytes * (entry_id + 1 - first)
        self._told = span
        if self._fences:
            self._fences = 0
        if is_kept:
            self._log.cache.on_confirmed(tail, size, cursors.needed_from)
            if not cursors.is_tail_wanted():
                self._log.cache.drop(tail)
        self._listener.on_persisted(span.ledger_id, first, entry_id)
        if span.size_bytes >= self._log.settings.ledger_bytes_max and ledger is self._current:
            self._on_full_by_size()
        if self._idle_waiters:
            self._wake_waiters()

    def _on_confirmed_aside(self, writer: LedgerWriter, entry_id: int) -> None:
        previous, current = self._previous, self._current
        if previous is not None and writer is previous.writer:
            self._tell(previous, entry_id)
            if entry_id == writer.last_add_pushed and not self._busy:
                self._start(self._succession.finish_roll, "finish rolling")
        elif current is not None and writer is current.writer:
            self._held = entry_id

    def _on_full(self) -> None:
        self._full_at = _NEVER
        self.check_rollover()

    def _on_full_by_size(self) -> None:
        if self._full_at != _NEVER:
            self._on_full()

    def _enqueue(self, parts: Sequence[Buffer]) -> None:
        if self._refusal is not None:
            raise self._refusal.with_traceback(None)
        body = b"".join(parts)
        if self._queue_bytes + len(body) > self._log.settings.queued_bytes_max:
            raise TooManyRequests(f"{self._log.name}: {self._queue_bytes} bytes wait for a ledger already")
        if self._queue is None:
            self._queue = deque()
        self._queue.append(body)
        self._queue_bytes += len(body)
        if not self._busy and self._current is None:
            self._start(self._succession.open_next, "open ledger")

    def _requeue(self, bodies: list[memoryview]) -> None:
        if bodies:
            self._queue = deque((*bodies, *(self._queue or ())))
        self._queue_bytes += sum(map(len, bodies))

    def _drain_queue(self, writer: LedgerWriter) -> None:
        queue = self._queue
        while queue:
            try:
                self._keep(writer.append((queue[0],)))
            except MagnetarError:
                return
            self._queue_bytes -= len(queue.popleft())
        self._queue = None

    def _start(self, change: Callable[[], Awaitable[None]], name: str) -> None:
        self._busy = self._launch(self._run(change), name)

    def _launch(self, step: Coroutine[Any, Any, None], name: str) -> bool:
        try:
            self._log.tasks.start(step, f"{self._log.name}: {name}")
        except (OwnerClosed, TooManyRequests) as error:
            # Not at once: the caller may be inside `append`.
            self._loop.call_soon(self.give_up, error)
            return False
        return True

    async def _run(self, change: Callable[[], Awaitable[None]]) -> None:
        try:
            await change()
        finally:
            self._busy = False
        self._look_around()

    def _look_around(self) -> None:
        """After a change of ledgers: what happened meanwhile, and what is there to do now?"""
        previous, current = self._previous, self._current
        for ledger in (previous, current):
            if ledger is not None and not ledger.is_over and ledger.writer.error is not None:
                self._start(self._succession.replace_failed, "replace failed ledger")
                return
        if previous is not None and previous.is_drained:
            self._start(self._succession.finish_roll, "finish rolling")
        elif current is None and self._queue:
            self._start(self._succession.open_next, "open ledger")
        else:
            if self._full_at == _NEVER:
                # It may have filled up while the one before it was put on record.
                self.check_rollover()
            self._wake_waiters()

    def _wake_waiters(self) -> None:
        waiters, self._idle_waiters = self._idle_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def _keep_nothing(_entry: bytes) -> None:
    raise AssertionError("an entry was packed without a ledger")
