# SPDX-License-Identifier: Apache-2.0
"""What of the entries just read a consumer may see now: not what is acknowledged, not markers, not what is due later,
not what a filter keeps back.

Owned by a Pump. Acknowledges what no consumer will ever see, so that the cursor can pass it.
Decides.
"""

from collections.abc import Iterable, Sequence
from functools import partial

from magnetar.broker.compaction.view import CompactedView
from magnetar.broker.consumer import Delivery, DeliveryRun, new_delivery
from magnetar.broker.delayed.delayed_index import DelayedIndex
from magnetar.broker.dispatch.dispatcher import Dispatcher
from magnetar.broker.dispatch.hooks import EntryFilter, Verdict
from magnetar.broker.dispatch.parts import DispatchParts
from magnetar.broker.entry_facts import EntryFacts
from magnetar.broker.transactions.marker import as_marker
from magnetar.broker.transactions.pending_acks import PendingAcks
from magnetar.errors import BadFrame
from magnetar.ids import Position
from magnetar.managed_ledger.acked_entries import AckedEntries
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.entry import Entry
from magnetar.wire import message

# Once per entry: half the cost of Entry.position.
new_position = partial(tuple.__new__, Position)


class Sieve:
    __slots__ = (
        "_ahead",
        "_cursor",
        "_delayed",
        "_parts",
        "accepted",
        "filters",
        "held_at",
        "pending",
        "rejected",
        "rescheduled",
        "shows_markers",
        "view",
    )

    def __init__(self, cursor: Cursor, parts: DispatchParts, delayed: DelayedIndex) -> None:
        self._cursor = cursor
        self._parts = parts
        self._delayed = delayed
        # Delayed entries that came due, and went out, before reading got to them.
        self._ahead = AckedEntries()
        self.filters: tuple[EntryFilter, ...] = ()
        # What the entries were read through, when it is not the log itself.
        self.view: CompactedView | None = None
        # Where an ordered subscription has to stop for now, because a filter said so.
        self.held_at: Position | None = None
        # Acknowledgements that wait for the end of their transaction.
        self.pending: PendingAcks | None = None
        # For a reader that wants to know why numbers are left out: what nobody sees comes as markers.
        self.shows_markers = False
        # Entries by what the filters said of them.
        self.accepted = 0
        self.rejected = 0
        self.rescheduled = 0

    def on_due(self, positions: Iterable[Position]) -> None:
        """Delayed entries go out now; when reading gets to them it passes them over."""
        read_position = self._cursor.read_position
        for position in positions:
            if position >= read_position:
                self._ahead.add(*position)

    def on_read(self) -> None:
        """The read position moved on for good."""
        if self._ahead.count:
            ledger_id, entry_id = self._cursor.read_position
            self._ahead.drop_ledgers_before(ledger_id)
            self._ahead.drop_through(ledger_id, entry_id - 1)

    def on_rewound(self) -> None:
        self._ahead.clear()

    def visible(self, dispatcher: Dispatcher, entries: Sequence[Entry], *, again: bool = False) -> list[Delivery]:
        """Entries in their order; `again` when they were read before, and may be acknowledged meanwhile."""
        if not again and self._lets_all_pass(entries[0]):
            run = self._parts.shared_reads.run(entries, dispatcher.needs_keys, self._run_of)
            if run is not None:
                self.held_at = None
                return run
        facts_of = self._parts.memory.facts.of
        cursor, state = self._cursor, self._cursor.state
        may_be_acked = again or state.acked.count > 0 or len(state.batches) > 0
        may_delay = not dispatcher.is_ordered and self._parts.settings.delayed_delivery_enabled
        mark_delete = state.mark_delete
        aborted = self._parts.buffer.aborted
        pending = self.pending if self.pending else None
        deliveries: list[Delivery] = []
        self.held_at = None
        ahead = self._ahead if self._ahead.count and not again else None
        for entry in entries:
            position = new_position((entry.ledger_id, entry.entry_id))
            if ahead is not None and ahead.contains(*position):
                continue
            facts = facts_of(entry)
            messages = facts.messages
            ack_set: Sequence[int] = ()
            if may_be_acked or position <= mark_delete:
                if state.is_acked(position) and not (self.view and self.view.is_beyond_cursor(position)):
                    dispatcher.forget(position)
                    continue
                ack_set = cursor.batch_words(position)
                if ack_set:
                    messages = sum([word.bit_count() for word in ack_set])
            if self.view is not None:
                ack_set = self.view.left_of(position, ack_set)
                messages = sum([word.bit_count() for word in ack_set]) if ack_set else messages
            if facts.is_marker or (facts.txn_id is not None and facts.txn_id in aborted):
                if self.shows_markers:
                    shown = entry if facts.is_marker else as_marker(entry)
                    deliveries.append(new_delivery((shown, position, facts, facts.messages, (), 0)))
                else:
                    self._pass_over(dispatcher, position)
                continue
            if pending is not None:
                left = pending.left_of(position, ack_set, messages)
                if left is None:
                    # It goes out again if its transaction is aborted.
                    dispatcher.forget(position)
                    continue
                ack_set, messages = left
            if facts.deliver_at_ms and may_delay and self._keep_for_later(position, facts.deliver_at_ms, again):
                dispatcher.forget(position)
                continue
            if self.filters and not self._passes(dispatcher, entry, position, facts):
                if self.held_at is not None:
                    break
                continue
            if dispatcher.needs_keys:
                facts = self._parts.memory.facts.keyed(entry)
            deliveries.append(new_delivery((entry, position, facts, messages, ack_set, 0)))
        return deliveries

    def _lets_all_pass(self, first: Entry) -> bool:
        """Whether from this entry on nothing depends on the subscription."""
        return (
            self.view is None
            and not (self._ahead.count or self.filters or self.pending)
            and self._cursor.state.is_untouched_from(first.ledger_id, first.entry_id)
        )

    def _run_of(self, entries: Sequence[Entry], keyed: bool) -> DeliveryRun | None:
        """None when one of the entries is for some consumers only, or not for now."""
        found = self._parts.memory.facts.of_all(entries, keyed=keyed)
        messages = size_bytes = 0
        deliveries = []
        for entry, facts in zip(entries, found, strict=True):
            if not facts.is_plain:
                return None
            messages += facts.messages
            size_bytes += len(entry.body) - facts.message_start
            position = new_position((entry.ledger_id, entry.entry_id))
            deliveries.append(new_delivery((entry, position, facts, facts.messages, (), 0)))
        return DeliveryRun(deliveries, messages, size_bytes)

    def _keep_for_later(self, position: Position, deliver_at_ms: int, again: bool) -> bool:
        if not again and position in self._delayed:
            return True
        if deliver_at_ms <= self._parts.clock.now_ms():
            return False
        self._delayed.add(position, deliver_at_ms)
        return True

    def _passes(self, dispatcher: Dispatcher, entry: Entry, position: Position, facts: EntryFacts) -> bool:
        verdict = self._verdict(entry, position, facts)
        if verdict is Verdict.ACCEPT:
            self.accepted += 1
            return True
        if verdict is Verdict.REJECT:
            self.rejected += 1
            self._pass_over(dispatcher, position)
        elif dispatcher.is_ordered:
            self.rescheduled += 1
            self.held_at = position
        else:
            self.rescheduled += 1
            later_ms = self._parts.clock.now_ms() + self._parts.settings.entry_filter_reschedule_ms
            self._delayed.add(position, later_ms)
            dispatcher.forget(position)
        return False

    def _verdict(self, entry: Entry, position: Position, facts: EntryFacts) -> Verdict:
        """The first filter that does not accept decides. What cannot be parsed is for the consumer to see."""
        try:
            metadata = message.read_metadata(entry.body, facts.message_start)
        except BadFrame:
            return Verdict.ACCEPT
        properties = self._cursor.user_properties
        for entry_filter in self.filters:
            verdict = entry_filter.verdict(entry, position, metadata, properties)
            if verdict is not Verdict.ACCEPT:
                return verdict
        return Verdict.ACCEPT

    def _pass_over(self, dispatcher: Dispatcher, position: Position) -> None:
        dispatcher.forget(position)
        self._cursor.ack(position)
