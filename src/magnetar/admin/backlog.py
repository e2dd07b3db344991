# SPDX-License-Identifier: Apache-2.0
"""Backlogs counted exactly: in messages, not in entries.

A subscription knows its own as long as memory can tell. When it does not (after a seek, or when another broker had the
topic), it is counted once by reading what has to be read and not more: without holes two entries tell, the number of
the last message and that before the first; with holes or parts of batches every entry of the backlog is looked at, in
slices, up to a limit.
Carries.
"""

import asyncio
from typing import Any, NamedTuple

from magnetar.broker.entry_facts import parse_facts
from magnetar.broker.stored_message import publish_time_ms, stored_index
from magnetar.broker.subscription import Subscription
from magnetar.ids import Position

_ENTRIES_PER_READ = 100
_BYTES_PER_READ = 1024 * 1024


class BacklogCount(NamedTuple):
    entries: int
    messages: int
    first: Position | None
    last: Position | None
    # The limit ended it before the backlog did.
    is_cut: bool


async def counted_backlog(subscription: Subscription, start: Position, entries_max: int) -> BacklogCount:
    """What is not acknowledged from a position on, entry by entry."""
    ledger, cursor = subscription.managed_ledger, subscription.cursor
    entries = messages = 0
    first = last = None
    position = start
    while entries < entries_max:
        read = await ledger.read(position, entries_max=_ENTRIES_PER_READ, bytes_max=_BYTES_PER_READ)
        if not read:
            return BacklogCount(entries, messages, first, last, False)
        for entry in read:
            if not cursor.is_acked(entry.position):
                left = cursor.state.batch_bits(entry.position)
                messages += left.bit_count() if left else parse_facts(entry).messages
                entries += 1
                first = first or entry.position
                last = entry.position
        position = ledger.next_position(read[-1].position)
        await asyncio.sleep(0)
    return BacklogCount(entries, messages, first, last, True)


async def backlog_messages(subscription: Subscription, entries_max: int) -> int | None:
    """How many messages wait; None when that cannot be told within the limit."""
    known = subscription.backlog_messages()
    if known is not None:
        return known
    state = subscription.cursor.state
    before = state.changes, subscription.managed_ledger.last_confirmed, subscription.stored_index
    counted = await _counted(subscription, entries_max)
    after = state.changes, subscription.managed_ledger.last_confirmed, subscription.stored_index
    if counted is not None and before == after:
        subscription.on_counted(counted, subscription.stored_index)
    return counted


async def _counted(subscription: Subscription, entries_max: int) -> int | None:
    ledger, cursor = subscription.managed_ledger, subscription.cursor
    backlog = cursor.backlog_entries()
    if not backlog:
        return 0
    start = ledger.next_position(cursor.mark_delete)
    has_holes = ledger.entries_between(cursor.mark_delete, ledger.last_confirmed) != backlog
    if not has_holes and not cursor.state.batches:
        ends = [await ledger.read(at, entries_max=1, bytes_max=1) for at in (start, ledger.last_confirmed)]
        if all(ends) and min(stored_index(end[0]) for end in ends) >= 0:
            before = stored_index(ends[0][0]) - parse_facts(ends[0][0]).messages
            return stored_index(ends[1][0]) - before
    counted = await counted_backlog(subscription, start, entries_max)
    return None if counted.is_cut else counted.messages


async def earliest_publish_time(subscription: Subscription) -> int:
    """When the first unacknowledged message was published; 0 without a backlog."""
    cursor = subscription.cursor
    first = cursor.next_unacked(subscription.managed_ledger.next_position(cursor.mark_delete))
    if first is None:
        return 0
    read = await subscription.managed_ledger.read(first, entries_max=1, bytes_max=1)
    return publish_time_ms(read[0]) if read else 0


def analysis(count: BacklogCount) -> dict[str, Any]:
    """As Pulsar answers an analysis; no filter rejects anything."""
    answer: dict[str, Any] = {
        "entries": count.entries,
        "messages": count.messages,
        "filterRejectedEntries": 0,
        "filterAcceptedEntries": count.entries,
        "filterRescheduledEntries": 0,
        "filterRejectedMessages": 0,
        "filterAcceptedMessages": count.messages,
        "filterRescheduledMessages": 0,
        "aborted": count.is_cut,
    }
    if count.first is not None and count.last is not None:
        answer["firstMessageId"] = f"{count.first.ledger_id}:{count.first.entry_id}"
        answer["lastMessageId"] = f"{count.last.ledger_id}:{count.last.entry_id}"
    return answer
