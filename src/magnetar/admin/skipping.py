# SPDX-License-Identifier: Apache-2.0
"""Moving a subscription past messages that it has not consumed: all, so many, or those older than a moment.

Consumers stay connected: what they hold is acknowledged under them, as Pulsar does it. Reading goes on where it is,
because what is acknowledged is passed over; it never starts again, or consumers would get twice what they hold.
Carries.
"""

from magnetar.broker.stored_message import stored_time_ms
from magnetar.broker.subscription import Subscription
from magnetar.ids import Position


async def skip_all(subscription: Subscription) -> None:
    await expire_through(subscription, subscription.managed_ledger.last_confirmed)
    subscription.pump.delayed.clear()


async def skip(subscription: Subscription, entries: int) -> None:
    """Acknowledge the next so many entries that are not acknowledged; all of them when there are fewer."""
    cursor = subscription.cursor
    start = subscription.managed_ledger.next_position(cursor.mark_delete)
    positions = cursor.unacked(start, count_max=entries)
    if not positions:
        return
    # Everything before the last of them is acknowledged already or among them.
    await expire_through(subscription, positions[-1])


async def expire_before(subscription: Subscription, moment_ms: int) -> bool:
    """Acknowledge everything that was stored before a moment; False when there was nothing."""
    ledger = subscription.managed_ledger
    start = ledger.next_position(subscription.cursor.mark_delete)
    last = await ledger.last_matching(lambda entry: stored_time_ms(entry) < moment_ms, start=start)
    if last is None or last <= subscription.cursor.mark_delete:
        return False
    await expire_through(subscription, last)
    return True


async def expire_through(subscription: Subscription, position: Position) -> None:
    if position.entry_id >= 0 and position > subscription.cursor.mark_delete:
        subscription.cursor.ack_cumulative(position)
        if subscription.dispatcher is not None:
            subscription.dispatcher.forget_through(subscription.cursor.mark_delete)
    await subscription.cursor.flush()
    subscription.wake()
