# SPDX-License-Identifier: Apache-2.0
"""`GET /metrics`: the process's own registry, then topics and subscriptions under Pulsar's names and labels.

Written while it is sent, a slice at a time, so that neither memory nor the loop notices how many topics there are.
Carries.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final, NamedTuple

from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse

from magnetar.admin.parts import AdminParts, Parts
from magnetar.admin.rates import Rates
from magnetar.broker.subscription import Subscription
from magnetar.broker.topic import Topic
from magnetar.runtime.metrics import CONTENT_TYPE

router = APIRouter(tags=["metrics"])
_LINES_PER_SLICE: Final = 500
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class _TopicFamily(NamedTuple):
    name: str
    kind: str
    value: Callable[[Topic, Rates], int | float]


class _SubscriptionFamily(NamedTuple):
    name: str
    kind: str
    value: Callable[[Subscription, Rates], int | float]


_OF_TOPIC: Final = (
    _TopicFamily("pulsar_subscriptions_count", "gauge", lambda topic, _: len(topic.subscriptions)),
    _TopicFamily("pulsar_producers_count", "gauge", lambda topic, _: len(topic.producers)),
    _TopicFamily("pulsar_consumers_count", "gauge", lambda topic, _: consumers_of(topic)),
    _TopicFamily("pulsar_rate_in", "gauge", lambda topic, rates: rates.of(topic).messages_per_s),
    _TopicFamily("pulsar_throughput_in", "gauge", lambda topic, rates: rates.of(topic).bytes_per_s),
    _TopicFamily("pulsar_in_messages_total", "counter", lambda topic, _: topic.messages_in),
    _TopicFamily("pulsar_in_bytes_total", "counter", lambda topic, _: topic.bytes_in),
    _TopicFamily("pulsar_storage_size", "gauge", lambda topic, _: topic.managed_ledger.size_bytes),
    _TopicFamily("pulsar_msg_backlog", "gauge", lambda topic, _: backlog_of(topic)),
)
_OF_SUBSCRIPTION: Final = (
    _SubscriptionFamily("pulsar_subscription_back_log", "gauge", lambda sub, _: sub.cursor.backlog_entries()),
    _SubscriptionFamily("pulsar_subscription_unacked_messages", "gauge", lambda sub, _: unacked_of(sub)),
    _SubscriptionFamily("pulsar_subscription_consumers_count", "gauge", lambda sub, _: len(sub.consumers)),
    _SubscriptionFamily("pulsar_subscription_msg_rate_out", "gauge", lambda sub, rates: rates.of(sub).messages_per_s),
    _SubscriptionFamily("pulsar_out_messages_total", "counter", lambda sub, _: sub.messages_out),
)


def consumers_of(topic: Topic) -> int:
    return sum(len(subscription.consumers) for subscription in topic.subscriptions.values())


def backlog_of(topic: Topic) -> int:
    return sum(subscription.cursor.backlog_entries() for subscription in topic.subscriptions.values())


def unacked_of(subscription: Subscription) -> int:
    return sum(consumer.unacked for consumer in subscription.consumers)


@router.get("/metrics")
@router.get("/metrics/", include_in_schema=False)
async def metrics(parts: Parts) -> Response:
    return StreamingResponse(_sliced(_lines(parts)), media_type=CONTENT_TYPE)


async def _sliced(lines: Iterator[str]) -> AsyncIterator[str]:
    batch: list[str] = []
    for line in lines:
        batch.append(line)
        if len(batch) >= _LINES_PER_SLICE:
            yield "\n".join(batch) + "\n"
            batch.clear()
            await asyncio.sleep(0)
    yield "\n".join(batch) + "\n"


def _lines(parts: AdminParts) -> Iterator[str]:
    yield from parts.metrics.lines()
    cluster = parts.cluster.translate(_ESCAPES)
    topics = parts.broker.topics.loaded()
    yield "# TYPE pulsar_topics_count gauge"
    yield f'pulsar_topics_count{{cluster="{cluster}"}} {len(topics)}'
    yield "# TYPE pulsar_active_connections gauge"
    yield f'pulsar_active_connections{{cluster="{cluster}"}} {len(parts.broker.connections)}'
    labels = [(topic, f'cluster="{cluster}",{_labels(topic)}') for topic in topics]
    for family in _OF_TOPIC:
        yield f"# TYPE {family.name} {family.kind}"
        for topic, text in labels:
            yield f"{family.name}{{{text}}} {family.value(topic, parts.rates)}"
    for kind in _OF_SUBSCRIPTION:
        yield f"# TYPE {kind.name} {kind.kind}"
        for topic, text in labels:
            for subscription in list(topic.subscriptions.values()):
                name = subscription.name.translate(_ESCAPES)
                yield f'{kind.name}{{{text},subscription="{name}"}} {kind.value(subscription, parts.rates)}'


def _labels(topic: Topic) -> str:
    return f'namespace="{topic.name.namespace}",topic="{str(topic.name).translate(_ESCAPES)}"'
