# SPDX-License-Identifier: Apache-2.0
"""What a topic's log and cursors look like inside, in Pulsar's JSON.

As in Pulsar the open ledger is the last one and shows neither entries nor size: those are `currentLedger…`.
Decides.
"""

from itertools import islice
from typing import Any, Final

from magnetar.broker.compaction.compacted_ledger import CompactedLedger
from magnetar.broker.topic import Topic
from magnetar.ids import Position
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.ledger_list import LedgerSpan

NO_INTERNALS: Final[dict[str, Any]] = {
    "entriesAddedCounter": 0,
    "numberOfEntries": 0,
    "totalSize": 0,
    "currentLedgerEntries": 0,
    "currentLedgerSize": 0,
    "waitingCursorsCount": 0,
    "pendingAddEntriesCount": 0,
    "cursors": {},
}
# Holes that the text of a cursor shows; it says how many there are beyond.
SHOWN_RANGES_MAX: Final = 1_000
_NO_LEDGER: Final = {"ledgerId": -1, "entries": -1, "size": -1, "offloaded": False, "underReplicated": False}


def internal_stats(
    topic: Topic,
    ledgers: list[dict[str, Any]],
    cursors: dict[str, dict[str, Any]],
    compacted: CompactedLedger | None = None,
) -> dict[str, Any]:
    """Of the log itself; what was found out of its ledgers and cursors becomes part of it."""
    log = topic.managed_ledger
    last = log.ledgers.last
    is_open = not last.closed_ms
    return {
        "entriesAddedCounter": log.ledgers.last_ordinal,
        "numberOfEntries": log.entries,
        "totalSize": log.size_bytes,
        "currentLedgerEntries": last.entries if is_open else 0,
        "currentLedgerSize": last.size_bytes if is_open else 0,
        "waitingCursorsCount": sum(1 for cursor in log.cursors.values() if not cursor.state.unread_entries),
        "pendingAddEntriesCount": log.pending_entries,
        "lastConfirmedEntry": _text(log.last_confirmed),
        "state": "Terminated" if log.is_terminated else "LedgerOpened" if is_open else "ClosedLedger",
        "ledgers": ledgers,
        "cursors": cursors,
        "schemaLedgers": [],
        "compactedLedger": _compacted(compacted),
    }


def ledger_internals(span: LedgerSpan) -> dict[str, Any]:
    return {
        "ledgerId": span.ledger_id,
        "entries": span.entries if span.closed_ms else 0,
        "size": span.size_bytes if span.closed_ms else 0,
        "offloaded": False,
        "underReplicated": False,
    }


def cursor_internals(topic: Topic, cursor: Cursor) -> dict[str, Any]:
    log = topic.managed_ledger
    after_mark = log.entries_between(cursor.mark_delete, log.last_confirmed)
    return {
        "markDeletePosition": _text(cursor.mark_delete),
        "readPosition": _text(cursor.read_position),
        "waitingReadOp": not cursor.state.unread_entries,
        "pendingReadOps": 0,
        "messagesConsumedCounter": log.ledgers.last_ordinal - cursor.backlog_entries(),
        **_cursor_ledger(cursor),
        "individuallyDeletedMessages": _ranges(cursor),
        "state": "Open",
        "active": bool(name_is_used(topic, cursor.name)),
        "numberOfEntriesSinceFirstNotAckedMessage": after_mark + 1,
        "totalNonContiguousDeletedMessagesRange": cursor.state.acked.run_count(),
        "subscriptionHavePendingRead": _is_reading(topic, cursor.name),
        "subscriptionHavePendingReplayRead": False,
        "properties": {name: int(value) for name, value in cursor.properties.items()},
    }


def _compacted(ledger: CompactedLedger | None) -> dict[str, Any]:
    if ledger is None:
        return dict(_NO_LEDGER)
    return {**_NO_LEDGER, "ledgerId": ledger.horizon.ledger_id, "entries": len(ledger)}


def _cursor_ledger(cursor: Cursor) -> dict[str, int]:
    ledger_id, last_entry = cursor.store.place if cursor.store is not None else (-1, -1)
    return {"cursorLedger": ledger_id, "cursorLedgerLastEntry": last_entry}


def _ranges(cursor: Cursor) -> str:
    """As Pulsar writes them: each from the entry before the first, which is not part of it, to the last."""
    acked = cursor.state.acked
    shown = [
        f"({run.ledger_id}:{run.first - 1}..{run.ledger_id}:{run.last}]"
        for run in islice(acked.runs(), SHOWN_RANGES_MAX)
    ]
    beyond = acked.run_count() - len(shown)
    return f"[{','.join(shown)}{f',… {beyond} more' if beyond > 0 else ''}]"


def _is_reading(topic: Topic, name: str) -> bool:
    subscription = topic.subscriptions.get(name)
    return subscription is not None and subscription.pump.is_reading


def name_is_used(topic: Topic, name: str) -> bool:
    subscription = topic.subscriptions.get(name)
    return subscription is not None and bool(subscription.consumers)


def _text(position: Position) -> str:
    return f"{position.ledger_id}:{position.entry_id}"
