# SPDX-License-Identifier: Apache-2.0
"""What a topic's policies do to those who read it: expire what is too old, keep backlogs within their quotas, delete
subscriptions that nobody uses.

Only users' subscriptions and replicators are touched; the broker's own cursors, of compaction and deduplication, never
are. After every wait a reader is looked up again: it may be gone. Never decides what a quota allows.
Carries.
"""

import logging
from collections.abc import Callable
from typing import Protocol

from magnetar.broker.policies.quota import Excess, age_excess, eviction_end, size_excess
from magnetar.broker.policies.values import QuotaAction, QuotaType
from magnetar.broker.stored_message import stored_time_ms
from magnetar.broker.subscription import Subscription
from magnetar.broker.topic import Topic
from magnetar.errors import ProducersHeld, QuotaExceeded
from magnetar.ids import Position
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.entry import Entry

_log = logging.getLogger(__name__)


class Reader(Protocol):
    """Who has a durable place in a topic's log: a subscription, or the way to another cluster."""

    cursor: Cursor
    entries_expired: int
    expired_ms: int

    @property
    def name(self) -> str: ...
    def skip_through(self, position: Position) -> int: ...


async def expire_messages(topic: Topic, now_ms: int) -> int:
    """What is older than the topic's time to live counts as consumed; returns how many entries went that way."""
    policies = topic.policies
    if policies is None or policies.message_ttl_s <= 0:
        return 0
    until_ms = now_ms - policies.message_ttl_s * 1000
    expired = 0
    for reader in _readers(topic):
        gone = await skip_older(topic, reader, until_ms)
        reader.entries_expired += gone
        reader.expired_ms = now_ms
        expired += gone
    return expired


async def skip_older(topic: Topic, reader: Reader, until_ms: int) -> int:
    """Entries that were stored at this time or before count as consumed by a reader; returns how many."""
    last = await _last_stored(topic, reader.cursor.mark_delete, until_ms)
    return reader.skip_through(last) if last is not None and _is_there(topic, reader) else 0


async def enforce_quotas(
    topic: Topic, now_ms: int, on_evicted: Callable[[Topic, QuotaType], None] | None = None
) -> Excess | None:
    """Look at the backlog; hold producers back, or evict, as the policy says. Returns what is exceeded still."""
    excess = await _excess(topic, now_ms)
    if excess is not None and excess.quota.action is QuotaAction.EVICT:
        if await _evict(topic, excess, now_ms) and on_evicted is not None:
            on_evicted(topic, excess.quota_type)
        excess = None
    if excess is None:
        topic.hold = None
        return None
    refusal = ProducersHeld if excess.quota.action is QuotaAction.HOLD else QuotaExceeded
    if topic.hold is None:
        _log.warning("%s: producers are sent away: %s", topic.name, excess.text)
    # No producer is let in until this is None again; those that are there must come again.
    topic.hold = refusal(f"Cannot create producer on topic with backlog quota exceeded: {excess.text}")
    topic.registered.send_away(topic.hold)
    return excess


async def delete_unused_subscriptions(topic: Topic, now_ms: int) -> list[str]:
    """Delete the subscriptions that no consumer has used for as long as the policy says; returns their names."""
    policies = topic.policies
    if policies is None or policies.subscription_expiration_minutes <= 0:
        return []
    limit_ms = policies.subscription_expiration_minutes * 60_000
    deleted: list[str] = []
    for subscription in _durable(topic):
        is_present = topic.subscriptions.get(subscription.name) is subscription
        if is_present and not subscription.consumers and now_ms - subscription.active_ms >= limit_ms:
            _log.info(
                "%s: subscription %s is deleted, no one used it for %d minutes",
                topic.name,
                subscription.name,
                limit_ms // 60_000,
            )
            await topic.delete_subscription(subscription.name)
            deleted.append(subscription.name)
    return deleted


# --- leaves -----------------------------------------------------------------------------------------


def slowest(topic: Topic) -> Reader | None:
    """The durable subscription, or the other cluster, that is furthest behind."""
    return min(_readers(topic), key=lambda reader: reader.cursor.mark_delete, default=None)


def _readers(topic: Topic) -> list[Reader]:
    replicators = () if topic.replication is None else topic.replication.replicators.values()
    return [*_durable(topic), *replicators]


def _durable(topic: Topic) -> list[Subscription]:
    return [subscription for subscription in topic.subscriptions.values() if subscription.cursor.is_durable]


def _is_there(topic: Topic, reader: Reader) -> bool:
    if isinstance(reader, Subscription):
        return topic.subscriptions.get(reader.name) is reader
    return topic.replication is not None and reader in topic.replication.replicators.values()


async def _excess(topic: Topic, now_ms: int) -> Excess | None:
    policies, behind = topic.policies, slowest(topic)
    if policies is None or behind is None or not behind.cursor.backlog_entries():
        return None
    mark_delete = behind.cursor.mark_delete
    excess = size_excess(policies.size_quota, topic.managed_ledger.bytes_after(mark_delete))
    if excess is not None or policies.age_quota.limit_s < 0:
        return excess
    oldest = await _first_behind(topic, mark_delete)
    return None if oldest is None else age_excess(policies.age_quota, stored_time_ms(oldest), now_ms)


async def _evict(topic: Topic, excess: Excess, now_ms: int) -> bool:
    """Whether there was something that could go."""
    behind = slowest(topic)
    if behind is None:
        return False
    end: Position | None
    if excess.quota_type is QuotaType.SIZE:
        end = eviction_end(topic.managed_ledger.ledgers, behind.cursor.mark_delete, excess.quota)
    else:
        end = await _last_stored(topic, behind.cursor.mark_delete, now_ms - excess.quota.limit_s * 1000)
    if end is None:
        return False
    evicted_any = False
    for reader in _readers(topic):
        evicted = reader.skip_through(end) if reader.cursor.mark_delete < end else 0
        if evicted:
            evicted_any = True
            _log.warning("%s: %d entries of %s are evicted: %s", topic.name, evicted, reader.name, excess.text)
    return evicted_any


async def _first_behind(topic: Topic, position: Position) -> Entry | None:
    ledger = topic.managed_ledger
    entries = await ledger.read(ledger.next_position(position), entries_max=1, bytes_max=1)
    return entries[0] if entries else None


async def _last_stored(topic: Topic, after: Position, until_ms: int) -> Position | None:
    """The last entry behind a position that was stored at this time or before. One read when there is none."""

    def is_older(entry: Entry) -> bool:
        return stored_time_ms(entry) <= until_ms

    older: Callable[[Entry], bool] = is_older
    first = await _first_behind(topic, after)
    if first is None or not older(first):
        return None
    return await topic.managed_ledger.last_matching(older, start=first.position) or first.position
