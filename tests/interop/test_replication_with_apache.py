# SPDX-License-Identifier: Apache-2.0
"""A cluster of ours and one of Apache Pulsar replicate a namespace to one another: messages and subscriptions."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest

from benchmarks.peers import PulsarServer
from tests.geo import Region, until
from tests.interop.apache import distribution

QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
EARLIEST = pulsar.InitialPosition.Earliest
RECEIVE_MS = 60_000
NAMESPACE = "geo/both"


class Point(pulsar.schema.Record):  # type: ignore[misc]
    x = pulsar.schema.Integer()


class Both:
    """`ours` and `theirs`, registered with each other."""

    def __init__(self, ours: Region, theirs: PulsarServer) -> None:
        self.ours = ours
        self.theirs = theirs
        self.clients = [pulsar.Client(url, logger=QUIET) for url in (ours.service_url, theirs.service_url)]

    def register(self) -> None:
        """Apache's standalone is called `standalone` and its brokers are found by its own record."""
        for ask, name, other in ((self.ours.ask, "standalone", self.theirs), (self.ask_theirs, "ours", self.ours)):
            ask("PUT", f"clusters/{name}", {"serviceUrl": other.web_url, "brokerServiceUrl": other.service_url})
            ask("PUT", "tenants/geo", {"allowedClusters": ["ours", "standalone"]})
            ask("PUT", f"namespaces/{NAMESPACE}", {"replication_clusters": ["ours", "standalone"]})

    def ask_theirs(self, verb: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.theirs.web_url}/admin/v2/{path}", data, method=verb)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read()
        return json.loads(text) if text else None


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    directory: Path = tmp_path_factory.mktemp("both")
    theirs = PulsarServer(distribution(), directory / "theirs", {"brokerDeduplicationEnabled": "true"})
    with theirs as server, Region("ours", directory / "ours", ("brokerDeduplicationEnabled=true",)) as ours:
        both = Both(ours, server)
        both.register()
        yield both
        for client in both.clients:
            client.close()


def _topic(name: str) -> str:
    return f"persistent://{NAMESPACE}/{name}"


def _take(consumer: pulsar.Consumer, count: int) -> list[bytes]:
    taken = []
    for _ in range(count):
        message = consumer.receive(RECEIVE_MS)
        taken.append(message.data())
        consumer.acknowledge(message)
    return taken


@pytest.mark.feature("F-GEO-01", "F-GEO-07", "F-GEO-09")
def test_messages_go_both_ways_once(both: Both) -> None:
    topic = _topic("mesh")
    consumers = [client.subscribe(topic, "all", initial_position=EARLIEST) for client in both.clients]
    for number, client in enumerate(both.clients):
        producer = client.create_producer(topic, producer_name=f"p{number}", batching_max_publish_delay_ms=5)
        for message in range(50):
            producer.send_async(b"%d-%d" % (number, message), None)
        producer.flush()
        producer.close()
    for consumer in consumers:
        taken = [data.split(b"-") for data in _take(consumer, 100)]
        for number in range(2):
            assert [int(count) for origin, count in taken if int(origin) == number] == list(range(50))
        with pytest.raises(pulsar.Timeout):
            consumer.receive(1_000)
        consumer.close()


@pytest.mark.feature("F-GEO-01")
def test_schemas_go_both_ways(both: Both) -> None:
    topic = _topic("shaped")
    schema = pulsar.schema.AvroSchema(Point)
    consumers = [client.subscribe(topic, "all", initial_position=EARLIEST, schema=schema) for client in both.clients]
    for number, client in enumerate(both.clients):
        producer = client.create_producer(topic, schema=schema)
        producer.send(Point(x=number))
        producer.close()
    for consumer in consumers:
        assert {consumer.receive(RECEIVE_MS).value().x for _ in range(2)} == {0, 1}
        consumer.close()


@pytest.mark.feature("F-RSUB-01", "F-RSUB-03")
@pytest.mark.parametrize("origin", [0, 1], ids=["from-ours", "from-theirs"])
def test_a_subscription_goes_on_over_there(both: Both, origin: int) -> None:
    """Markers of either are understood by the other."""
    topic, path = _topic(f"moving-{origin}"), f"persistent/{NAMESPACE}/moving-{origin}/stats"
    here, there = both.clients[origin], both.clients[1 - origin]
    ask_there = both.ask_theirs if origin == 0 else both.ours.ask
    consumer = here.subscribe(topic, "kept", initial_position=EARLIEST, replicate_subscription_state_enabled=True)
    producer = here.create_producer(topic, batching_enabled=False)
    # The topic must be there for its statistics to be asked for.
    there.create_producer(topic).close()
    sent = 0

    def has_moved() -> bool:
        nonlocal sent
        for _ in range(10):
            producer.send(b"%d" % sent)
            assert _take(consumer, 1) == [b"%d" % sent]
            sent += 1
        shown = ask_there("GET", path)["subscriptions"].get("kept")
        return bool(shown and shown["isReplicated"] and shown["msgBacklog"] < sent // 2)

    until(has_moved, "the other cluster knows how far the subscription is")
    for _ in range(10):
        producer.send(b"%d" % sent)
        sent += 1
    consumer.close()
    heir = there.subscribe(topic, "kept", initial_position=EARLIEST, replicate_subscription_state_enabled=True)
    came = [int(data) for data in _take(heir, 1)]
    while came[-1] != sent - 1:
        came += [int(data) for data in _take(heir, 1)]
    assert came == list(range(came[0], sent))
    assert 0 < came[0] <= sent - 10
    heir.close()
    producer.close()
