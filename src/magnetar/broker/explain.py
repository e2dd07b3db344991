# SPDX-License-Identifier: Apache-2.0
"""Why does this subscription deliver nothing now? One sentence, with the message concerned, from its state.

Asked by the admin interface and the command line. It reads the same state that the pump acts on and asks the same
questions in the same order; it never guesses, and it never changes anything.
Decides.
"""

from datetime import UTC, datetime
from enum import Enum
from typing import NamedTuple

from magnetar.broker.consumer import Consumer
from magnetar.broker.dispatch.single_active import SingleActiveDispatcher
from magnetar.broker.subscription import Subscription
from magnetar.ids import Position


class Reason(Enum):
    NO_CONSUMER = "no-consumer"
    ALL_CONSUMED = "all-consumed"
    END_OF_TOPIC = "end-of-topic"
    WAITING_FOR_ACKS = "waiting-for-acks"
    NO_PERMITS = "no-permits"
    NOT_READING = "client-not-reading"
    UNACKED_CONSUMER = "unacked-limit-of-consumer"
    UNACKED_SUBSCRIPTION = "unacked-limit-of-subscription"
    KEY_BLOCKED = "key-blocked"
    LOOK_AHEAD = "look-ahead-limit"
    DELAYED = "delayed"
    RATE_LIMIT = "rate-limit"
    FAILOVER_PAUSE = "failover-pause"
    OPEN_TRANSACTION = "open-transaction"
    READING = "reading"
    DELIVERING = "delivering"


class Explanation(NamedTuple):
    reason: Reason
    sentence: str
    # The message that would come next, or that holds the others up; None where there is none.
    position: Position | None


def explain(subscription: Subscription) -> Explanation:
    """Why nothing is delivered at this moment; DELIVERING when nothing stands in the way."""
    position = subscription.cursor.next_unacked(subscription.cursor.read_position)
    return (
        _why_nobody(subscription, position)
        or _why_nothing_to_send(subscription, position)
        or _why_transaction(subscription, position)
        or _why_no_room(subscription, position)
        or _why_not_now(subscription, position)
    )


def _why_nobody(subscription: Subscription, position: Position | None) -> Explanation | None:
    if subscription.consumers:
        return None
    first = subscription.cursor.next_unacked(subscription.cursor.mark_delete)
    if first is None:
        return Explanation(Reason.NO_CONSUMER, "No consumer is connected, and everything is acknowledged.", None)
    backlog = subscription.cursor.backlog_entries()
    return Explanation(
        Reason.NO_CONSUMER, f"No consumer is connected; {backlog} entries wait, the first is {_id(first)}.", first
    )


def _why_nothing_to_send(subscription: Subscription, position: Position | None) -> Explanation | None:
    dispatcher, pump, cursor = subscription.dispatcher, subscription.pump, subscription.cursor
    assert dispatcher is not None
    if position is not None or dispatcher.waiting or pump.is_reading:
        return None
    first = pump.delayed.first()
    if first is not None:
        due = datetime.fromtimestamp(first[1] / 1000, UTC).isoformat(timespec="milliseconds")
        named = f", {_id(first[0])}," if first[0] is not None else ""
        return Explanation(
            Reason.DELAYED,
            f"{len(pump.delayed)} entries are delayed; the next one{named} is due at {due}.",
            first[0],
        )
    unacked = cursor.next_unacked(cursor.mark_delete)
    if unacked is None:
        if subscription.managed_ledger.is_terminated:
            return Explanation(Reason.END_OF_TOPIC, "The topic was terminated, and everything is acknowledged.", None)
        return Explanation(Reason.ALL_CONSUMED, "Everything that was published is acknowledged.", None)
    holder = next((consumer for consumer in subscription.consumers if unacked in consumer.pending), None)
    at = f" at consumer '{holder.name}'" if holder is not None else ""
    return Explanation(
        Reason.WAITING_FOR_ACKS,
        f"Everything was delivered; {cursor.backlog_entries()} entries wait for acknowledgement, "
        f"the first is {_id(unacked)}{at}.",
        unacked,
    )


def _why_no_room(subscription: Subscription, position: Position | None) -> Explanation | None:
    dispatcher = subscription.dispatcher
    assert dispatcher is not None
    if subscription.pump.is_held:
        return Explanation(
            Reason.FAILOVER_PAUSE, f"Delivery pauses for a moment; {_next(position)} comes next.", position
        )
    if dispatcher.is_blocked:
        return Explanation(
            Reason.UNACKED_SUBSCRIPTION,
            f"The subscription has {dispatcher.unacked} unacknowledged messages, which is its limit; "
            f"{_next(position)} waits for acknowledgements.",
            position,
        )
    if dispatcher.room(1) > 0:
        return None
    active = dispatcher.active if isinstance(dispatcher, SingleActiveDispatcher) else None
    consumers = [active] if active is not None else list(dispatcher.consumers)
    return _why_consumers_have_no_room(consumers, position)


def _why_consumers_have_no_room(consumers: list[Consumer], position: Position | None) -> Explanation:
    permitted = [consumer for consumer in consumers if consumer.permits > 0]
    if not permitted:
        names = _names(consumers)
        return Explanation(
            Reason.NO_PERMITS,
            f"{names} asked for no more messages (no permits): the queue of the client is full, or it has stopped "
            f"receiving; {_next(position)} comes next.",
            position,
        )
    blocked = [consumer for consumer in permitted if consumer.is_blocked_by_unacked()]
    if len(blocked) == len(permitted):
        return Explanation(
            Reason.UNACKED_CONSUMER,
            f"{_names(blocked)} reached the limit of unacknowledged messages ({blocked[0].unacked}); "
            f"{_next(position)} waits for acknowledgements.",
            position,
        )
    free = [consumer for consumer in permitted if consumer not in blocked]
    return Explanation(
        Reason.NOT_READING,
        f"{_names(free)} does not read from its connection; {_next(position)} comes next.",
        position,
    )


def _why_transaction(subscription: Subscription, position: Position | None) -> Explanation | None:
    buffer = subscription.pump.buffer
    if position is None or buffer.oldest is None or not buffer.hides(position):
        return None
    return Explanation(
        Reason.OPEN_TRANSACTION,
        f"Message {_id(position)} is waiting for transaction {buffer.oldest}, whose first message is "
        f"{_id(buffer.open[buffer.oldest])}; {len(buffer.open)} transactions are open on the topic.",
        position,
    )


def _why_not_now(subscription: Subscription, position: Position | None) -> Explanation:
    dispatcher, pump = subscription.dispatcher, subscription.pump
    assert dispatcher is not None
    limit = pump.limited_by()
    if limit is not None:
        return Explanation(
            Reason.RATE_LIMIT,
            f"The {limit.name} is used up for now; {_next(position)} follows in {limit.delay_s():.3f} s.",
            position,
        )
    ready = dispatcher.replays(1)
    if pump.is_reading:
        return Explanation(Reason.READING, f"{_next(position)} is being read from storage.", position)
    blocked = dispatcher.blocked_first()
    if blocked is not None and not ready and (position is None or not dispatcher.may_read()):
        reason = Reason.KEY_BLOCKED if dispatcher.may_read() else Reason.LOOK_AHEAD
        more = "" if dispatcher.may_read() else f", and {dispatcher.waiting} entries wait, so no more are read"
        return Explanation(reason, f"Message {_id(blocked[0])} waits: {blocked[1]}{more}.", blocked[0])
    return Explanation(
        Reason.DELIVERING, f"Nothing stands in the way of {_next(ready[0] if ready else position)}.", position
    )


def _id(position: Position) -> str:
    return f"{position.ledger_id}:{position.entry_id}"


def _next(position: Position | None) -> str:
    return f"message {_id(position)}" if position is not None else "what waits for redelivery"


def _names(consumers: list[Consumer]) -> str:
    if len(consumers) == 1:
        return f"Consumer '{consumers[0].name}'"
    return f"Each of {len(consumers)} consumers, '{consumers[0].name}' among them,"
