# SPDX-License-Identifier: Apache-2.0
"""`broker-stats`: all topics of this broker, and what load balancing would look at.

Carries.
"""

import json
from collections.abc import AsyncIterator
from typing import Any, Final

from fastapi import APIRouter, Response
from starlette.responses import StreamingResponse

import magnetar
from magnetar.admin.answers import AdminRefused, answered
from magnetar.admin.bundle_routes import ranges_of
from magnetar.admin.bundles import bundle_of
from magnetar.admin.metric_tables import TOPIC_ROWS, Looks
from magnetar.admin.metric_text import Sums
from magnetar.admin.parts import AdminParts, Parts
from magnetar.admin.sliced_answer import SLICE_ITEMS_MAX
from magnetar.admin.sliced_json import json_slices
from magnetar.admin.slices import Turns, sliced
from magnetar.admin.topic_stats import StatsAsked
from magnetar.admin.whole_stats import CLIENTS_PER_SLICE, whole_stats
from magnetar.broker.ownership.load_data import encode_load
from magnetar.broker.served import ServedTopic
from magnetar.broker.topic import Topic
from magnetar.managed_ledger.pending_operations import Operation

router = APIRouter(prefix="/admin/v2/broker-stats", tags=["broker statistics"])

_SUMMED_PER_SLICE: Final = 10
_NAMES_PER_SLICE: Final = 200

# Topics by namespace, bundle and domain.
_Grouped = dict[str, dict[str, dict[str, list[Topic]]]]


@router.get("/topics")
async def topics(parts: Parts) -> Response:
    """By namespace, bundle and domain; written while it is sent, so that it is never in memory as a whole."""
    grouped: _Grouped = {}
    bounds: dict[str, list[int]] = {}
    async for topic in sliced(parts.broker.topics.loaded(), _NAMES_PER_SLICE):
        namespace = str(topic.name.namespace)
        if namespace not in bounds:
            bounds[namespace] = await ranges_of(parts, topic.name.namespace)
        bundle = bundle_of(topic.name, bounds[namespace])
        domains = grouped.setdefault(namespace, {}).setdefault(bundle, {})
        domains.setdefault(str(topic.name.domain), []).append(topic)
    return StreamingResponse(_texts(parts, grouped), media_type="application/json")


async def _texts(parts: AdminParts, grouped: _Grouped) -> AsyncIterator[str]:
    turns = Turns(CLIENTS_PER_SLICE)
    yield "{"
    for at_namespace, (namespace, bundles) in enumerate(grouped.items()):
        yield f"{',' if at_namespace else ''}{json.dumps(namespace)}:{{"
        for at_bundle, (bundle, domains) in enumerate(bundles.items()):
            yield f"{',' if at_bundle else ''}{json.dumps(bundle)}:{{"
            for at_domain, (domain, found) in enumerate(domains.items()):
                yield f"{',' if at_domain else ''}{json.dumps(domain)}:{{"
                for at_topic, topic in enumerate(found):
                    stats = await whole_stats(
                        topic, parts.rates, StatsAsked(), parts.broker_id, parts.broker.clock.now_ms(), turns
                    )
                    yield f"{',' if at_topic else ''}{json.dumps(str(topic.name))}:"
                    for text in json_slices(stats, SLICE_ITEMS_MAX):
                        yield text
                        await turns.after(CLIENTS_PER_SLICE // 3)
                yield "}"
            yield "}"
        yield "}"
    yield "}"


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
    turns = Turns(_SUMMED_PER_SLICE)
    for topic in served:
        for weight in namespaces.setdefault(str(topic.name.namespace), Sums()).adding(topic, looks):
            await turns.after(weight)
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


@router.get("/bookieops")
async def bookie_operations(parts: Parts) -> Response:
    """Operations on whole ledgers that are waited for, by namespace and topic, under Pulsar's names."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    async for topic in sliced(parts.broker.topics.loaded(), _NAMES_PER_SLICE):
        pending = topic.managed_ledger.pending_operations
        found.setdefault(str(topic.name.namespace), {})[str(topic.name)] = {
            f"{ledger}Ledger{each.value}Op": pending.count(each, of_cursor=ledger == "cursor")
            for ledger in ("data", "cursor")
            for each in Operation
        }
    return answered(found)


@router.get("/broker-resource-availability/{tenant}/{namespace}")
async def resource_availability(tenant: str, namespace: str) -> Response:
    """Pulsar's answer wherever the load manager is not its oldest one, which alone counts in these units."""
    raise AdminRefused(409, "Load is not counted in units of resources here; broker-stats/load-report says what is")


@router.get("/load-report")
async def load_report(parts: Parts) -> Response:
    broker = parts.broker
    if broker.cluster is not None and broker.ownership.own is not None:
        load = await broker.cluster.reports.look(broker.ownership.own)
        return Response(encode_load(load), media_type="application/json")
    producers = consumers = 0
    messages_per_s = bytes_per_s = 0.0
    loaded = broker.topics.loaded()
    async for topic in sliced(loaded, _NAMES_PER_SLICE):
        producers += len(topic.producers)
        consumers += sum(len(each.consumers) for each in topic.subscriptions.values())
        messages_per_s += parts.rates.of(topic).messages_per_s
        bytes_per_s += parts.rates.of(topic).bytes_per_s
    return answered(
        {
            "webServiceUrl": parts.web_url,
            "pulsarServiceUrl": broker.ownership.own.service_url if broker.ownership.own else None,
            "brokerVersionString": magnetar.__version__,
            "numTopics": len(loaded),
            "numProducers": producers,
            "numConsumers": consumers,
            "msgRateIn": messages_per_s,
            "msgThroughputIn": bytes_per_s,
        }
    )
