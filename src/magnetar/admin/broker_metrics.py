# SPDX-License-Identifier: Apache-2.0
"""What a scrape tells of the broker's process: its registry, connections, caches, memory by owner, load of the host.

Decides.
"""

from collections.abc import Iterator
from typing import Final

import magnetar
from magnetar.admin.metric_heads import head
from magnetar.admin.metric_text import escaped
from magnetar.admin.parts import AdminParts
from magnetar.admin.request_metrics import request_lines

_RESOURCES: Final = (
    "pulsar_lb_cpu_usage",
    "pulsar_lb_memory_usage",
    "pulsar_lb_directMemory_usage",
    "pulsar_lb_bandwidth_in_usage",
    "pulsar_lb_bandwidth_out_usage",
)


def own_lines(parts: AdminParts) -> Iterator[str]:
    yield from parts.metrics.lines()
    label = f'cluster="{escaped(parts.cluster)}"'
    yield from head("pulsar_version_info", "gauge")
    yield f'pulsar_version_info{{{label},version="{magnetar.__version__}"}} 1'
    yield from head("pulsar_health", "gauge")
    yield f"pulsar_health{{{label}}} 1"
    yield from _connections(parts, label)
    yield from _caches(parts, label)
    yield from _memory(parts, label)
    yield from _load(parts, label)
    yield from request_lines(parts, label)
    yield from _transactions(parts, label)


def _connections(parts: AdminParts, label: str) -> Iterator[str]:
    broker = parts.broker
    active = len(broker.connections)
    broker_label = f'{label},broker="{escaped(parts.broker_id)}",metric="broker_connection"'
    for name, kind, value in (
        ("pulsar_active_connections", "gauge", active),
        ("pulsar_connection_created_total_count", "counter", broker.connections_opened),
        ("pulsar_connection_create_success_count", "counter", broker.connections_opened - broker.connections_refused),
        ("pulsar_connection_create_fail_count", "counter", broker.connections_refused),
        ("pulsar_connection_closed_total_count", "counter", broker.connections_opened - active),
        ("magnetar_sessions_failed_total", "counter", broker.sessions_failed),
    ):
        yield from head(name, kind)
        yield f"{name}{{{broker_label}}} {value}"


def _caches(parts: AdminParts, label: str) -> Iterator[str]:
    """The cache counts hits as messages and misses as what was dropped, for its rates."""
    ledgers = parts.broker.topics.managed_ledgers
    cache = ledgers.cache
    rate = parts.rates.of(cache)
    for name, kind, value in (
        ("pulsar_ml_count", "gauge", len(parts.broker.topics.loaded())),
        ("pulsar_ml_cache_used_size", "gauge", cache.held_bytes),
        ("pulsar_ml_cache_hits_rate", "gauge", rate.messages_per_s),
        ("pulsar_ml_cache_misses_rate", "gauge", rate.dropped_per_s),
        ("pulsar_ml_cache_evictions", "gauge", rate.bytes_per_s),
        ("magnetar_ml_cache_hits_total", "counter", cache.hits),
        ("magnetar_ml_cache_misses_total", "counter", cache.misses),
        ("magnetar_ml_cache_evicted_bytes_total", "counter", cache.evicted_bytes),
    ):
        yield from head(name, kind)
        yield f"{name}{{{label}}} {value!r}"


def _memory(parts: AdminParts, label: str) -> Iterator[str]:
    broker = parts.broker
    budget = broker.publish_budget
    yield from head("magnetar_memory_bytes", "gauge")
    for owner, size in (
        ("entry_cache", broker.topics.managed_ledgers.cache.held_bytes),
        ("publish_buffers", budget.bytes_pending),
    ):
        yield f'magnetar_memory_bytes{{{label},owner="{owner}"}} {size}'
    yield from head("magnetar_memory_bytes_max", "gauge")
    for owner, size in (
        ("entry_cache", broker.topics.managed_ledgers.cache.bytes_max),
        ("publish_buffers", budget.bytes_max),
    ):
        yield f'magnetar_memory_bytes_max{{{label},owner="{owner}"}} {size}'


def _load(parts: AdminParts, label: str) -> Iterator[str]:
    """In per cent of what there is, as the balancer of loads sees it; 0 where no limit is known."""
    whose = f'{label},broker="{escaped(parts.broker_id)}",metric="loadBalancing"'
    for name, resource in zip(_RESOURCES, parts.usage.resources, strict=True):
        yield from head(name, "gauge")
        yield f"{name}{{{whose}}} {100.0 * resource.usage / resource.limit if resource.limit else 0.0!r}"


def _transactions(parts: AdminParts, label: str) -> Iterator[str]:
    """Of the coordinators that are open here: how many transactions are not ended, and how old the oldest is."""
    now_ms = parts.clock.now_ms()
    started = {
        coordinator.state.coordinator_id: [each.started_ms for each in coordinator.state.transactions()]
        for coordinator in parts.broker.transactions.coordinators()
    }
    for name, value_of in (
        ("pulsar_txn_active_count", len),
        ("magnetar_txn_oldest_seconds", lambda times: (now_ms - min(times, default=now_ms)) / 1000),
    ):
        if started:
            yield from head(name, "gauge")
        for coordinator_id, times in started.items():
            yield f'{name}{{{label},coordinator_id="{coordinator_id}"}} {value_of(times)!r}'
