# SPDX-License-Identifier: Apache-2.0
"""Subscriptions with official clients: who gets what by type and priority, limits, chunks, leaving, restarts."""

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest

from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.conformance.exchanges import (
    EXCLUSIVE,
    FAILOVER,
    KEY_SHARED,
    QUIET,
    SHARED,
    WAIT_MS,
    nothing_comes,
    publish,
    take,
)
from tests.conformance.raw import RawClient, Type
from tests.processes import StandaloneProcess


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    limits = {"PULSAR_PREFIX_maxUnackedMessagesPerConsumer": "100"}
    with StandaloneProcess(tmp_path_factory.mktemp("standalone"), environment=limits) as process:
        yield process


Eventually = Callable[..., Any]


@pytest.mark.feature("F-SUB-02", "F-SUB-04", "F-CONS-33")
def test_exclusive_refuses_a_second_consumer_and_nobody_takes_over(client: pulsar.Client, topic: str) -> None:
    first = client.subscribe(topic, "s")
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "s")
    sent = publish(client, topic, 5)
    assert take(first, 2) == sent[:2]
    first.close()
    second = client.subscribe(topic, "s")
    assert take(second, 3) == sent[2:]


def active_name(standalone: StandaloneProcess, topic: str) -> str:
    with urllib.request.urlopen(
        f"{standalone.web_url}/admin/v2/{topic.replace('://', '/')}/stats", timeout=30
    ) as answer:
        return str(json.load(answer)["subscriptions"]["s"]["activeConsumerName"])


@pytest.mark.feature("F-SUB-05", "F-SUB-06", "D-33")
def test_failover_moves_all_that_is_unacknowledged_to_the_next(
    standalone: StandaloneProcess, client: pulsar.Client, topic: str
) -> None:
    consumers = {
        name: client.subscribe(topic, "s", consumer_type=FAILOVER, consumer_name=name) for name in ("a", "b", "c")
    }
    active = consumers.pop(active_name(standalone, topic))
    sent = publish(client, topic, 20)
    assert take(active, 5) == sent[:5]
    take(active, 5, ack=False)
    for spare in consumers.values():
        nothing_comes(spare, 100)
    active.close()
    following = consumers.pop(active_name(standalone, topic))
    assert take(following, 15) == sent[5:]
    nothing_comes(next(iter(consumers.values())), 100)


# Whom Apache Pulsar 4.0.8 made active of the consumers alpha, beta and gamma, on topics ring-0, ring-1 and so on.
APACHES_CHOICE = (
    "gamma",
    "gamma",
    "alpha",
    "alpha",
    "gamma",
    "alpha",
    "alpha",
    "alpha",
    "beta",
    "beta",
    "beta",
    "gamma",
)


@pytest.mark.feature("F-SUB-05", "D-33")
def test_the_active_consumer_is_the_one_that_pulsar_chooses_and_all_are_told(standalone: StandaloneProcess) -> None:
    for number, expected in enumerate(APACHES_CHOICE[:4]):
        topic = f"persistent://public/default/ring-{number}"
        told: dict[str, bool] = {}
        with (
            RawClient(standalone.port) as first,
            RawClient(standalone.port) as second,
            RawClient(standalone.port) as third,
        ):
            for client, name in ((first, "alpha"), (second, "beta"), (third, "gamma")):
                client.subscribe(topic, "s", subType=pb.CommandSubscribe.Failover, consumer_name=name)
            assert active_name(standalone, topic) == expected
            for client, name in ((first, "alpha"), (second, "beta"), (third, "gamma")):
                while told.get(name) is not (name == expected):
                    told[name] = client.expect("active_consumer_change").is_active
        assert [name for name, is_active in told.items() if is_active] == [expected]


@pytest.mark.feature("F-SUB-08", "F-SUB-19", "F-SUB-21")
def test_shared_splits_and_other_subscriptions_get_everything(client: pulsar.Client, topic: str) -> None:
    consumers = [client.subscribe(topic, "s", consumer_type=SHARED) for _ in range(3)]
    other = client.subscribe(topic, "other")
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(90):
        producer.send(b"m-%d" % number)
    counts = []
    for consumer in consumers:
        counts.append(len(take(consumer, 30)))
        nothing_comes(consumer, 50)
    assert counts == [30, 30, 30]
    assert len(take(other, 90)) == 90


@pytest.mark.feature("F-SUB-10", "F-CONS-18")
def test_what_a_consumer_held_goes_to_the_survivor_when_it_leaves(client: pulsar.Client, topic: str) -> None:
    leaver = client.subscribe(topic, "s", consumer_type=SHARED)
    sent = publish(client, topic, 50)
    take(leaver, 1, ack=False)
    survivor = client.subscribe(topic, "s", consumer_type=SHARED)
    nothing_comes(survivor, 100)
    leaver.close()
    assert sorted(take(survivor, 50)) == sorted(sent)


@pytest.mark.feature("F-CONS-34", "F-DISP-03")
def test_a_consumer_that_never_acknowledges_gets_no_more_than_its_limit(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=SHARED)
    publish(client, topic, 130)
    messages = [consumer.receive(WAIT_MS) for _ in range(100)]
    nothing_comes(consumer)
    for message in messages[:10]:
        consumer.acknowledge(message)
    take(consumer, 10, ack=False)
    nothing_comes(consumer)


@pytest.mark.feature("F-CONS-09")
def test_a_consumer_without_a_queue_takes_one_at_a_time(client: pulsar.Client, topic: str) -> None:
    slow = client.subscribe(topic, "s", consumer_type=SHARED, receiver_queue_size=0)
    fast = client.subscribe(topic, "s", consumer_type=SHARED)
    publish(client, topic, 10)
    assert len(take(fast, 10)) == 10, "the one without a queue has asked for nothing yet"
    fast.close()
    publish(client, topic, 2)
    assert [slow.receive().data(), slow.receive().data()] == [b"m-0", b"m-1"]


@pytest.mark.feature("F-CONS-37")
def test_batches_larger_than_the_queue_all_arrive(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", receiver_queue_size=10)
    sent = publish(client, topic, 1000, batched=True)
    assert take(consumer, 1000) == sent


@pytest.mark.feature("F-PROD-31", "D-28")
@pytest.mark.parametrize("consumer_type", [EXCLUSIVE, SHARED, KEY_SHARED])
def test_chunked_messages_arrive_whole_with_two_consumers(
    client: pulsar.Client, topic: str, consumer_type: pulsar.ConsumerType
) -> None:
    consumers = [client.subscribe(topic, "s", consumer_type=consumer_type, receiver_queue_size=2)]
    if consumer_type is not EXCLUSIVE:
        consumers.append(client.subscribe(topic, "s", consumer_type=consumer_type, receiver_queue_size=2))
    producer = client.create_producer(topic, chunking_enabled=True, batching_enabled=False)
    sent = [bytes([number]) * (12 * 1024 * 1024) for number in range(3)]
    for data in sent:
        producer.send(data)
    got: list[bytes] = []
    until = time.monotonic() + 60
    while len(got) < len(sent):
        assert time.monotonic() < until, f"{len(got)} of {len(sent)} arrived"
        for consumer in consumers:
            try:
                message = consumer.receive(200)
            except pulsar.Timeout:
                continue
            got.append(message.data())
            consumer.acknowledge(message)
    assert sorted(got) == sent


def test_unsubscribing_forgets_the_place(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    sent = publish(client, topic, 3)
    take(consumer, 3)
    consumer.unsubscribe()
    again = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    assert take(again, 3) == sent


def test_unsubscribing_is_refused_while_others_are_connected_unless_forced(
    standalone: StandaloneProcess, topic: str
) -> None:
    shared = pb.CommandSubscribe.Shared
    with RawClient(standalone.port) as one, RawClient(standalone.port) as other:
        one.subscribe(topic, "s", subType=shared)
        other.subscribe(topic, "s", subType=shared)
        one.send(Type.UNSUBSCRIBE, pb.CommandUnsubscribe(consumer_id=1, request_id=7))
        assert one.expect("error").error == pb.MetadataError
        one.send(Type.UNSUBSCRIBE, pb.CommandUnsubscribe(consumer_id=1, request_id=8, force=True))
        assert one.expect("success").request_id == 8
        assert other.expect("close_consumer").consumer_id == 1


@pytest.mark.feature("F-DISP-02", "F-CONS-01")
def test_permits_are_kept_to_the_message(standalone: StandaloneProcess, client: pulsar.Client, topic: str) -> None:
    with RawClient(standalone.port) as raw:
        raw.subscribe(topic, "s")
        raw.flow(10)
        publish(client, topic, 30)
        assert [raw.expect_message()[0].message_id.entryId for _ in range(10)] == list(range(10))
        raw.quiet()
        raw.flow(1)
        assert raw.expect_message()[0].message_id.entryId == 10
        raw.quiet()


@pytest.mark.feature("F-SUB-09", "F-CONS-31")
def test_a_lower_priority_gets_messages_only_without_permits_above(
    standalone: StandaloneProcess, client: pulsar.Client, topic: str
) -> None:
    shared = pb.CommandSubscribe.Shared
    with RawClient(standalone.port) as first, RawClient(standalone.port) as second:
        second.subscribe(topic, "s", subType=shared, priority_level=1)
        second.flow(100)
        first.subscribe(topic, "s", subType=shared, priority_level=0)
        first.flow(5)
        second.quiet()
        first.quiet()
        publish(client, topic, 8)
        assert [first.expect_message()[0].message_id.entryId for _ in range(5)] == [0, 1, 2, 3, 4]
        assert [second.expect_message()[0].message_id.entryId for _ in range(3)] == [5, 6, 7]


@pytest.mark.feature("F-CONS-30")
def test_consumer_stats(standalone: StandaloneProcess, client: pulsar.Client, topic: str) -> None:
    with RawClient(standalone.port) as raw:
        raw.subscribe(topic, "s", subType=pb.CommandSubscribe.Shared, consumer_name="me")
        raw.flow(10)
        publish(client, topic, 3)
        for _ in range(3):
            raw.expect_message()
        raw.send(Type.CONSUMER_STATS, pb.CommandConsumerStats(request_id=4, consumer_id=1))
        stats = raw.expect("consumerStatsResponse")
        assert (stats.request_id, stats.consumerName, stats.type) == (4, "me", "Shared")
        assert (stats.availablePermits, stats.unackedMessages, stats.msgBacklog) == (7, 3, 3)
        assert stats.msgRateOut > 0
        raw.send(Type.CONSUMER_STATS, pb.CommandConsumerStats(request_id=5, consumer_id=9))
        assert raw.expect("consumerStatsResponse").error_code == pb.ConsumerNotFound


@pytest.mark.feature("F-CONS-32", "F-CUR-03", "F-CONS-06")
def test_after_kill_9_consumers_go_on_and_acknowledged_messages_stay_so(
    tmp_path: Path, topic: str, eventually: Eventually
) -> None:
    with StandaloneProcess(tmp_path) as process:
        client = pulsar.Client(process.service_url, logger=QUIET)
        consumer = client.subscribe(topic, "s", consumer_type=SHARED)
        sent = publish(client, topic, 100)
        first = take(consumer, 40)
        client.close()
        process.stop()
        process.start()
        client = pulsar.Client(process.service_url, logger=QUIET)
        consumer = client.subscribe(topic, "s", consumer_type=SHARED)
        second = take(consumer, 60, ack=False)
        assert sorted(first + second) == sorted(sent)
        process.kill()
        process.start()
        assert len(set(take(consumer, 60))) >= 1, "the official client reconnects and is served"
        client.close()
