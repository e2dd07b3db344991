# SPDX-License-Identifier: Apache-2.0
"""`broker-stats`: all topics of this broker, and what load balancing would look at.

Carries.
"""

import json
from typing import Any

from fastapi import APIRouter, Response

import magnetar
from magnetar.admin.answers import answered, raw_answer
from magnetar.admin.bundle_routes import ranges_of
from magnetar.admin.bundles import bundle_of
from magnetar.admin.metric_tables import TOPIC_ROWS, Looks
from magnetar.admin.metric_text import Sums
from magnetar.admin.parts import Parts
from magnetar.admin.slices import sliced
from magnetar.admin.topic_stats import StatsAsked, topic_stats
from magnetar.broker.ownership.load_data import encode_load
from magnetar.broker.served import ServedTopic

router = APIRouter(prefix="/admin/v2/broker-stats", tags=["broker statistics"])

_STATS_PER_SLICE = 3


@router.get("/topics")
async def topics(parts: Parts) -> Response:
    """By namespace, bundle and domain."""
    # The text of each topic at once: that of all of them would hold the loop.
    found: dict[str, dict[str, dict[str, list[str]]]] = {}
    bounds: dict[str, list[int]] = {}
    async for topic in sliced(parts.broker.topics.loaded(), _STATS_PER_SLICE):
        namespace = topic.name.namespace
        if str(namespace) not in bounds:
            bounds[str(namespace)] = await ranges_of(parts, namespace)
        bundle = found.setdefault(str(namespace), {}).setdefault(bundle_of(topic.name, bounds[str(namespace)]), {})
        stats = topic_stats(topic, parts.rates, StatsAsked(), parts.broker_id)
        texts = bundle.setdefault(str(topic.name.domain), [])
        texts.append(f"{json.dumps(str(topic.name))}:{json.dumps(stats, separators=(',', ':'))}")
    return raw_answer(_joined({name: _bundles(bundles) for name, bundles in found.items()}))


def _bundles(bundles: dict[str, dict[str, list[str]]]) -> str:
    return _joined(
        {
            name: _joined({domain: f"{{{','.join(texts)}}}" for domain, texts in domains.items()})
            for name, domains in bundles.items()
        }
    )


def _joined(members: dict[str, str]) -> str:
    """An object of members that are JSON already."""
    return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in members.items()) + "}"


@router.get("/destinations")
async def destinations(parts: Parts) -> Response:
    """What `topics` was called before."""
    return await topics(parts)


@router.get("/metrics")
async def metrics(parts: Parts) -> Response:
    """Pulsar's old form of metrics: the broker's own, then those of each namespace."""
    namespaces: dict[str, Sums] = {}
    looks = Looks(parts.rates, parts.ages, parts.clock.now_ms())
    served: list[ServedTopic] = [*parts.broker.topics.loaded(), *parts.broker.topics.in_memory()]
    async for topic in sliced(served, _STATS_PER_SLICE):
        namespaces.setdefault(str(topic.name.namespace), Sums()).add(topic, looks)
    cache = parts.broker.topics.managed_ledgers.cache
    own = {
        "brk_ml_count": len(parts.broker.topics.loaded()),
        "brk_ml_cache_used_size": cache.held_bytes,
        "brk_active_connections": len(parts.broker.connections),
    }
    answer: list[dict[str, Any]] = [{"metrics": own, "dimensions": {}}]
    for namespace, sums in namespaces.items():
        values = {f"brk_{row.name.removeprefix('pulsar_')}": sums.of(row.name) for row in TOPIC_ROWS}
        answer.append({"metrics": {**values, "brk_no_of_topics": sums.topics}, "dimensions": {"namespace": namespace}})
    return answered(answer)


@router.get("/load-report")
async def load_report(parts: Parts) -> Response:
    broker = parts.broker
    if broker.cluster is not None and broker.ownership.own is not None:
        load = await broker.cluster.reports.look(broker.ownership.own)
        return Response(encode_load(load), media_type="application/json")
    loaded = broker.topics.loaded()
    return answered(
        {
            "webServiceUrl": parts.web_url,
            "pulsarServiceUrl": broker.ownership.own.service_url if broker.ownership.own else None,
            "brokerVersionString": magnetar.__version__,
            "numTopics": len(loaded),
            "numProducers": sum(len(topic.producers) for topic in loaded),
            "numConsumers": sum(len(each.consumers) for topic in loaded for each in topic.subscriptions.values()),
            "msgRateIn": sum(parts.rates.of(topic).messages_per_s for topic in loaded),
            "msgThroughputIn": sum(parts.rates.of(topic).bytes_per_s for topic in loaded),
        }
    )
