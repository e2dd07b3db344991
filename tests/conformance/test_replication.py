# SPDX-License-Identifier: Apache-2.0
"""Topics of several clusters as official clients meet them: each message once everywhere, in its sender's order."""

import asyncio
from collections.abc import Iterator

import pulsar
import pytest

from magnetar import Client
from tests.conformance.exchanges import QUIET, nothing_comes, publish, take
from tests.geo import Region, Regions, until

EARLIEST = pulsar.InitialPosition.Earliest


@pytest.fixture(scope="module")
def regions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Regions]:
    settings = ("brokerDeduplicationEnabled=true", "transactionCoordinatorEnabled=true")
    with Regions(tmp_path_factory.mktemp("regions"), "east", "west", "north", settings=settings) as regions:
        yield regions


@pytest.fixture(scope="module")
def east(regions: Regions) -> Region:
    return regions.all[0]


@pytest.fixture(scope="module")
def clients(regions: Regions) -> Iterator[list[pulsar.Client]]:
    clients = [pulsar.Client(region.service_url, logger=QUIET) for region in regions.all]
    yield clients
    for client in clients:
        client.close()


def _cursors(region: Region, topic: str) -> set[str]:
    return set(region.ask("GET", f"persistent/{topic}/internalStats")["cursors"])


def _partitions(region: Region, topic: str) -> int:
    """0 while there is no such topic."""
    path = f"persistent/{topic}/partitions"
    return 0 if region.refusal("GET", path) else int(region.ask("GET", path)["partitions"])


@pytest.mark.feature("F-GEO-01", "F-GEO-07", "F-GEO-09", "F-GEO-11")
def test_every_message_comes_once_to_every_cluster(regions: Regions, clients: list[pulsar.Client]) -> None:
    """F176: a full mesh of three."""
    topic = regions.topic("mesh")
    consumers = [client.subscribe(topic, "all", initial_position=EARLIEST) for client in clients]
    for number, client in enumerate(clients):
        producer = client.create_producer(topic, producer_name=f"p{number}", batching_max_publish_delay_ms=1)
        for message in range(40):
            producer.send_async(b"%d-%d" % (number, message), None)
        producer.flush()
        producer.close()
    for consumer in consumers:
        taken = [data.split(b"-") for data in take(consumer, 120)]
        for number in range(3):
            assert [int(count) for origin, count in taken if int(origin) == number] == list(range(40))
        nothing_comes(consumer)
        consumer.close()


@pytest.mark.feature("F-GEO-05")
def test_a_message_goes_where_its_sender_says(regions: Regions, clients: list[pulsar.Client]) -> None:
    topic = regions.topic("chosen")
    consumers = [client.subscribe(topic, "all", initial_position=EARLIEST) for client in clients]
    producer = clients[0].create_producer(topic, batching_enabled=False)
    producer.send(b"west", replication_clusters=["west"])
    producer.send(b"nowhere", disable_replication=True)
    producer.send(b"all")
    assert take(consumers[0], 3) == [b"west", b"nowhere", b"all"]
    assert take(consumers[1], 2) == [b"west", b"all"]
    assert take(consumers[2], 1) == [b"all"]
    for consumer in consumers:
        nothing_comes(consumer, 100)
        consumer.close()


@pytest.mark.feature("F-GEO-01")
def test_what_a_message_carries_arrives_with_it(regions: Regions, clients: list[pulsar.Client]) -> None:
    topic = regions.topic("carried")
    consumer = clients[1].subscribe(topic, "all", initial_position=EARLIEST)
    producer = clients[0].create_producer(
        topic,
        producer_name="origin",
        compression_type=pulsar.CompressionType.ZSTD,
        chunking_enabled=True,
        batching_enabled=False,
    )
    producer.send(b"small", properties={"a": "b"}, partition_key="key", event_timestamp=123, ordering_key="o")
    large = bytes(range(256)) * 30_000
    producer.send(large, properties={"large": "yes"})
    producer.close()
    small = consumer.receive(10_000)
    assert (small.data(), small.properties(), small.partition_key(), small.event_timestamp(), small.ordering_key()) == (
        b"small", {"a": "b"}, "key", 123, "o",
    )  # fmt: skip
    assert small.producer_name() == "origin"
    assert consumer.receive(10_000).data() == large
    consumer.close()


class Point(pulsar.schema.Record):  # type: ignore[misc]
    x = pulsar.schema.Integer()


class WiderPoint(pulsar.schema.Record):  # type: ignore[misc]
    x = pulsar.schema.Integer()
    y = pulsar.schema.Integer(default=7, required_default=True)


@pytest.mark.feature("F-GEO-01")
def test_schemas_go_along_under_their_own_versions(regions: Regions, clients: list[pulsar.Client]) -> None:
    """F174: they change on the way, and are others over there."""
    topic = regions.topic("shaped")
    # The other cluster has a schema of its own before: versions differ.
    clients[1].create_producer(topic, schema=pulsar.schema.AvroSchema(WiderPoint)).close()
    consumer = clients[1].subscribe(
        topic, "all", schema=pulsar.schema.AvroSchema(WiderPoint), initial_position=EARLIEST
    )
    for number, shape in enumerate((Point, WiderPoint)):
        producer = clients[0].create_producer(topic, schema=pulsar.schema.AvroSchema(shape))
        producer.send(shape(x=number))
        producer.close()
    first, second = consumer.receive(10_000), consumer.receive(10_000)
    assert (first.value().x, first.value().y) == (0, 7)
    assert second.value().x == 1
    assert first.schema_version() != second.schema_version()
    consumer.close()


@pytest.mark.feature("F-GEO-04", "F-GEO-12")
def test_a_topic_can_go_one_way_and_stop(regions: Regions, clients: list[pulsar.Client], east: Region) -> None:
    """The topic's own policy goes before the namespace's; without a way back nothing comes back."""
    namespace, topic = "geo/oneway", "persistent://geo/oneway/edge"
    for region in regions.all:
        regions.open_namespace(region, namespace, [region.name])
    centre = clients[1].subscribe(topic, "all", initial_position=EARLIEST)
    edge = clients[0].subscribe(topic, "all", initial_position=EARLIEST)
    publish(clients[0], topic, 2)
    path = "persistent/geo/oneway/edge/replication"
    east.ask("POST", path, ["east", "west"])
    until(lambda: east.ask("GET", path) == ["east", "west"], "the policy is there")
    publish(clients[0], topic, 3)
    publish(clients[1], topic, 1)
    assert take(centre, 4).count(b"m-0") == 2
    assert take(edge, 5) == [b"m-0", b"m-1", b"m-0", b"m-1", b"m-2"]
    nothing_comes(edge)
    assert "pulsar.repl.west" in _cursors(east, "geo/oneway/edge")
    east.ask("DELETE", path)
    until(lambda: "pulsar.repl.west" not in _cursors(east, "geo/oneway/edge"), "a cluster not named loses its cursor")
    publish(clients[0], topic, 1)
    nothing_comes(centre)
    centre.close()
    edge.close()


@pytest.mark.feature("F-GEO-01", "F-GEO-06")
def test_partitions_are_made_over_there(regions: Regions, clients: list[pulsar.Client], east: Region) -> None:
    topic = regions.topic("parted")
    east.ask("PUT", "persistent/geo/all/parted/partitions", 3)
    sent = publish(clients[0], topic, 30)
    west = regions.all[1]
    until(lambda: _partitions(west, "geo/all/parted") == 3, "the other cluster has the partitions")
    consumer = clients[1].subscribe(topic, "all", initial_position=EARLIEST)
    assert sorted(take(consumer, 30)) == sorted(sent)
    shown = east.ask("GET", "persistent/geo/all/parted/partitioned-stats")["replication"]["west"]
    assert shown["connected"]
    consumer.close()


@pytest.mark.feature("F-GEO-06", "F-GEO-09")
def test_a_topic_that_is_unloaded_goes_on(regions: Regions, clients: list[pulsar.Client], east: Region) -> None:
    """F177: on either side; the replicator of the one that closed does not keep its name from the next."""
    topic = regions.topic("unloaded")
    consumer = clients[1].subscribe(topic, "all", initial_position=EARLIEST)
    producer = clients[0].create_producer(topic, batching_enabled=False)
    for number in range(30):
        producer.send(b"%d" % number)
        if number in (9, 15, 22):
            regions.all[number % 3].ask("PUT", "persistent/geo/all/unloaded/unload")
    came: dict[bytes, None] = {}
    while len(came) < 30:
        # What was not acknowledged when the topic was unloaded comes again; first occurrences are in order.
        came.update(dict.fromkeys(take(consumer, 1)))
    assert list(came) == [b"%d" % number for number in range(30)]
    producer.close()
    consumer.close()


@pytest.mark.feature("F-GEO-06")
def test_statistics_tell_what_goes_and_comes(regions: Regions, clients: list[pulsar.Client], east: Region) -> None:
    topic = regions.topic("counted")
    publish(clients[0], topic, 10)
    until(lambda: east.drained(topic, "west"), "all has arrived")
    shown = east.replication(topic, "west")
    assert shown["msgOutCount"] == 10
    assert shown["outboundConnection"]
    there = regions.all[1].ask("GET", "persistent/geo/all/counted/stats")
    assert there["replication"]["east"]["inboundConnection"]
    assert there["replication"]["east"]["msgInCount"] == 10
    assert [each["producerName"] for each in there["publishers"]] == []


@pytest.mark.feature("F-GEO-08", "F-GEO-06", "F-GEO-13")
def test_an_outage_costs_backlog_and_nothing_else(regions: Regions, clients: list[pulsar.Client], east: Region) -> None:
    """The other cluster is killed, then this one: what was sent meanwhile arrives once, in order."""
    topic, north = regions.topic("outage"), regions.all[2]
    clients[2].subscribe(topic, "all", initial_position=EARLIEST).close()
    publish(clients[0], topic, 20)
    until(lambda: east.drained(topic, "north"), "the first have arrived")
    north.kill()
    producer = clients[0].create_producer(topic, producer_name="through", batching_enabled=False)
    for number in range(50):
        producer.send(b"during-%d" % number)
    assert east.replication(topic, "north")["replicationBacklog"] >= 50
    until(lambda: not east.replication(topic, "north")["connected"], "the loss is noticed")
    assert "trouble" in east.replication(topic, "north")
    east.kill()
    east.start()
    north.start()
    for number in range(50, 60):
        producer.send(b"during-%d" % number)
    producer.close()
    consumer = clients[2].subscribe(topic, "all", initial_position=EARLIEST)
    taken = take(consumer, 80)
    assert taken[20:] == [b"during-%d" % number for number in range(60)]
    nothing_comes(consumer)
    consumer.close()


@pytest.mark.feature("F-GEO-01")
def test_only_what_a_transaction_commits_goes(regions: Regions, clients: list[pulsar.Client]) -> None:
    topic = regions.topic("ended")
    consumer = clients[1].subscribe(topic, "all", initial_position=EARLIEST)

    async def send() -> None:
        async with Client(regions.all[0].service_url) as client:
            producer = await client.create_producer(topic)
            for name, commits in ((b"aborted", False), (b"committed", True)):
                transaction = await client.new_transaction()
                await producer.send(name, txn=transaction)
                await (transaction.commit() if commits else transaction.abort())
            await producer.send(b"plain")

    asyncio.run(send())
    assert take(consumer, 2) == [b"committed", b"plain"]
    nothing_comes(consumer)
    consumer.close()


@pytest.mark.feature("F-GEO-02", "F-GEO-03", "F-GEO-14")
def test_clusters_are_registered_and_allowed(regions: Regions, east: Region) -> None:
    assert set(east.ask("GET", "clusters")) == {"east", "west", "north"}
    assert east.ask("GET", "clusters/west")["brokerServiceUrl"] == regions.all[1].service_url
    assert east.ask("GET", "clusters/east")["brokerServiceUrl"] == east.service_url
    east.ask("PUT", "tenants/narrow", {"allowedClusters": ["east"]})
    east.ask("PUT", "namespaces/narrow/one", {"replication_clusters": ["east"]})
    assert east.refusal("POST", "namespaces/narrow/one/replication", ["east", "west"]) == 403
    assert east.refusal("POST", "namespaces/geo/all/replication", ["east", "south"]) == 403


@pytest.mark.feature("F-RSUB-01", "F-RSUB-02", "F-RSUB-03", "F-RSUB-04")
def test_a_replicated_subscription_goes_on_in_another_cluster(
    regions: Regions, clients: list[pulsar.Client], east: Region
) -> None:
    topic, path = regions.topic("moving"), "persistent/geo/all/moving"
    west = regions.all[1]
    consumer = clients[0].subscribe(topic, "kept", initial_position=EARLIEST, replicate_subscription_state_enabled=True)
    producer = clients[0].create_producer(topic, batching_enabled=False)
    sent: list[bytes] = []

    def send(count: int) -> None:
        for _ in range(count):
            sent.append(b"%d" % len(sent))
            producer.send(sent[-1])

    send(50)
    assert take(consumer, 50) == sent

    def has_moved() -> bool:
        send(1)
        taken = take(consumer, 1)
        assert taken == sent[-1:]
        if topic not in west.ask("GET", "persistent/geo/all"):
            return False
        shown = west.ask("GET", f"{path}/stats")["subscriptions"].get("kept")
        return bool(shown and shown["isReplicated"] and shown["msgBacklog"] < 40)

    until(has_moved, "the other cluster knows how far the subscription is")
    send(20)
    consumer.close()
    producer.close()
    until(lambda: east.drained(topic, "west"), "everything is there")
    there = clients[1].subscribe(topic, "kept", initial_position=EARLIEST, replicate_subscription_state_enabled=True)
    rest: list[bytes] = []
    while not rest or rest[-1] != sent[-1]:
        rest += take(there, 1)
    # No gap: what is delivered again is less than what had been consumed, and nothing that was not is missing.
    assert rest == sent[-len(rest) :]
    assert 20 <= len(rest) < len(sent)
    nothing_comes(there)
    there.close()
