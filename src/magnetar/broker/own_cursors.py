# SPDX-License-Identifier: Apache-2.0
"""Which cursors of a topic's log are subscriptions, and which are the broker's own or replication's.

Decides.
"""

from typing import Final

from magnetar.broker.deduplication_cursor import CURSOR as DEDUPLICATION_CURSOR
from magnetar.broker.transactions.topic_transactions import CURSOR as TRANSACTIONS_CURSOR

_OWN_CURSORS: Final = (DEDUPLICATION_CURSOR, TRANSACTIONS_CURSOR, "__compaction")
_REPLICATION_CURSORS: Final = "pulsar.repl."


def is_subscription(cursor_name: str) -> bool:
    return cursor_name not in _OWN_CURSORS and not cursor_name.startswith(_REPLICATION_CURSORS)
