# SPDX-License-Identifier: Apache-2.0
"""`stats`, `internalStats` and their sums over partitions, and why a subscription delivers nothing.

Carries.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from magnetar.admin.answers import AdminRefused, answered
from magnetar.admin.backlog import backlog_messages, earliest_publish_time
from magnetar.admin.names_asked import decoded_subscription
from magnetar.admin.partitions import TOPIC, metadata_of
from magnetar.admin.parts import AdminParts, Parts, Topic
from magnetar.admin.slices import Turns
from magnetar.admin.topic_internals import NO_INTERNALS
from magnetar.admin.topic_loading import served_topic, stored_topic, subscription_of
from magnetar.admin.topic_stats import StatsAsked
from magnetar.admin.whole_stats import (
    CLIENTS_PER_SLICE,
    CURSORS_PER_SLICE,
    whole_internals,
    whole_stats,
    whole_sums,
)
from magnetar.broker import topic as broker_topic
from magnetar.broker.explain import explain
from magnetar.errors import MagnetarError
from magnetar.names import TopicName

router = APIRouter(tags=["statistics"])

Excluded = Annotated[bool, Query(alias="excludePublishers")]
ExcludedConsumers = Annotated[bool, Query(alias="excludeConsumers")]
Earliest = Annotated[bool, Query(alias="getEarliestTimeInBacklog")]


@router.get(TOPIC + "/stats")
async def stats(
    parts: Parts,
    topic: Topic,
    publishers_excluded: Excluded = False,
    consumers_excluded: ExcludedConsumers = False,
    earliest: Earliest = False,
) -> Response:
    asked = StatsAsked(not publishers_excluded, not consumers_excluded)
    return answered(await _stats(parts, topic, asked, earliest))


@router.get(TOPIC + "/partitioned-stats")
async def partitioned_stats(
    parts: Parts,
    topic: Topic,
    per_partition: Annotated[bool, Query(alias="perPartition")] = True,
    publishers_excluded: Excluded = False,
    consumers_excluded: ExcludedConsumers = False,
    earliest: Earliest = False,
) -> Response:
    asked = StatsAsked(not publishers_excluded, not consumers_excluded)
    count = await _require_partitioned(parts, topic)
    turns = Turns(CLIENTS_PER_SLICE)
    each = {}
    for name in map(topic.partition, range(count)):
        each[str(name)] = await _stats(parts, name, asked, earliest, turns)
    answer = await whole_sums(each.values())
    answer["metadata"] = await metadata_of(parts, topic, count)
    answer["partitions"] = each if per_partition else {}
    return answered(answer)


@router.get(TOPIC + "/internalStats")
async def internals(parts: Parts, topic: Topic) -> Response:
    found = await served_topic(parts, topic)
    if not isinstance(found, broker_topic.Topic):
        return answered(NO_INTERNALS)
    return answered(await whole_internals(found))


@router.get(TOPIC + "/partitioned-internalStats")
async def partitioned_internals(parts: Parts, topic: Topic) -> Response:
    count = await _require_partitioned(parts, topic)
    each: dict[str, Any] = {}
    turns = Turns(CURSORS_PER_SLICE)
    for index in range(count):
        partition = await stored_topic(parts, topic.partition(index))
        each[str(partition.name)] = await whole_internals(partition)
        await turns.after()
    return answered({"metadata": await metadata_of(parts, topic, count), "partitions": each})


@router.get(TOPIC + "/subscription/{subscription}/explain")
async def explained(parts: Parts, topic: Topic, subscription: str) -> Response:
    """Magnetar's own: one sentence that says why nothing is delivered now."""
    found = subscription_of(await stored_topic(parts, topic), decoded_subscription(subscription))
    reason, sentence, position = explain(found)
    where = f"{position.ledger_id}:{position.entry_id}" if position is not None else None
    return answered({"reason": reason.value, "sentence": sentence, "messageId": where})


async def _require_partitioned(parts: AdminParts, topic: TopicName) -> int:
    count = 0 if topic.is_partition else await parts.broker.namespaces.partitions(topic)
    if not count:
        raise AdminRefused(404, f"Partitioned Topic {topic} not found")
    return count


async def _stats(
    parts: AdminParts, name: TopicName, asked: StatsAsked, earliest: bool, turns: Turns | None = None
) -> dict[str, Any]:
    turns = turns or Turns(CLIENTS_PER_SLICE)
    topic = await served_topic(parts, name)
    answer = await whole_stats(topic, parts.rates, asked, parts.broker_id, parts.broker.clock.now_ms(), turns)
    if not isinstance(topic, broker_topic.Topic):
        return answer
    quota = (await parts.policies.effective(name)).size_quota
    answer["backlogQuotaLimitSize"] = quota.limit_bytes
    answer["backlogQuotaLimitTime"] = quota.limit_s
    await _show_oldest(parts, topic, answer)
    for subscription in list(topic.subscriptions.values()):
        shown = answer["subscriptions"].get(subscription.name)
        if shown is None:
            continue
        messages = await backlog_messages(subscription, parts.settings.analysed_entries_max)
        if messages is not None:
            shown["backlogMessages"] = messages
        if earliest:
            shown["earliestMsgPublishTimeInBacklog"] = await earliest_publish_time(subscription)
        await turns.after()
    if earliest:
        times = [each["earliestMsgPublishTimeInBacklog"] for each in answer["subscriptions"].values()]
        answer["earliestMsgPublishTimeInBacklogs"] = min((time for time in times if time), default=0)
    return answer


async def _show_oldest(parts: AdminParts, topic: broker_topic.Topic, answer: dict[str, Any]) -> None:
    """How old the oldest message is that a subscription still has before it, and whose backlog that is."""
    behind = [each for each in topic.subscriptions.values() if each.cursor.backlog_entries()]
    if not behind:
        return
    slowest = min(behind, key=lambda each: each.cursor.state.first_unacked)
    try:
        published_ms = await earliest_publish_time(slowest)
    except MagnetarError:
        # Storage that does not answer takes nothing else from the statistics.
        return
    if published_ms > 0:
        answer["oldestBacklogMessageAgeSeconds"] = max(0, (parts.clock.now_ms() - published_ms) // 1000)
        answer["oldestBacklogMessageSubscriptionName"] = slowest.name
