# SPDX-License-Identifier: Apache-2.0
"""The text of a scrape, piece by piece: the process's own registry, the broker, then topics or namespaces.

One pass over the topics adds up namespaces and the broker. Below that are the topics one by one, as long as there are
not too many of them; else the namespaces stand for them. Whoever walks the pieces lets others run in between.
Decides.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from magnetar.admin.metric_heads import head
from magnetar.admin.metric_tables import (
    CONSUMER_ROWS,
    PRODUCER_ROWS,
    REPLICATOR_ROWS,
    SUBSCRIPTION_ROWS,
    TOPIC_ROWS,
    Looks,
    Number,
    Row,
)
from magnetar.broker.answers import WRITE_LATENCY_BOUNDS_MS
from magnetar.broker.served import ServedSubscription, ServedTopic
from magnetar.broker.topic import Topic

_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
# Of subscriptions, what makes sense added up over a namespace.
_SUMMED: Final = (
    "pulsar_subscription_delayed",
    "pulsar_out_messages_total",
    "pulsar_out_bytes_total",
    "magnetar_subscription_oldest_unacked_age_seconds",
)
SUMMED_SUBSCRIPTION_ROWS: Final = tuple(row for row in SUBSCRIPTION_ROWS if row.name in _SUMMED)
NAMESPACE_ROWS: Final = (*TOPIC_ROWS, *SUMMED_SUBSCRIPTION_ROWS)
# Under a name of the broker's own, what its namespaces have together.
_OF_BROKER: Final = {
    "pulsar_subscriptions_count": "pulsar_broker_subscriptions_count",
    "pulsar_producers_count": "pulsar_broker_producers_count",
    "pulsar_consumers_count": "pulsar_broker_consumers_count",
    "pulsar_rate_in": "pulsar_broker_rate_in",
    "pulsar_rate_out": "pulsar_broker_rate_out",
    "pulsar_throughput_in": "pulsar_broker_throughput_in",
    "pulsar_throughput_out": "pulsar_broker_throughput_out",
    "pulsar_storage_size": "pulsar_broker_storage_size",
    "pulsar_storage_logical_size": "pulsar_broker_storage_logical_size",
    "pulsar_storage_write_rate": "pulsar_broker_storage_write_rate",
    "pulsar_storage_read_rate": "pulsar_broker_storage_read_rate",
    "pulsar_msg_backlog": "pulsar_broker_msg_backlog",
    "pulsar_in_bytes_total": "pulsar_broker_in_bytes_total",
    "pulsar_in_messages_total": "pulsar_broker_in_messages_total",
    "pulsar_out_bytes_total": "pulsar_broker_out_bytes_total",
    "pulsar_out_messages_total": "pulsar_broker_out_messages_total",
    "pulsar_storage_backlog_age_seconds": "magnetar_oldest_unacked_age_seconds",
}
_QUANTILES: Final = (0.0, 0.5, 0.95, 0.99, 0.999, 0.9999, 1.0)
# One look at so many subscriptions is about as much as all that is asked of a topic with a few.
_CROWD: Final = 30
_LATENCY: Final = "magnetar_publish_latency_seconds"
_WRITE: Final = "pulsar_storage_write_latency_"


class Levels(NamedTuple):
    topics: bool
    consumers: bool
    producers: bool
    # The number of a partition has a label of its own.
    partition_label: bool = False


class Sums:
    """What the topics of a namespace, or all of them, have together."""

    __slots__ = ("topics", "values")

    def __init__(self) -> None:
        self.topics = 0
        self.values: list[Number] = [0] * len(NAMESPACE_ROWS)

    def adding(self, topic: ServedTopic, looks: Looks) -> Iterator[int]:
        """Add a topic step by step; says after each how much that was, in topics of the usual size."""
        self.topics += 1
        crowd = len(topic.subscriptions) // _CROWD
        for index, row in enumerate(TOPIC_ROWS):
            self._add(index, row, row.value(topic, looks))
            if crowd:
                yield crowd
        for number, subscription in enumerate(list(topic.subscriptions.values()), 1):
            for index, row in enumerate(SUMMED_SUBSCRIPTION_ROWS, len(TOPIC_ROWS)):
                self._add(index, row, row.value(subscription, looks))
            if number % _CROWD == 0:
                yield 2
        yield 1

    def _add(self, index: int, row: Row, value: Number) -> None:
        if value:
            present = self.values[index]
            self.values[index] = max(present, value) if row.is_largest else present + value

    def join(self, other: "Sums") -> None:
        self.topics += other.topics
        for index, row in enumerate(NAMESPACE_ROWS):
            mine, theirs = self.values[index], other.values[index]
            self.values[index] = max(mine, theirs) if row.is_largest else mine + theirs

    def of(self, name: str) -> Number:
        return next(value for row, value in zip(NAMESPACE_ROWS, self.values, strict=True) if row.name == name)


def escaped(text: str) -> str:
    return text.translate(_ESCAPES)


def broker_lines(cluster: str, namespaces: dict[str, Sums]) -> Iterator[str]:
    """What the broker has in all, and how many topics each namespace has of it."""
    total = Sums()
    for sums in namespaces.values():
        total.join(sums)
    label = f'cluster="{escaped(cluster)}"'
    yield from head("pulsar_broker_topics_count", "gauge")
    yield f"pulsar_broker_topics_count{{{label}}} {total.topics}"
    for row, value in zip(NAMESPACE_ROWS, total.values, strict=True):
        name = _OF_BROKER.get(row.name)
        if name is not None:
            yield from head(name, row.kind)
            yield f"{name}{{{label}}} {value!r}"
    yield from _latency_lines(label, total)
    yield from _quantile_lines(label, total)
    yield from head("pulsar_topics_count", "gauge")
    for namespace, sums in namespaces.items():
        yield f'pulsar_topics_count{{{label},namespace="{escaped(namespace)}"}} {sums.topics}'


def _latency_lines(label: str, total: Sums) -> Iterator[str]:
    """How long storing a message took, over all topics, as a histogram that Prometheus can work with."""
    yield from head(_LATENCY, "histogram")
    reached: Number = 0
    for bound in WRITE_LATENCY_BOUNDS_MS:
        reached += total.of(f"{_WRITE}le_{str(bound).replace('.', '_')}")
        yield f'{_LATENCY}_bucket{{{label},le="{bound / 1000}"}} {reached}'
    count = reached + total.of(f"{_WRITE}overflow")
    yield f'{_LATENCY}_bucket{{{label},le="+Inf"}} {count}'
    yield f"{_LATENCY}_sum{{{label}}} {total.of(f'{_WRITE}sum') / 1000!r}"
    yield f"{_LATENCY}_count{{{label}}} {count}"


def _quantile_lines(label: str, total: Sums) -> Iterator[str]:
    """The same as Pulsar shows it: in milliseconds, by the bounds that hold so much of it."""
    name = "pulsar_broker_publish_latency"
    bounds = (*WRITE_LATENCY_BOUNDS_MS, float("inf"))
    counts = [total.of(f"{_WRITE}le_{str(bound).replace('.', '_')}") for bound in WRITE_LATENCY_BOUNDS_MS]
    counts.append(total.of(f"{_WRITE}overflow"))
    yield from head(name, "summary")
    for share in _QUANTILES:
        reached: Number = 0
        value = "NaN"
        for bound, count in zip(bounds, counts, strict=True):
            reached += count
            if count and reached >= share * sum(counts):
                value = "+Inf" if bound == float("inf") else repr(float(bound))
                break
        yield f'{name}{{{label},quantile="{share}"}} {value}'
    yield f"{name}_count{{{label}}} {sum(counts)}"
    yield f"{name}_sum{{{label}}} {total.of(f'{_WRITE}sum')!r}"


def namespace_lines(cluster: str, namespaces: dict[str, Sums]) -> Iterator[str]:
    label = f'cluster="{escaped(cluster)}"'
    for index, row in enumerate(NAMESPACE_ROWS):
        yield from head(row.name, row.kind)
        for namespace, sums in namespaces.items():
            yield f'{row.name}{{{label},namespace="{escaped(namespace)}"}} {sums.values[index]!r}'


def topic_lines(cluster: str, topics: list[ServedTopic], looks: Looks, levels: Levels) -> Iterator[str]:
    """A family after the other, as the format wants it."""
    labels = [(topic, f'cluster="{escaped(cluster)}",{_labels(topic, levels)}') for topic in topics]
    for row in TOPIC_ROWS:
        yield from head(row.name, row.kind)
        for topic, text in labels:
            yield f"{row.name}{{{text}}} {row.value(topic, looks)!r}"
    for row in SUBSCRIPTION_ROWS:
        yield from head(row.name, row.kind)
        for topic, text in labels:
            yield from _subscription_lines(row, text, topic.subscriptions.values(), looks)
    yield from _replicator_lines(labels, looks)
    if levels.consumers:
        for row in CONSUMER_ROWS:
            yield from head(row.name, row.kind)
            for topic, text in labels:
                yield from _consumer_lines(row, text, topic, looks)
    if levels.producers:
        for row in PRODUCER_ROWS:
            yield from head(row.name, row.kind)
            for topic, text in labels:
                for producer in list(topic.producers.values()):
                    name = f'producer_name="{escaped(producer.name)}",producer_id="{producer.producer_id}"'
                    yield f"{row.name}{{{text},{name}}} {row.value(producer, looks)!r}"


def _replicator_lines(labels: list[tuple[ServedTopic, str]], looks: Looks) -> Iterator[str]:
    ways = [
        (replicator, f'{text},remote_cluster="{escaped(cluster)}"')
        for topic, text in labels
        if isinstance(topic, Topic) and topic.replication is not None
        for cluster, replicator in topic.replication.replicators.items()
    ]
    for row in REPLICATOR_ROWS if ways else ():
        yield from head(row.name, row.kind)
        for replicator, text in ways:
            yield f"{row.name}{{{text}}} {row.value(replicator, looks)!r}"


def _subscription_lines(
    row: Row, text: str, subscriptions: Iterable[ServedSubscription], looks: Looks
) -> Iterator[str]:
    for each in list(subscriptions):
        yield f'{row.name}{{{text},subscription="{escaped(each.name)}"}} {row.value(each, looks)!r}'


def _consumer_lines(row: Row, text: str, topic: ServedTopic, looks: Looks) -> Iterator[str]:
    subscriptions: list[ServedSubscription] = list(topic.subscriptions.values())
    for subscription in subscriptions:
        for consumer in list(subscription.consumers):
            whose = f'subscription="{escaped(subscription.name)}",consumer_name="{escaped(consumer.name)}"'
            label = f'{text},{whose},consumer_id="{consumer.consumer_id}"'
            yield f"{row.name}{{{label}}} {row.value(consumer, looks)!r}"


def _labels(topic: ServedTopic, levels: Levels) -> str:
    name = topic.name
    namespace = f'namespace="{escaped(str(name.namespace))}"'
    if levels.partition_label:
        return f'{namespace},topic="{escaped(str(name.base))}",partition="{name.partition_index}"'
    return f'{namespace},topic="{escaped(str(name))}"'
