# SPDX-License-Identifier: Apache-2.0
"""Which cursors of a topic's log are subscriptions, and which are the broker's own or replication's.

Decides.
"""

from collections.abc import Container
from typing import Final

from magnetar.broker.deduplication_cursor import CURSOR as DEDUPLICATION_CURSOR
from magnetar.broker.transactions.topic_transactions import CURSOR as TRANSACTIONS_CURSOR
from magnetar.errors import NotSupported, ServiceNotReady

_OWN_CURSORS: Final = (DEDUPLICATION_CURSOR, TRANSACTIONS_CURSOR, "__compaction")
_REPLICATION_CURSORS: Final = "pulsar.repl."


def check_new_subscription(name: str, deleting: Container[str]) -> None:
    """A new subscription must not have the name of a cursor that is no subscription's, or of one that is going."""
    if not is_subscription(name):
        raise NotSupported(f"The subscription name '{name}' is reserved")
    if name in deleting:
        raise ServiceNotReady(f"Subscription '{name}' is being deleted; subscribe again in a moment")


def is_replication(cursor_name: str) -> bool:
    return cursor_name.startswith(_REPLICATION_CURSORS)


def is_subscription(cursor_name: str) -> bool:
    return cursor_name not in _OWN_CURSORS and not is_replication(cursor_name)
