# SPDX-License-Identifier: Apache-2.0
"""The pump of one subscription: reads what its dispatcher has room for, and sends what it assigns.

Owns the reading: one read at a time, replays and due messages before new entries, within the limits. `wake` is the one
door: new entries, permits, acks, a consumer that comes or goes, a connection that can write again, a due time. Never
stores a message, never knows the protocol, never decides who gets what.
Carries.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from magnetar.broker.compaction.view import CompactedView
from magnetar.broker.consumer import Delivery, DeliveryRun
from magnetar.broker.delayed.buckets import DelayedBuckets
from magnetar.broker.delayed.delayed_index import DelayedIndex
from magnetar.broker.dispatch import replay_reads
from magnetar.broker.dispatch.dispatcher import Dispatcher
from magnetar.broker.dispatch.hooks import DispatchLimit, EntryFilter
from magnetar.broker.dispatch.parts import DispatchParts
from magnetar.broker.dispatch.sieve import Sieve
from magnetar.broker.dispatch.wake_measure import USUAL
from magnetar.broker.transactions.buffer import TransactionBuffer
from magnetar.errors import MagnetarError, OwnerClosed
from magnetar.ids import Position
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.entry import Entry
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.runtime.turn_end import turn_end

_log = logging.getLogger(__name__)


class Pump:
    # Of one wake-up before other work on the loop gets its turn; what they read has a measure of its own.
    ROUNDS_MAX = 16
    RETRY_S = 1.0
    # Timers for due messages are at least so far apart, whatever the messages ask for.
    TIMER_S_MIN = 0.02
    TIMER_S_MAX = 60.0
    READ_PATIENCE_S = 60.0

    def __init__(self, name: str, managed_ledger: ManagedLedger, cursor: Cursor, parts: DispatchParts) -> None:
        self.name = name
        self.dispatcher: Dispatcher | None = None
        self.delayed = DelayedIndex()
        self.limits: tuple[DispatchLimit, ...] = ()
        self.messages_out = 0
        self.bytes_out = 0
        # How often a limit let nothing through: by its name, and whether messages or bytes were at their end.
        self.throttled: dict[tuple[str, bool], int] = {}
        self.is_closed = False
        self._managed_ledger = managed_ledger
        # Where new entries are read: the log itself, or its compacted view.
        self._source: ManagedLedger | CompactedView = managed_ledger
        self._cursor = cursor
        self._parts = parts
        self._loop = asyncio.get_running_loop()
        self._sieve = Sieve(cursor, parts, self.delayed)
        self.buckets = DelayedBuckets(managed_ledger, cursor, self.delayed, parts, self._on_buckets, self._go_on)
        self._reading_since_s: float | None = None
        self._holds = 0
        self._again_scheduled = False
        # The last wake-up had more to send than its measure, and the end of the log has not been reached since.
        self._is_behind = False
        self._timer_at_s = float("inf")
        # By message time, unlike the other.
        self._due_timer_at_s = float("inf")
        # A read that was started before a rewind or a reset must not be dispatched after it.
        self._epoch = 0
        self._read_epoch = 0
        # The read that is under way; one that was given up may still come back.
        self._read_number = 0
        # Replays that were named and not taken.
        self._in_vain: tuple[Position, ...] = ()
        self._messages_per_entry = 1.0

    @property
    def filters(self) -> tuple[EntryFilter, ...]:
        return self._sieve.filters

    @filters.setter
    def filters(self, filters: tuple[EntryFilter, ...]) -> None:
        self._sieve.filters = filters

    @property
    def sieve(self) -> Sieve:
        return self._sieve

    @property
    def is_reading(self) -> bool:
        return self._reading_since_s is not None

    @property
    def buffer(self) -> TransactionBuffer:
        """What of the topic readers may see."""
        return self._parts.buffer

    @property
    def is_held(self) -> bool:
        return self._holds > 0

    @property
    def messages_per_entry(self) -> float:
        return self._messages_per_entry

    # --- for the subscription -------------------------------------------------------------------

    def wake(self) -> None:
        """Send what can be sent. Cheap when there is nothing to do."""
        dispatcher = self.dispatcher
        if dispatcher is None or self._reading_since_s is not None or self._holds or self.is_closed:
            return
        if self._is_behind and self._again_scheduled:
            # It has had its measure of this turn of the loop.
            return
        if not self._pump(dispatcher):
            self.wake_soon()
        if self._is_behind:
            turn_end().give_way()
        if self.delayed.count:
            self._arm()

    def wake_soon(self) -> None:
        """`wake`, once for all that happens in this turn of the loop."""
        if not self._again_scheduled and not self.is_closed:
            self._again_scheduled = True
            self._parts.call_later(0, self._again)

    def rewind(self) -> None:
        """Read again from the first unacknowledged entry; what is being read now is not sent."""
        self._epoch += 1
        self._cursor.rewind()
        self._sieve.on_rewound()

    def read_compacted(self, view: CompactedView | None) -> None:
        """Read the compacted view from now on, or with None the log again."""
        self._source = view or self._managed_ledger
        self._sieve.view = view

    def start_over(self) -> None:
        """The cursor was moved: nothing that was read, waits or is delayed counts any more."""
        self._epoch += 1
        self._sieve.on_rewound()
        self.delayed.clear()
        if self.dispatcher is not None:
            self.dispatcher.clear()
            self.dispatcher.forget_counts()

    def recover_delayed(self) -> None:
        """Bring stored delayed messages back; nothing is read before they are known, or they would go out twice."""
        if self.buckets.start():
            self._holds += 1

    def hold(self, delay_s: float) -> None:
        """Send nothing for a while, then read again from the first unacknowledged entry."""
        self._holds += 1
        self._parts.call_later(delay_s, self._release)

    def close(self) -> None:
        self.is_closed = True
        self._epoch += 1

    # --- liveness -------------------------------------------------------------------------------

    def is_overdue(self) -> bool:
        """True when something could go out now and nothing is under way that will send it."""
        dispatcher = self.dispatcher
        if dispatcher is None or self.is_closed or self._holds or self._again_scheduled or self.is_reading:
            return False
        if dispatcher.room(1) <= 0 or self.limited_by() is not None:
            return False
        if dispatcher.replays(1):
            return True
        if not dispatcher.may_read():
            return False
        due_ms = self.delayed.next_due_ms
        is_late = due_ms is not None and due_ms + 1000 * self.RETRY_S <= self._parts.clock.now_ms()
        if is_late and not self.buckets.is_loading_due(self.READ_PATIENCE_S):
            return True
        return self.has_unread()

    def check_liveness(self) -> bool:
        """True when the subscription was stuck; it is not any more."""
        since_s = self._reading_since_s
        if since_s is not None and not self.is_closed and self._loop.time() - since_s > self.READ_PATIENCE_S:
            _log.error("a read for subscription %s did not come back, reading again", self.name)
            self._parts.memory.reads_given_up += 1
            self._read_number += 1
            self._reading_since_s = None
            self.wake()
            return True
        if not self.is_overdue():
            return False
        _log.error("subscription %s could send and did not, waking it", self.name)
        self._parts.memory.stuck_woken += 1
        self.wake()
        return True

    def has_unread(self) -> bool:
        found = self._managed_ledger.ledgers.entry_at_or_after(self._cursor.read_position)
        return found is not None and not self._parts.buffer.hides(found)

    def limited_by(self) -> DispatchLimit | None:
        """The rate limit that lets nothing through now."""
        return next((limit for limit in self.limits if min(limit.available()) <= 0), None)

    # --- reading --------------------------------------------------------------------------------

    def _pump(self, dispatcher: Dispatcher) -> bool:
        """True when nothing is left to do now; False when others must have their turn first."""
        settings = self._parts.settings
        read_max = settings.dispatch_read_entries_max
        measure = self._parts.memory.measure.of_one_behind(self._loop.time()) if self._is_behind else USUAL
        # Counted as read: what nobody gets took its time, too.
        entries_left, bytes_left = measure
        for _ in range(self.ROUNDS_MAX):
            room = dispatcher.room(int(read_max * self._messages_per_entry) + 1)
            entries_max, bytes_max = self._allowance(room)
            if entries_max <= 0:
                return True
            replays = self._replays(dispatcher, entries_max)
            if replays:
                found = replay_reads.read_cached(self._managed_ledger, replays, bytes_max)
                if found is None:
                    self._start(partial(self._read_replays, replays, bytes_max))
                    return True
                if not self._send_replays(dispatcher, replays, found):
                    return True
            else:
                if not dispatcher.may_read():
                    return True
                position = self._cursor.read_position
                if self._parts.buffer.hides(position):
                    return True
                if measure is not USUAL:
                    entries_max, bytes_max = min(entries_max, measure.entries), min(bytes_max, measure.size_bytes)
                found = self._read_cached(position, entries_max, bytes_max)
                if found is None:
                    self._start(partial(self._read_next, position, entries_max, bytes_max))
                    return True
                if not found:
                    self._is_behind = False
                    return True
                if not self._send_new(dispatcher, found):
                    return True
            entries_left -= len(found)
            bytes_left -= sum([len(entry.body) for entry in found])
            if entries_left <= 0 or bytes_left <= 0:
                self._is_behind = True
                return False
        return False

    def _read_cached(self, position: Position, entries_max: int, bytes_max: int) -> list[Entry] | None:
        if self._source is self._managed_ledger:
            return self._parts.shared_reads.read(self._source.read_cached, position, entries_max, bytes_max)
        return self._source.read_cached(position, entries_max, bytes_max)

    def _allowance(self, room: int) -> tuple[int, int]:
        """Entries and bytes to read for so many messages, by the batch size seen lately and the limits."""
        settings = self._parts.settings
        bytes_max = settings.dispatch_read_bytes_max
        if room <= 0:
            return 0, 0
        for limit in self.limits:
            messages, size_bytes = limit.available()
            if messages <= 0 or size_bytes <= 0:
                held = (limit.name, messages <= 0)
                self.throttled[held] = self.throttled.get(held, 0) + 1
                self._wake_in(limit.delay_s())
                return 0, 0
            room, bytes_max = min(room, messages), min(bytes_max, size_bytes)
        return max(1, min(settings.dispatch_read_entries_max, int(room / self._messages_per_entry))), bytes_max

    def _replays(self, dispatcher: Dispatcher, entries_max: int) -> list[Position]:
        replays = dispatcher.replays(entries_max)
        if self.delayed.count and len(replays) < entries_max and dispatcher.may_read():
            due = self.delayed.pop_due(self._parts.clock.now_ms(), entries_max - len(replays))
            self.buckets.on_due()
            if due:
                self._sieve.on_due(due)
                dispatcher.enqueue(due)
                replays = dispatcher.replays(entries_max)
        return replays

    def _start(self, reading: Callable[[int], Coroutine[Any, Any, None]]) -> None:
        self._reading_since_s = self._loop.time()
        self._read_number += 1
        # Noted here, not by the task: it runs later, and reading may be rewound before.
        self._read_epoch = self._epoch
        try:
            self._parts.tasks.start(reading(self._read_number), f"{self.name}: read")
        except OwnerClosed:
            self.is_closed = True
        except MagnetarError as error:
            self._again_later(self._read_number, error)

    async def _read_next(self, position: Position, entries_max: int, bytes_max: int, number: int) -> None:
        try:
            entries = await self._source.read(position, entries_max=entries_max, bytes_max=bytes_max)
        except MagnetarError as error:
            self._again_later(number, error)
            return
        if self._came_back(number):
            if self._read_epoch == self._epoch and self.dispatcher is not None and entries:
                self._send_new(self.dispatcher, entries)
            self.wake()

    async def _read_replays(self, positions: Sequence[Position], bytes_max: int, number: int) -> None:
        try:
            entries = await replay_reads.read(self._managed_ledger, positions, bytes_max)
        except MagnetarError as error:
            self._again_later(number, error)
            return
        if self._came_back(number):
            if self._read_epoch == self._epoch and self.dispatcher is not None:
                self._send_replays(self.dispatcher, positions, entries)
            self.wake()

    def _came_back(self, number: int) -> bool:
        """The read of this number ended. False when it was given up before, or nobody wants it any more."""
        if number != self._read_number or self.is_closed:
            return False
        self._reading_since_s = None
        return True

    def _again_later(self, number: int, error: MagnetarError) -> None:
        _log.warning("reading for subscription %s failed, trying again: %s", self.name, error)

        def again() -> None:
            if self._came_back(number):
                self.wake()

        self._parts.call_later(self.RETRY_S, again)

    # --- sending --------------------------------------------------------------------------------

    def _send_new(self, dispatcher: Dispatcher, entries: Sequence[Entry]) -> bool:
        through = self._parts.buffer.through
        if through is not None and entries[-1].position > through:
            # An open transaction: nothing from its first message on is shown.
            entries = [entry for entry in entries if entry.position <= through]
            if not entries:
                return False
        last = entries[-1]
        self._cursor.read_position = Position(last.ledger_id, last.entry_id + 1)
        deliveries = self._sieve.visible(dispatcher, entries)
        held_at = self._sieve.held_at
        settled = self._send(dispatcher, deliveries) if deliveries else 0
        if settled < len(deliveries):
            self._cursor.read_position = deliveries[settled].position
            self._sieve.on_read()
            return settled > 0
        self._sieve.on_read()
        if self.delayed.count:
            self.buckets.on_read()
        if held_at is not None:
            # A filter of an ordered subscription said "not now": nothing behind it may pass.
            self._cursor.read_position = held_at
            self._holds += 1
            self._parts.call_later(self._parts.settings.entry_filter_reschedule_ms / 1000, self._go_on)
            return False
        return True

    def _send_replays(self, dispatcher: Dispatcher, positions: Sequence[Position], entries: Sequence[Entry]) -> bool:
        """False when the round changed nothing, so that another one would not either."""
        through = entries[-1].position if entries else None
        found = {entry.position for entry in entries}
        gone = 0
        for position in positions:
            # What comes behind the last one read was left out for its size.
            if position not in found and (through is None or position < through or not self._is_stored(position)):
                dispatcher.forget(position)
                gone += 1
        deliveries = self._sieve.visible(dispatcher, entries, again=True)
        messages_out = self.messages_out
        if deliveries:
            self._send(dispatcher, deliveries)
        if gone or self.messages_out > messages_out or len(deliveries) < len(entries):
            self._in_vain = ()
            return True
        # Once is fair: entries whose key was not known have found their queue, or a consumer filled up meanwhile.
        if self._in_vain != tuple(positions):
            self._in_vain = tuple(positions)
            return True
        self._parts.memory.fruitless_rounds += 1
        return False

    def _is_stored(self, position: Position) -> bool:
        return self._managed_ledger.ledgers.contains(position)

    def _send(self, dispatcher: Dispatcher, deliveries: Sequence[Delivery]) -> int:
        assignment, settled = dispatcher.assign(deliveries)
        messages = size_bytes = entries = 0
        now_ms = self._parts.clock.now_ms()
        for consumer, given in assignment.items():
            consumer.consumed_ms = now_ms
            if isinstance(given, DeliveryRun):
                given_messages, given_bytes = given.messages, given.size_bytes
            else:
                given_messages = sum([delivery.messages for delivery in given])
                given_bytes = sum([len(delivery.entry.body) - delivery.facts.message_start for delivery in given])
                consumer.chunks_out += sum([delivery.facts.chunk is not None for delivery in given])
            consumer.bytes_out += given_bytes
            size_bytes += given_bytes
            entries += len(given)
            messages += given_messages
            consumer.link.deliver(consumer, given)
        if entries:
            self.messages_out += messages
            self.bytes_out += size_bytes
            self._messages_per_entry += (messages / entries - self._messages_per_entry) / 4
            for limit in self.limits:
                limit.consume(messages, size_bytes)
        return settled

    # --- times ----------------------------------------------------------------------------------

    def _arm(self) -> None:
        due_ms = self.delayed.next_due_ms
        assert due_ms is not None
        clock = self._parts.clock
        wait_s = (due_ms - clock.now_ms()) / 1000
        if wait_s <= 0:
            return
        wait_s = min(max(wait_s, self.TIMER_S_MIN), clock.trusted_s_max)
        at_s = clock.elapsed_s() + wait_s
        if at_s < self._due_timer_at_s - self.TIMER_S_MIN / 2:
            self._due_timer_at_s = at_s
            clock.call_later(wait_s, self._on_due_timer)

    def _on_due_timer(self) -> None:
        self._due_timer_at_s = float("inf")
        self.wake()
        if self.delayed.count and not self.is_closed:
            self._arm()

    def _wake_in(self, delay_s: float) -> None:
        delay_s = min(max(delay_s, self.TIMER_S_MIN), self.TIMER_S_MAX)
        at_s = self._loop.time() + delay_s
        if at_s < self._timer_at_s - self.TIMER_S_MIN / 2:
            self._timer_at_s = at_s
            self._parts.call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer_at_s = float("inf")
        self.wake()
        if self.delayed.count and not self.is_closed:
            self._arm()

    def _on_buckets(self) -> None:
        """Delayed messages were brought back from storage."""
        self.wake()
        if self.delayed.count and not self.is_closed:
            self._arm()

    def _again(self) -> None:
        self._again_scheduled = False
        self.wake()

    def _release(self) -> None:
        self._holds -= 1
        if not self._holds:
            self.rewind()
            self.wake()

    def _go_on(self) -> None:
        self._holds -= 1
        self._on_buckets()
