# SPDX-License-Identifier: Apache-2.0
"""Which ledgers may go: those that every durable cursor has left behind for good, and that retention no longer keeps.

"For good" means on disk: a mark-delete that moved only in memory frees nothing (R11).
Decides.
"""

from collections.abc import Sequence

from magnetar.ids import Position
from magnetar.managed_ledger.ledger_list import LedgerSpan

UNLIMITED = -1


def consumed_ledgers(spans: Sequence[LedgerSpan], slowest: Position | None) -> int:
    """How many of the oldest ledgers are wholly at or before the slowest saved mark-delete; the last one never is.

    Without durable cursors (None) all but the last are.
    """
    count = 0
    for span in spans[:-1]:
        if not span.closed_ms:
            break
        if slowest is not None and Position(span.ledger_id, span.entries - 1) > slowest:
            break
        count += 1
    return count


def trimmable_ledgers(
    spans: Sequence[LedgerSpan],
    slowest: Position | None,
    *,
    now_ms: int,
    retention_ms: int,
    retention_bytes: int,
) -> int:
    """How many of the oldest ledgers may be deleted.

    A consumed ledger goes when it was closed retention_ms ago, or when what stays without it still has retention_bytes.
    -1 is no limit on that side, 0 keeps nothing: the stricter side decides, as in Pulsar.
    """
    left_bytes = sum(span.size_bytes for span in spans)
    count = 0
    for span in spans[: consumed_ledgers(spans, slowest)]:
        left_bytes -= span.size_bytes
        over_size = retention_bytes != UNLIMITED and left_bytes >= retention_bytes
        over_age = retention_ms != UNLIMITED and now_ms - span.closed_ms >= retention_ms
        if not (over_size or over_age):
            break
        count += 1
    return count
