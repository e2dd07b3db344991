# SPDX-License-Identifier: Apache-2.0
"""Transactions on a subscription: opens its log of pending acknowledgements, and applies how they end.

A subscription that no transaction has touched has no such log; a property of its cursor says that it has one. Never
decides whether an acknowledgement is allowed.
Carries.
"""

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from magnetar.broker.delayed.bucket_format import INTERNAL_PREFIX
from magnetar.broker.transactions.pending_ack_log import PendingAckLog, log_name
from magnetar.broker.transactions.pending_acks import Claim
from magnetar.broker.transactions.record_batch import BatchLimits
from magnetar.config.broker import BrokerSettings
from magnetar.errors import BadPosition, NotSupported, ServiceNotReady
from magnetar.ids import Position
from magnetar.managed_ledger.managed_ledgers import ManagedLedgers
from magnetar.names import TopicName
from magnetar.runtime.tasks import Tasks

if TYPE_CHECKING:
    from magnetar.broker.subscription import Subscription
    from magnetar.broker.topic import Topic

LOG_PROPERTY: Final = f"{INTERNAL_PREFIX}transactions"


async def recover_pending_acks(topic: "Topic", managed_ledgers: ManagedLedgers, tasks: Tasks) -> None:
    """Bring back what waits on the subscriptions of a topic that loads, before anyone reads from them."""
    for subscription in list(topic.subscriptions.values()):
        if has_pending_acks(subscription):
            await open_pending_acks(topic.name, subscription, managed_ledgers, tasks, topic.settings)


async def close_pending_acks(topic: "Topic") -> None:
    """A topic does not load after all: whoever loads it next finds the logs closed."""
    for subscription in topic.subscriptions.values():
        if subscription.pending_acks is not None:
            await subscription.pending_acks.close()


async def open_pending_acks(
    topic: TopicName,
    subscription: "Subscription",
    managed_ledgers: ManagedLedgers,
    tasks: Tasks,
    settings: BrokerSettings,
) -> PendingAckLog:
    """The log of a subscription; the first transaction on it makes one."""
    if subscription.opening_pending_acks is None:
        subscription.opening_pending_acks = asyncio.Lock()
    async with subscription.opening_pending_acks:
        if subscription.pending_acks is not None:
            return subscription.pending_acks
        cursor = subscription.cursor
        if not cursor.is_durable:
            raise NotSupported("Acknowledgements in a transaction need a durable subscription")
        if LOG_PROPERTY not in cursor.user_properties:
            await cursor.set_user_properties({**cursor.user_properties, LOG_PROPERTY: "1"})
        opened = await PendingAckLog.open(
            managed_ledgers,
            log_name(topic, subscription.name),
            cursor,
            subscription.managed_ledger,
            tasks,
            records_max=settings.pending_ack_records_max,
            on_committed=lambda claims, cumulative: apply_commit(subscription, claims, cumulative),
            on_aborted=lambda claims, cumulative: apply_abort(subscription, claims, cumulative),
            batches=_batches(settings),
        )
        if subscription.is_closed:
            # The topic went meanwhile, and nobody else would close what came too late.
            await opened.close()
            raise ServiceNotReady(f"{topic} is closing; look it up again")
        opened.log.on_failed = lambda _error: _give_up(subscription, opened, tasks)
        subscription.pending_acks = opened
        subscription.reopen_pending_acks = partial(
            open_pending_acks, topic, subscription, managed_ledgers, tasks, settings
        )
        subscription.pump.sieve.pending = opened.acks
        return opened


def _batches(settings: BrokerSettings) -> BatchLimits | None:
    if not settings.pending_ack_batched:
        return None
    return BatchLimits(
        settings.pending_ack_batch_records_max,
        settings.pending_ack_batch_bytes_max,
        settings.pending_ack_batch_delay_ms,
    )


def has_pending_acks(subscription: "Subscription") -> bool:
    """Whether a transaction ever touched the subscription."""
    return LOG_PROPERTY in subscription.cursor.user_properties


def _give_up(subscription: "Subscription", failed: PendingAckLog, tasks: Tasks) -> None:
    """Its log takes no more. Whoever needs it next opens it anew; until then nothing that is claimed goes out."""

    async def close() -> None:
        await failed.log.close()
        if subscription.pending_acks is failed:
            subscription.pending_acks = None

    if not tasks.is_closed:
        tasks.start(close(), f"{failed.log.name}: give up")


def apply_commit(subscription: "Subscription", claims: list[Claim], cumulative: Claim | None) -> None:
    """What was claimed is acknowledged, whoever holds it."""
    cursor, dispatcher = subscription.cursor, subscription.dispatcher
    consumer = subscription.consumers[0] if subscription.consumers else None
    for claim in claims:
        try:
            is_whole = cursor.ack(claim.position, claim.ack_set)
        except BadPosition:
            # The end of the log was lost with it.
            continue
        if dispatcher is None or consumer is None:
            continue
        if is_whole:
            dispatcher.on_acked(consumer, claim.position)
        else:
            dispatcher.on_part_acked(consumer, claim.position, cursor.state.batch_bits(claim.position).bit_count())
    if cumulative is not None:
        cursor.ack_cumulative(min(cumulative.position, subscription.managed_ledger.last_confirmed), cumulative.ack_set)
        if dispatcher is not None:
            dispatcher.forget_through(cursor.mark_delete)
    subscription.wake()


def apply_abort(subscription: "Subscription", claims: list[Claim], cumulative: Claim | None) -> None:
    """What was claimed goes out again."""
    dispatcher = subscription.dispatcher
    if dispatcher is None or not subscription.consumers:
        return
    if dispatcher.is_ordered:
        subscription.pump.rewind()
    else:
        for claim in claims:
            _send_again(subscription, claim.position)
    subscription.wake()


def _send_again(subscription: "Subscription", position: Position) -> None:
    dispatcher = subscription.dispatcher
    assert dispatcher is not None
    holder = next((consumer for consumer in subscription.consumers if position in consumer.pending), None)
    if holder is not None:
        dispatcher.redeliver(holder, [position])
    elif position < subscription.cursor.read_position:
        dispatcher.enqueue([position])
