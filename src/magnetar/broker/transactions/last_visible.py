# SPDX-License-Identifier: Apache-2.0
"""The last message of a topic that a reader will ever get: not a marker, not in an open or aborted transaction.

For clients that ask whether they have read everything: named a message that never comes, they would wait for it.
Carries.
"""

from typing import TYPE_CHECKING, Final

from magnetar.broker.entry_facts import parse_facts
from magnetar.managed_ledger.entry import Entry

if TYPE_CHECKING:
    from magnetar.broker.topic import Topic

_READ_ENTRIES: Final = 64
_READ_BYTES: Final = 1024 * 1024


async def last_visible(topic: "Topic") -> Entry | None:
    """None when there is no such message: most topics answer from their last entry."""
    log, buffer = topic.managed_ledger, topic.transactions.buffer
    if topic.transactions.looks is not None:
        await topic.transactions.looks.caught_up()
    last = log.last_confirmed if buffer.through is None else min(log.last_confirmed, buffer.through)
    span = 1
    while last.entry_id >= 0 and last >= log.first_position:
        first = log.position_after(last, -span + 1)
        entries = await log.read(max(first, log.first_position), entries_max=span, bytes_max=_READ_BYTES)
        for entry in reversed([entry for entry in entries if entry.position <= last]):
            facts = parse_facts(entry)
            if not facts.is_marker and (facts.txn_id is None or not buffer.is_aborted(facts.txn_id)):
                return entry
        if not entries:
            return None
        # A read may end before its bound for the bytes: then what is behind its end was not looked at.
        if entries[-1].position >= last:
            last = log.previous_position(entries[0].position)
            span = min(2 * span, _READ_ENTRIES)
        else:
            span = 1
    return None
