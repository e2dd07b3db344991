# SPDX-License-Identifier: Apache-2.0
"""What a topic's log and cursors look like inside, in Pulsar's JSON.

As in Pulsar the open ledger is the last one and shows neither entries nor size: those are `currentLedger…`.
Decides.
"""

from typing import Any, Final

from magnetar.broker.topic import Topic
from magnetar.ids import Position
from magnetar.managed_ledger.cursor import Cursor

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
_NO_LEDGER: Final = {"ledgerId": -1, "entries": -1, "size": -1, "offloaded": False, "underReplicated": False}


def internal_stats(topic: Topic) -> dict[str, Any]:
    log = topic.managed_ledger
    spans = list(log.ledgers)
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
        "ledgers": [
            {
                "ledgerId": span.ledger_id,
                "entries": span.entries if span.closed_ms else 0,
                "size": span.size_bytes if span.closed_ms else 0,
                "offloaded": False,
                "underReplicated": False,
            }
            for span in spans
        ],
        "cursors": {name: _cursor(topic, cursor) for name, cursor in log.cursors.items()},
        "schemaLedgers": [],
        "compactedLedger": dict(_NO_LEDGER),
    }


def _cursor(topic: Topic, cursor: Cursor) -> dict[str, Any]:
    log = topic.managed_ledger
    after_mark = log.entries_between(cursor.mark_delete, log.last_confirmed)
    return {
        "markDeletePosition": _text(cursor.mark_delete),
        "readPosition": _text(cursor.read_position),
        "waitingReadOp": not cursor.state.unread_entries,
        "pendingReadOps": 0,
        "messagesConsumedCounter": log.ledgers.last_ordinal - cursor.backlog_entries(),
        "cursorLedger": -1,
        "cursorLedgerLastEntry": -1,
        "individuallyDeletedMessages": "[]",
        "state": "Open",
        "active": bool(name_is_used(topic, cursor.name)),
        "numberOfEntriesSinceFirstNotAckedMessage": after_mark + 1,
        "totalNonContiguousDeletedMessagesRange": max(0, after_mark - cursor.backlog_entries()),
        "properties": {name: int(value) for name, value in cursor.properties.items()},
    }


def name_is_used(topic: Topic, name: str) -> bool:
    subscription = topic.subscriptions.get(name)
    return subscription is not None and bool(subscription.consumers)


def _text(position: Position) -> str:
    return f"{position.ledger_id}:{position.entry_id}"
