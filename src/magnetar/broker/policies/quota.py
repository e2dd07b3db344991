# SPDX-License-Identifier: Apache-2.0
"""Whether a topic's backlog is over a quota, and up to where it must go to be within it again.

The backlog is what lies behind the slowest subscription. Eviction goes a little below the limit, so that it is not
needed again with the next message. Never moves a cursor.
Decides.
"""

from typing import Final, NamedTuple

from magnetar.broker.policies.values import BacklogQuota, QuotaType
from magnetar.ids import Position
from magnetar.managed_ledger.ledger_list import LedgerList

# As upstream: eviction stops at this share of the limit.
_EVICTED_SHARE: Final = 0.9


class Excess(NamedTuple):
    """A quota that is used up, with the words that clients and logs get."""

    quota_type: QuotaType
    quota: BacklogQuota
    text: str


def size_excess(quota: BacklogQuota, backlog_bytes: int) -> Excess | None:
    if quota.limit_bytes < 0 or backlog_bytes < quota.limit_bytes:
        return None
    return Excess(QuotaType.SIZE, quota, f"backlog of {backlog_bytes} bytes, quota {quota.limit_bytes}")


def age_excess(quota: BacklogQuota, oldest_ms: int, now_ms: int) -> Excess | None:
    age_s = (now_ms - oldest_ms) // 1000
    if quota.limit_s < 0 or oldest_ms <= 0 or age_s <= quota.limit_s:
        return None
    return Excess(QuotaType.AGE, quota, f"oldest unacknowledged message of {age_s} s, quota {quota.limit_s} s")


def eviction_end(ledgers: LedgerList, slowest: Position, quota: BacklogQuota) -> Position:
    """The last entry that must go, so that what stays behind it is well within the quota."""
    target_bytes = int(quota.limit_bytes * _EVICTED_SHARE)
    low, high = ledgers.ordinal(slowest), ledgers.last_ordinal
    while low < high:
        middle = (low + high) // 2
        if ledgers.bytes_after(ledgers.position_of(middle)) > target_bytes:
            low = middle + 1
        else:
            high = middle
    return ledgers.position_of(low)
