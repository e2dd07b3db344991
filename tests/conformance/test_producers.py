# SPDX-License-Identifier: Apache-2.0
"""Producers with the official client: names, access modes, sequence ids, and what the broker closes under them."""

import threading
from collections.abc import Generator
from pathlib import Path

import pulsar
import pytest
from pulsar import ProducerAccessMode

from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.conformance.raw_client import RawClient, Type
from tests.conftest import Eventually
from tests.processes import StandaloneProcess

QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Generator[StandaloneProcess, None, None]:
    directory: Path = tmp_path_factory.mktemp("producers")
    with StandaloneProcess(
        directory,
        environment={"connectionLivenessCheckTimeoutMillis": "500", "maxProducersPerTopic": "20"},
    ) as process:
        yield process


@pytest.fixture
def client(standalone: StandaloneProcess) -> Generator[pulsar.Client, None, None]:
    client = pulsar.Client(standalone.service_url, operation_timeout_seconds=10, logger=QUIET)
    yield client
    client.close()


@pytest.mark.feature("F-PROD-04", "F-PROD-43")
def test_unnamed_producers_get_different_names(client: pulsar.Client) -> None:
    producers = [client.create_producer("names") for _ in range(5)]
    names = {producer.producer_name() for producer in producers}
    assert len(names) == 5
    assert all(name.startswith("standalone-") for name in names)
    for producer in producers:
        assert producer.send(b"x").ledger_id() >= 0


@pytest.mark.feature("F-PROD-43")
def test_a_name_of_ones_own_is_unique(client: pulsar.Client, standalone: StandaloneProcess) -> None:
    producer = client.create_producer("own-name", producer_name="mine")
    assert producer.producer_name() == "mine"
    other = pulsar.Client(standalone.service_url, logger=QUIET)
    with pytest.raises(pulsar.ProducerBusy):
        other.create_producer("own-name", producer_name="mine")
    producer.close()
    other.create_producer("own-name", producer_name="mine").send(b"x")
    other.close()


def test_the_name_of_a_silent_client_is_free_again(client: pulsar.Client, standalone: StandaloneProcess) -> None:
    with RawClient(standalone.port) as silent:
        assert silent.open_producer("silent", producer_name="mine").type == Type.PRODUCER_SUCCESS
        client.create_producer("silent", producer_name="mine").send(b"x")
        assert silent.is_closed_by_broker()


@pytest.mark.feature("F-PROD-05")
def test_exclusive_keeps_all_others_out(client: pulsar.Client) -> None:
    producer = client.create_producer("exclusive", access_mode=ProducerAccessMode.Exclusive)
    with pytest.raises(pulsar.ProducerFenced):
        client.create_producer("exclusive", access_mode=ProducerAccessMode.Exclusive)
    with pytest.raises(pulsar.ProducerBusy):
        client.create_producer("exclusive")
    producer.send(b"x")
    producer.close()
    shared = client.create_producer("exclusive")
    with pytest.raises(pulsar.ProducerFenced):
        client.create_producer("exclusive", access_mode=ProducerAccessMode.Exclusive)
    shared.send(b"y")


@pytest.mark.feature("F-PROD-06")
def test_waiting_for_exclusive_access_elects_one_leader_after_another(
    client: pulsar.Client, eventually: Eventually
) -> None:
    leaders: list[pulsar.Producer] = []

    def stand() -> None:
        leaders.append(client.create_producer("leader", access_mode=ProducerAccessMode.WaitForExclusive))

    first = client.create_producer("leader", access_mode=ProducerAccessMode.WaitForExclusive)
    candidates = [threading.Thread(target=stand) for _ in range(3)]
    for candidate in candidates:
        candidate.start()
    first.send(b"by the first")
    assert leaders == []
    first.close()
    for number in range(3):
        eventually(lambda number=number: len(leaders) > number)
        assert len(leaders) == number + 1
        leaders[number].send(b"by the next")
        leaders[number].close()
    for candidate in candidates:
        candidate.join()


def test_waiting_is_answered_twice_with_the_same_request_id(standalone: StandaloneProcess) -> None:
    with RawClient(standalone.port) as holder, RawClient(standalone.port) as heir:
        granted = holder.open_producer("wire-wait", producer_access_mode=pb.Exclusive).producer_success
        assert (granted.producer_ready, granted.topic_epoch) == (True, 0)
        waiting = heir.open_producer("wire-wait", producer_access_mode=pb.WaitForExclusive).producer_success
        assert (waiting.producer_ready, waiting.HasField("topic_epoch")) == (False, False)
        holder.close_producer()
        ready = heir.expect(Type.PRODUCER_SUCCESS).producer_success
        assert ready.request_id == waiting.request_id
        assert (ready.producer_ready, ready.topic_epoch) == (True, 1)
        assert ready.producer_name == waiting.producer_name


def test_waiting_can_be_given_up(standalone: StandaloneProcess) -> None:
    with RawClient(standalone.port) as holder, RawClient(standalone.port) as heir, RawClient(standalone.port) as next_:
        holder.open_producer("given-up", producer_access_mode=pb.Exclusive)
        heir.open_producer("given-up", 1, producer_access_mode=pb.WaitForExclusive)
        heir.open_producer("given-up", 2, producer_access_mode=pb.WaitForExclusive)
        next_.open_producer("given-up", producer_access_mode=pb.WaitForExclusive)
        assert heir.close_producer(1).type == Type.SUCCESS
        heir.close()
        holder.close()
        assert next_.expect(Type.PRODUCER_SUCCESS).producer_success.producer_ready


@pytest.mark.feature("B-10", "F-PROD-07")
def test_fencing_takes_over_and_the_displaced_one_stays_out(client: pulsar.Client) -> None:
    old = client.create_producer("fencing", access_mode=ProducerAccessMode.Exclusive)
    old.send(b"old")
    new = client.create_producer("fencing", access_mode=ProducerAccessMode.ExclusiveWithFencing)
    new.send(b"new")
    with pytest.raises(pulsar.ProducerFenced):
        old.send(b"too late")
    new.send(b"still")
    reader = client.create_reader("fencing", pulsar.MessageId.earliest)
    assert [reader.read_next(10_000).data() for _ in range(3)] == [b"old", b"new", b"still"]
    assert not reader.has_message_available()


def test_messages_on_the_way_to_a_producer_that_the_broker_closed_are_dropped(standalone: StandaloneProcess) -> None:
    topic = "stray"
    with RawClient(standalone.port) as old, RawClient(standalone.port) as new:
        old.open_producer(topic, 1, producer_access_mode=pb.Exclusive)
        old.open_producer("elsewhere", 2)
        new.open_producer(topic, producer_access_mode=pb.ExclusiveWithFencing)
        for sequence_id in range(50):
            old.send(1, sequence_id)
        old.send(2, 99)
        assert old.expect(Type.CLOSE_PRODUCER).close_producer.producer_id == 1
        assert old.expect(Type.SEND_RECEIPT).send_receipt.sequence_id == 99, "the connection is as good as before"
        back = old.open_producer(topic, 1, producer_access_mode=pb.Exclusive, topic_epoch=0)
        assert back.error.error == pb.ProducerFenced
        new.send()
        assert new.expect(Type.SEND_RECEIPT).send_receipt.message_id.entryId == 0, "none of them was stored"


@pytest.mark.feature("F-PROD-07")
def test_an_exclusive_producer_goes_on_after_the_broker_was_killed(tmp_path: Path, eventually: Eventually) -> None:
    with StandaloneProcess(tmp_path) as standalone:
        client = pulsar.Client(standalone.service_url, logger=QUIET)
        producer = client.create_producer("again", access_mode=ProducerAccessMode.Exclusive, send_timeout_millis=60_000)
        producer.send(b"before")
        standalone.kill()
        standalone.start()
        producer.send(b"after")
        with pytest.raises(pulsar.ProducerFenced):
            client.create_producer("again", access_mode=ProducerAccessMode.Exclusive)
        client.close()


@pytest.mark.feature("F-PROD-03", "F-PROD-18", "F-TOP-12")
def test_receipts_come_in_order_and_batches_share_an_entry(client: pulsar.Client, eventually: Eventually) -> None:
    producer = client.create_producer(
        "ordered", batching_enabled=True, batching_max_messages=10, batching_max_publish_delay_ms=50
    )
    ids: list[pulsar.MessageId] = []
    for _ in range(100):
        producer.send_async(b"x", lambda result, message_id: ids.append(message_id))
    producer.flush()
    eventually(lambda: len(ids) == 100)
    assert ids == sorted(ids)
    assert len({(each.ledger_id(), each.entry_id()) for each in ids}) < 100
    assert {each.partition() for each in ids} == {-1}


@pytest.mark.feature("F-PROD-39")
@pytest.mark.parametrize("codec", ["LZ4", "ZLib", "ZSTD", "SNAPPY"])
def test_compressed_messages_pass_untouched(client: pulsar.Client, codec: str) -> None:
    consumer = client.subscribe(f"compressed-{codec}", "s")
    producer = client.create_producer(f"compressed-{codec}", compression_type=getattr(pulsar.CompressionType, codec))
    producer.send(b"squeeze me " * 1_000)
    assert consumer.receive(10_000).data() == b"squeeze me " * 1_000


@pytest.mark.feature("F-PROD-21")
def test_a_message_in_chunks_comes_whole(client: pulsar.Client) -> None:
    consumer = client.subscribe("chunks", "s")
    producer = client.create_producer("chunks", chunking_enabled=True)
    payload = bytes(range(256)) * 48 * 1024
    producer.send(payload)
    assert consumer.receive(20_000).data() == payload


def test_an_initial_subscription_is_there_before_the_first_message(
    client: pulsar.Client, standalone: StandaloneProcess
) -> None:
    with RawClient(standalone.port) as raw:
        raw.open_producer("initial", initial_subscription_name="first-reader")
        raw.send()
        raw.expect(Type.SEND_RECEIPT)
        message = client.subscribe("initial", "first-reader").receive(10_000)
        assert message.data() == b"payload"


def test_producers_of_a_topic_are_limited(standalone: StandaloneProcess) -> None:
    with RawClient(standalone.port) as client:
        for number in range(20):
            assert client.open_producer("full", number).type == Type.PRODUCER_SUCCESS
        answer = client.open_producer("full", 20)
        assert answer.error.error == pb.ProducerBusy
        client.close_producer(3)
        assert client.open_producer("full", 20).type == Type.PRODUCER_SUCCESS
