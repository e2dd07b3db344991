# SPDX-License-Identifier: Apache-2.0
"""Subscriptions of a topic, on every partition of a partitioned one: made, deleted, moved, skipped, expired, analysed.

Carries.
"""

from typing import Any, Final

from fastapi import APIRouter, Response

from magnetar.admin.answers import AdminRefused, answered, done
from magnetar.admin.backlog import analysis, counted_backlog
from magnetar.admin.bodies import Body, an_object, text_map
from magnetar.admin.names_asked import decoded_subscription
from magnetar.admin.partitions import TOPIC, require_namespace
from magnetar.admin.parts import AdminParts, Parts, Topic
from magnetar.admin.skipping import expire_before, expire_through, skip, skip_all
from magnetar.admin.topic_loading import parts_of, served_topic, stored_topic, subscription_of
from magnetar.broker.replication.replicated import is_replicated, mark_replicated, replicate_subscription
from magnetar.ids import EARLIEST, LATEST, Position
from magnetar.names import TopicName

router = APIRouter(tags=["subscriptions"])

SUBSCRIPTION: Final = TOPIC + "/subscription/{subscription}"
_INT64_MAX: Final = 2**63 - 1
# A request names no more than this: what is larger is everything.
_SKIPPED_MAX: Final = 10_000_000


@router.get(TOPIC + "/subscriptions")
async def list_subscriptions(parts: Parts, topic: Topic) -> Response:
    names: dict[str, None] = {}
    if not topic.is_persistent and not await parts.broker.namespaces.partitions(topic):
        return answered(list((await served_topic(parts, topic)).subscriptions))
    async for each in parts_of(parts, topic):
        names.update(dict.fromkeys(each.subscriptions))
    return answered(list(names))


@router.put(SUBSCRIPTION)
async def create(parts: Parts, topic: Topic, subscription: str, body: Body, replicated: bool = False) -> Response:
    """At the end of the topic unless the body says where."""
    name = decoded_subscription(subscription)
    position, properties = place_of(body)
    await require_namespace(parts, topic.namespace.policies_path, "Namespace not found")
    if not await parts.broker.namespaces.partitions(topic):
        # As Apache Pulsar: a subscription makes the topic where topics may be made.
        await parts.broker.topics.load(topic, create=True)
    made = 0
    async for each in parts_of(parts, topic):
        if name not in each.subscriptions:
            opened = await each.open_subscription(name, initial=position, properties=properties)
            if replicated:
                await replicate_subscription(each, opened)
            made += 1
    if not made:
        raise AdminRefused(409, "Subscription already exists for topic")
    return done()


@router.delete(SUBSCRIPTION)
async def delete(parts: Parts, topic: Topic, subscription: str, force: bool = False) -> Response:
    name = decoded_subscription(subscription)
    async for each in parts_of(parts, topic):
        found = subscription_of(each, name)
        if found.consumers and not force:
            raise AdminRefused(412, "Subscription has active connected consumers")
        found.disconnect_consumers()
        await each.delete_subscription(name)
    return done()


@router.post(SUBSCRIPTION + "/skip_all")
async def skip_everything(parts: Parts, topic: Topic, subscription: str) -> Response:
    async for each in parts_of(parts, topic):
        await skip_all(subscription_of(each, decoded_subscription(subscription)))
    return done()


@router.post(SUBSCRIPTION + "/skip/{count}")
async def skip_some(parts: Parts, topic: Topic, subscription: str, count: int) -> Response:
    await refuse_partitioned(parts, topic, "Skip messages")
    if not 0 <= count <= _SKIPPED_MAX:
        raise AdminRefused(412, f"The number of messages should be between 0 and {_SKIPPED_MAX}")
    found = subscription_of(await stored_topic(parts, topic), decoded_subscription(subscription))
    await skip(found, min(count, found.cursor.backlog_entries()))
    return done()


@router.post(SUBSCRIPTION + "/expireMessages/{seconds}")
async def expire(parts: Parts, topic: Topic, subscription: str, seconds: int) -> Response:
    moment_ms = parts.clock.now_ms() - _seconds(seconds) * 1000
    async for each in parts_of(parts, topic):
        await expire_before(subscription_of(each, decoded_subscription(subscription)), moment_ms)
    return done()


@router.post(SUBSCRIPTION + "/expireMessages")
async def expire_to(parts: Parts, topic: Topic, subscription: str, body: Body) -> Response:
    await refuse_partitioned(parts, topic, "Expire message at position")
    position, _ = place_of(body)
    found = subscription_of(await stored_topic(parts, topic), decoded_subscription(subscription))
    last = found.managed_ledger.last_confirmed
    if position > last or not found.managed_ledger.ledgers.contains(position):
        raise AdminRefused(
            409,
            f"Expire message by position not issued on topic {topic} for subscription {found.name}: "
            "there is no message at that position",
        )
    await expire_through(found, position)
    return done()


@router.post(TOPIC + "/all_subscription/expireMessages/{seconds}")
async def expire_all(parts: Parts, topic: Topic, seconds: int) -> Response:
    moment_ms = parts.clock.now_ms() - _seconds(seconds) * 1000
    async for each in parts_of(parts, topic):
        for subscription in list(each.subscriptions.values()):
            await expire_before(subscription, moment_ms)
    return done()


@router.post(SUBSCRIPTION + "/resetcursor/{moment}")
async def reset_to_time(parts: Parts, topic: Topic, subscription: str, moment: int) -> Response:
    if not 0 <= moment <= _INT64_MAX:
        raise AdminRefused(412, "The timestamp should be in milliseconds since 1970")
    async for each in parts_of(parts, topic):
        await subscription_of(each, decoded_subscription(subscription)).reset_to_time(moment)
    return done()


@router.post(SUBSCRIPTION + "/resetcursor")
async def reset_to_position(parts: Parts, topic: Topic, subscription: str, body: Body) -> Response:
    await refuse_partitioned(parts, topic, "Reset-cursor at position")
    position, _ = place_of(body)
    found = subscription_of(await stored_topic(parts, topic), decoded_subscription(subscription))
    if isinstance(body, dict) and body.get("isExcluded") and found.managed_ledger.ledgers.contains(position):
        position = found.managed_ledger.next_position(position)
    await found.reset(position)
    return done()


@router.post(SUBSCRIPTION + "/analyzeBacklog")
async def analyse(parts: Parts, topic: Topic, subscription: str, body: Body) -> Response:
    await refuse_partitioned(parts, topic, "Analyze backlog")
    found = subscription_of(await stored_topic(parts, topic), decoded_subscription(subscription))
    start = found.managed_ledger.next_position(found.cursor.mark_delete)
    if body is not None:
        start = max(place_of(body)[0], found.managed_ledger.first_position)
    return answered(analysis(await counted_backlog(found, start, parts.settings.analysed_entries_max)))


# --- properties ---------------------------------------------------------------------------------


@router.get(SUBSCRIPTION + "/properties")
async def properties(parts: Parts, topic: Topic, subscription: str) -> Response:
    merged: dict[str, str] = {}
    async for each in parts_of(parts, topic):
        merged.update(subscription_of(each, decoded_subscription(subscription)).cursor.user_properties)
    return answered(merged)


@router.put(SUBSCRIPTION + "/properties")
async def set_properties(parts: Parts, topic: Topic, subscription: str, body: Body) -> Response:
    values = text_map(body, "properties")
    async for each in parts_of(parts, topic):
        await subscription_of(each, decoded_subscription(subscription)).cursor.set_user_properties(values)
    return done()


@router.get(SUBSCRIPTION + "/replicatedSubscriptionStatus")
async def read_replicated(parts: Parts, topic: Topic, subscription: str) -> Response:
    """By topic, for a partitioned one by partition."""
    found = {}
    async for each in parts_of(parts, topic):
        cursor = subscription_of(each, decoded_subscription(subscription)).cursor
        found[str(each.name)] = is_replicated(cursor)
    return answered(found)


@router.post(SUBSCRIPTION + "/replicatedSubscriptionStatus")
async def set_replicated(parts: Parts, topic: Topic, subscription: str, body: Body) -> Response:
    """A mark that is kept with the position, where Pulsar's brokers find it too."""
    if not isinstance(body, bool):
        raise AdminRefused(400, "The body should be true or false")
    async for each in parts_of(parts, topic):
        found = subscription_of(each, decoded_subscription(subscription))
        if body:
            await replicate_subscription(each, found)
        else:
            await mark_replicated(found.cursor, False)
    return done()


# --- inside -------------------------------------------------------------------------------------


def place_of(body: Any) -> tuple[Position, dict[str, str]]:
    """Where a body says, and the properties that come with it. No body is the end of the topic."""
    if body is None or body == "latest":
        return LATEST, {}
    if body == "earliest":
        return EARLIEST, {}
    given = an_object(body, "The message id")
    numbers = [given.get("ledgerId", -1), given.get("entryId", -1)]
    if not all(isinstance(each, int) and not isinstance(each, bool) and -1 <= each <= _INT64_MAX for each in numbers):
        raise AdminRefused(400, "ledgerId and entryId should be whole numbers")
    return Position(*numbers), text_map(given.get("properties"), "properties")


def _seconds(seconds: int) -> int:
    if not 0 <= seconds <= 2**31 - 1:
        raise AdminRefused(412, "The time should be a number of seconds, 0 or more")
    return seconds


async def refuse_partitioned(parts: AdminParts, topic: TopicName, what: str) -> None:
    if not topic.is_partition and await parts.broker.namespaces.partitions(topic):
        raise AdminRefused(405, f"{what} on a partitioned topic is not allowed, name one of its partitions")
