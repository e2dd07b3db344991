# SPDX-License-Identifier: Apache-2.0
"""What a scrape tells of requests that are not messages: look-ups, topics that are loaded, schemas, logins, quotas.

Decides.
"""

from collections.abc import Callable, Iterator
from typing import Final

from magnetar.admin.metric_text import escaped
from magnetar.admin.parts import AdminParts
from magnetar.broker.schemas.schema_counts import NamespaceCounts
from magnetar.broker.timed import Timed

_LOAD: Final = "pulsar_topic_load_"
_LOAD_QUANTILES: Final = (
    ("time_median_ms", 0.5),
    ("time_75percentile_ms", 0.75),
    ("time_95percentile_ms", 0.95),
    ("time_99_percentile_ms", 0.99),
    ("time_99_9_percentile_ms", 0.999),
    ("time_99_99_percentile_ms", 0.9999),
)
_SCHEMA_OPERATIONS: Final[tuple[tuple[str, Callable[[NamespaceCounts], Timed]], ...]] = (
    ("get", lambda counts: counts.gets),
    ("put", lambda counts: counts.puts),
    ("del", lambda counts: counts.deletes),
)


def request_lines(parts: AdminParts, label: str) -> Iterator[str]:
    yield from _lookups(parts, label)
    yield from _loads(parts, label)
    yield from _schemas(parts, label)
    yield from _logins(parts, label)
    yield from _quotas(parts, label)


def _lookups(parts: AdminParts, label: str) -> Iterator[str]:
    lookups = parts.broker.lookups
    yield "# TYPE pulsar_broker_lookup summary"
    yield from lookups.timed.took_ms.lines("pulsar_broker_lookup", label)
    yield from _number("pulsar_broker_lookup_answers", "counter", label, lookups.answers)
    yield from _number("pulsar_broker_lookup_redirects", "counter", label, lookups.redirects)
    yield from _number("pulsar_broker_lookup_failures", "counter", label, lookups.timed.failed)
    yield from _number("pulsar_broker_lookup_pending_requests", "gauge", label, lookups.timed.pending)


def _loads(parts: AdminParts, label: str) -> Iterator[str]:
    loads = parts.broker.topics.loads
    took = loads.took_ms
    yield "# TYPE pulsar_topic_load_times summary"
    yield from took.lines("pulsar_topic_load_times", label)
    yield from _number("pulsar_broker_topic_load_pending_requests", "gauge", label, loads.pending)
    whose = f'{label},broker="{escaped(parts.broker_id)}",metric="topic_load_times"'
    yield from _number(f"{_LOAD}failed_count", "counter", whose, loads.failed)
    yield from _number(f"{_LOAD}rate_s", "gauge", whose, parts.rates.of(loads).messages_per_s)
    yield from _number(f"{_LOAD}time_mean_ms", "gauge", whose, took.sum / took.count if took.count else 0.0)
    for name, share in _LOAD_QUANTILES:
        value = took.quantile(share)
        yield from _number(f"{_LOAD}{name}", "gauge", whose, value if value == value else 0.0)


def _schemas(parts: AdminParts, label: str) -> Iterator[str]:
    namespaces = parts.broker.schemas.counts.by_namespace
    labels = {name: f'{label},namespace="{escaped(name)}"' for name in namespaces}
    for operation, timed_of in _SCHEMA_OPERATIONS:
        name = f"pulsar_schema_{operation}_ops"
        yield f"# TYPE {name}_latency summary"
        for namespace, counts in namespaces.items():
            yield from timed_of(counts).took_ms.lines(f"{name}_latency", labels[namespace])
        yield f"# TYPE {name}_failed counter"
        for namespace, counts in namespaces.items():
            yield f"{name}_failed{{{labels[namespace]}}} {timed_of(counts).failed}"
    for verdict in ("compatible", "incompatible"):
        yield f"# TYPE pulsar_schema_{verdict} counter"
        for namespace, counts in namespaces.items():
            yield f"pulsar_schema_{verdict}{{{labels[namespace]}}} {getattr(counts, verdict)}"


def _logins(parts: AdminParts, label: str) -> Iterator[str]:
    for name, counts in parts.broker.guard.logins():
        yield f"# TYPE {name} counter"
        for method, count in counts.items():
            yield f'{name}{{{label},auth_method="{escaped(method)}"}} {count}'


def _quotas(parts: AdminParts, label: str) -> Iterator[str]:
    name = "pulsar_storage_backlog_quota_check_duration_seconds"
    yield f"# TYPE {name} histogram"
    yield from parts.broker.policy_upkeep.quota_check_s.lines(name, label)
    name = "pulsar_storage_backlog_quota_exceeded_evictions_total"
    yield f"# TYPE {name} counter"
    totals = {"size": 0, "time": 0}
    for (namespace, kind), count in parts.broker.policy_upkeep.evictions.items():
        totals[kind] += count
        yield f'{name}{{{label},namespace="{escaped(namespace)}",quota_type="{kind}"}} {count}'
    name = "pulsar_broker_storage_backlog_quota_exceeded_evictions_total"
    yield f"# TYPE {name} counter"
    for kind, count in totals.items():
        yield f'{name}{{{label},quota_type="{kind}"}} {count}'
    held = sum(connection.is_held_back for connection in parts.broker.connections)
    yield from _number("pulsar_broker_throttled_connections", "gauge", label, held)


def _number(name: str, kind: str, label: str, value: int | float) -> Iterator[str]:
    yield f"# TYPE {name} {kind}"
    yield f"{name}{{{label}}} {value!r}"
