# SPDX-License-Identifier: Apache-2.0
"""Topics as clients meet them: first use, partitions, lists and watches, rates, non-persistent ones."""

import re
from collections.abc import Generator
from pathlib import Path

import pulsar
import pytest

from magnetar.broker.topic_list import hash_of
from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.conformance.raw_client import RawClient, Type
from tests.conftest import Eventually
from tests.processes import StandaloneProcess

QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Generator[StandaloneProcess, None, None]:
    directory: Path = tmp_path_factory.mktemp("topics")
    with StandaloneProcess(directory) as process:
        yield process


@pytest.fixture
def client(standalone: StandaloneProcess) -> Generator[pulsar.Client, None, None]:
    client = pulsar.Client(standalone.service_url, operation_timeout_seconds=10, logger=QUIET)
    yield client
    client.close()


def list_topics(
    raw: RawClient,
    mode: int = 0,
    pattern: str | None = None,
    topics_hash: str | None = None,
    namespace: str = "public/default",
) -> pb.CommandGetTopicsOfNamespaceResponse:
    request_id = raw.request_id()
    raw.say(
        Type.GET_TOPICS_OF_NAMESPACE,
        pb.CommandGetTopicsOfNamespace(
            request_id=request_id,
            namespace=namespace,
            mode=mode,  # type: ignore[arg-type]
            topics_pattern=pattern,
            topics_hash=topics_hash,
        ),
    )
    return raw.answer_to(request_id).getTopicsOfNamespaceResponse


def partitions_of(raw: RawClient, topic: str, *, create: bool = True) -> pb.CommandPartitionedTopicMetadataResponse:
    request_id = raw.request_id()
    raw.say(
        Type.PARTITIONED_METADATA,
        pb.CommandPartitionedTopicMetadata(topic=topic, request_id=request_id, metadata_auto_creation_enabled=create),
    )
    return raw.answer_to(request_id).partitionMetadataResponse


@pytest.mark.feature("F-TOP-01")
def test_short_and_full_names_are_one_topic(client: pulsar.Client) -> None:
    consumer = client.subscribe("persistent://public/default/named", "s")
    client.create_producer("named").send(b"x")
    assert consumer.receive(10_000).topic_name() == "persistent://public/default/named"


@pytest.mark.feature("F-TOP-14")
def test_first_use_makes_partitioned_topics_where_that_is_the_rule(tmp_path: Path) -> None:
    settings = {"allowAutoTopicCreationType": "partitioned", "defaultNumPartitions": "3"}
    with StandaloneProcess(tmp_path, environment=settings) as standalone:
        client = pulsar.Client(standalone.service_url, logger=QUIET)
        consumer = client.subscribe("spread", "s")
        assert client.get_topic_partitions("spread") == [
            f"persistent://public/default/spread-partition-{number}" for number in range(3)
        ]
        producer = client.create_producer(
            "spread", message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution, batching_enabled=False
        )
        ids = [producer.send(b"x") for _ in range(6)]
        assert {each.partition() for each in ids} == {0, 1, 2}
        assert {consumer.receive(10_000).message_id().partition() for _ in range(6)} == {0, 1, 2}
        client.close()
        with RawClient(standalone.port) as raw:
            assert partitions_of(raw, "persistent://public/default/spread").partitions == 3
            missing = partitions_of(raw, "persistent://public/default/missing", create=False)
            assert (missing.response, missing.error) == (missing.Failed, pb.TopicNotFound)
            beyond = raw.open_producer("persistent://public/default/spread-partition-3")
            assert beyond.error.error == pb.TopicNotFound
            itself = raw.open_producer("persistent://public/default/spread")
            assert itself.error.error == pb.NotAllowedError


@pytest.mark.feature("F-TOP-14")
def test_without_automatic_creation_an_absent_topic_is_not_found(tmp_path: Path) -> None:
    with StandaloneProcess(tmp_path, environment={"allowAutoTopicCreation": "false"}) as standalone:
        client = pulsar.Client(standalone.service_url, operation_timeout_seconds=5, logger=QUIET)
        with pytest.raises(pulsar.TopicNotFound):
            client.create_producer("absent")
        with pytest.raises(pulsar.TopicNotFound):
            client.subscribe("absent", "s")
        client.close()


@pytest.mark.feature("F-TOP-18", "B-12")
def test_lists_by_mode_pattern_and_hash(client: pulsar.Client, standalone: StandaloneProcess) -> None:
    client.create_producer("list-a")
    client.create_producer("list-b")
    client.create_producer("non-persistent://public/default/list-n")
    with RawClient(standalone.port) as raw:
        stored = list_topics(raw)
        assert {"persistent://public/default/list-a", "persistent://public/default/list-b"} <= set(stored.topics)
        assert not stored.filtered
        assert stored.topics_hash == hash_of(stored.topics)
        assert list(list_topics(raw, mode=1).topics) == ["non-persistent://public/default/list-n"]
        everything = list_topics(raw, mode=2)
        assert len(everything.topics) == len(stored.topics) + 1
        filtered = list_topics(raw, pattern="public/default/list-[ab]")
        assert list(filtered.topics) == ["persistent://public/default/list-a", "persistent://public/default/list-b"]
        assert (filtered.filtered, filtered.changed) == (True, True)
        same = list_topics(raw, pattern="public/default/list-[ab]", topics_hash=filtered.topics_hash)
        assert (list(same.topics), same.changed) == ([], False)
        nowhere = list_topics(raw, namespace="public/nowhere")
        assert (list(nowhere.topics), nowhere.topics_hash) == ([], hash_of([])), "as the official broker answers"
        long = list_topics(raw, pattern="public/default/list-a" + "|x" * 100)
        assert not long.filtered, "too long for the broker: the client filters"
        assert len(long.topics) == len(stored.topics)


@pytest.mark.feature("B-12")
def test_a_watcher_hears_of_new_topics(client: pulsar.Client, standalone: StandaloneProcess) -> None:
    client.create_producer("watch-1")
    with RawClient(standalone.port) as raw:
        request_id = raw.request_id()
        raw.say(
            Type.WATCH_TOPIC_LIST,
            pb.CommandWatchTopicList(
                request_id=request_id,
                watcher_id=7,
                namespace="public/default",
                topics_pattern="persistent://public/default/watch-.*",
            ),
        )
        started = raw.answer_to(request_id).watchTopicListSuccess
        assert list(started.topic) == ["persistent://public/default/watch-1"]
        assert started.topics_hash == hash_of(started.topic)
        client.create_producer("unwatched")
        client.create_producer("watch-2")
        update = raw.expect(Type.WATCH_TOPIC_UPDATE).watchTopicUpdate
        assert (update.watcher_id, list(update.new_topics), list(update.deleted_topics)) == (
            7,
            ["persistent://public/default/watch-2"],
            [],
        )
        assert update.topics_hash == hash_of([*started.topic, *update.new_topics])
        request_id = raw.request_id()
        raw.say(Type.WATCH_TOPIC_LIST_CLOSE, pb.CommandWatchTopicListClose(request_id=request_id, watcher_id=7))
        assert raw.answer_to(request_id).type == Type.SUCCESS
        client.create_producer("watch-3")
        assert not raw.is_closed_by_broker(), "and nothing more was said"


def test_a_consumer_of_a_pattern_finds_its_topics(client: pulsar.Client) -> None:
    producers = [client.create_producer(f"pattern-{number}") for number in range(3)]
    consumer = client.subscribe(re.compile("persistent://public/default/pattern-.*"), "s")
    for number, producer in enumerate(producers):
        producer.send(b"%d" % number)
    assert {consumer.receive(10_000).data() for _ in range(3)} == {b"0", b"1", b"2"}


@pytest.mark.feature("F-TOP-07", "F-TOP-08")
def test_non_persistent_topics_pass_on_what_comes_and_leave_nothing(tmp_path: Path) -> None:
    topic = "non-persistent://public/default/fleeting"
    with StandaloneProcess(tmp_path) as standalone:
        client = pulsar.Client(standalone.service_url, logger=QUIET)
        producer = client.create_producer(topic)
        producer.send(b"to nobody")
        consumers = [client.subscribe(topic, name) for name in ("a", "b")]
        for number in range(10):
            producer.send(b"%d" % number)
        for consumer in consumers:
            messages = [consumer.receive(10_000) for _ in range(10)]
            assert [message.data() for message in messages] == [b"%d" % number for number in range(10)]
            for message in messages:
                consumer.acknowledge(message)
        with RawClient(standalone.port) as raw:
            assert list(list_topics(raw, mode=0).topics) == []
            assert list(list_topics(raw, mode=1).topics) == [topic]
        client.close()
        standalone.stop()
        standalone.start()
        with RawClient(standalone.port) as raw:
            assert list(list_topics(raw, mode=2).topics) == [], "no trace of it is left"


def test_topics_that_no_one_uses_are_deleted_where_that_is_set(tmp_path: Path, eventually: Eventually) -> None:
    settings = {
        "brokerDeleteInactiveTopicsEnabled": "true",
        "brokerDeleteInactiveTopicsFrequencySeconds": "1",
        "MAGNETAR_BROKER_TOPIC_UPKEEP_INTERVAL_S": "1",
    }
    with StandaloneProcess(tmp_path, environment=settings) as standalone:
        client = pulsar.Client(standalone.service_url, logger=QUIET)
        client.create_producer("idle").close()
        kept = client.create_producer("kept")
        with RawClient(standalone.port) as raw:
            eventually(lambda: list(list_topics(raw).topics) == ["persistent://public/default/kept"])
        kept.send(b"x")
        client.close()
