# SPDX-License-Identifier: Apache-2.0
"""Subscriptions of every type, as the official client and the bare protocol see them."""

import json
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest

from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.conformance.raw import RawClient, Type
from tests.processes import StandaloneProcess

QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
SHARED, KEY_SHARED = pulsar.ConsumerType.Shared, pulsar.ConsumerType.KeyShared
EXCLUSIVE, FAILOVER = pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Failover
WAIT_MS = 10_000
Eventually = Callable[..., Any]


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    limits = {"PULSAR_PREFIX_maxUnackedMessagesPerConsumer": "100"}
    with StandaloneProcess(tmp_path_factory.mktemp("standalone"), environment=limits) as process:
        yield process


@pytest.fixture
def client(standalone: StandaloneProcess) -> Iterator[pulsar.Client]:
    client = pulsar.Client(standalone.service_url, logger=QUIET)
    yield client
    client.close()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return f"persistent://public/default/{request.node.name.replace('[', '-').replace(']', '')}"


def publish(client: pulsar.Client, topic: str, count: int, *, keys: int = 0, batched: bool = False) -> list[bytes]:
    producer = client.create_producer(topic, batching_enabled=batched, batching_max_publish_delay_ms=100)
    sent = [b"m-%d" % number for number in range(count)]
    for number, data in enumerate(sent):
        extra = {"partition_key": f"k{number % keys}"} if keys else {}
        producer.send_async(data, None, **extra)
    producer.flush()
    producer.close()
    return sent


def take(consumer: pulsar.Consumer, count: int, *, ack: bool = True) -> list[bytes]:
    taken = []
    for _ in range(count):
        message = consumer.receive(WAIT_MS)
        taken.append(message.data())
        if ack:
            consumer.acknowledge(message)
    return taken


def nothing_comes(consumer: pulsar.Consumer, within_ms: int = 300) -> None:
    with pytest.raises(pulsar.Timeout):
        consumer.receive(within_ms)


# --- Exclusive and Failover ---------------------------------------------------------------------


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


@pytest.mark.feature("F-CONS-11", "F-CUR-02", "F-CUR-03")
def test_what_is_acknowledged_alone_does_not_come_back(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    sent = publish(client, topic, 3)
    messages = [consumer.receive(WAIT_MS) for _ in sent]
    consumer.acknowledge(messages[1])
    consumer.close()
    again = client.subscribe(topic, "s")
    assert take(again, 2) == [sent[0], sent[2]]
    again.close()
    nothing_comes(client.subscribe(topic, "s"))


@pytest.mark.feature("F-CONS-12")
def test_a_cumulative_ack_covers_all_before_it(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    sent = publish(client, topic, 10)
    messages = [consumer.receive(WAIT_MS) for _ in sent]
    consumer.acknowledge_cumulative(messages[6])
    consumer.close()
    assert take(client.subscribe(topic, "s"), 3) == sent[7:]


def test_nacks_on_an_exclusive_subscription_come_back_in_order(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", negative_ack_redelivery_delay_ms=200)
    sent = publish(client, topic, 10)
    for _ in sent:
        consumer.negative_acknowledge(consumer.receive(WAIT_MS))
    assert take(consumer, 10) == sent
    nothing_comes(consumer)


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


# --- Shared ---------------------------------------------------------------------------------------


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


@pytest.mark.feature("F-CONS-16", "F-CONS-19")
def test_each_nack_raises_the_redelivery_count(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=SHARED, negative_ack_redelivery_delay_ms=100)
    publish(client, topic, 1)
    counts = []
    for _ in range(4):
        message = consumer.receive(WAIT_MS)
        counts.append(message.redelivery_count())
        consumer.negative_acknowledge(message)
    assert counts == [0, 1, 2, 3]
    consumer.acknowledge(consumer.receive(WAIT_MS))
    nothing_comes(consumer)


@pytest.mark.feature("F-CONS-17")
def test_messages_that_time_out_come_again(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=SHARED, unacked_messages_timeout_ms=10_000)
    publish(client, topic, 1)
    assert consumer.receive(WAIT_MS).redelivery_count() == 0
    again = consumer.receive(20_000)
    assert again.redelivery_count() >= 1
    consumer.acknowledge(again)


@pytest.mark.feature("F-CONS-24", "F-CONS-25")
def test_a_message_that_fails_too_often_goes_to_the_dead_letter_topic(client: pulsar.Client, topic: str) -> None:
    letters = client.subscribe(f"{topic}-s-DLQ", "letters")
    policy = pulsar.ConsumerDeadLetterPolicy(2)
    consumer = client.subscribe(
        topic, "s", consumer_type=SHARED, negative_ack_redelivery_delay_ms=100, dead_letter_policy=policy
    )
    publish(client, topic, 1)
    for _ in range(3):
        consumer.negative_acknowledge(consumer.receive(WAIT_MS))
    assert letters.receive(WAIT_MS).data() == b"m-0"
    nothing_comes(consumer)


@pytest.mark.feature("F-CONS-15", "F-CUR-06")
@pytest.mark.parametrize("consumer_type", [EXCLUSIVE, SHARED])
def test_of_a_batch_only_the_unacknowledged_indexes_come_back(
    client: pulsar.Client, topic: str, consumer_type: pulsar.ConsumerType
) -> None:
    def subscribe() -> pulsar.Consumer:
        return client.subscribe(topic, "s", consumer_type=consumer_type, batch_index_ack_enabled=True)

    consumer = subscribe()
    sent = publish(client, topic, 5, batched=True)
    for number, message in enumerate([consumer.receive(WAIT_MS) for _ in sent]):
        if number in (1, 3):
            consumer.acknowledge(message)
    consumer.close()
    assert take(subscribe(), 3) == [sent[0], sent[2], sent[4]]


@pytest.mark.feature("F-CONS-14")
def test_without_index_acks_a_batch_comes_back_whole(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=SHARED)
    sent = publish(client, topic, 5, batched=True)
    take(consumer, 4)
    consumer.close()
    consumer = client.subscribe(topic, "s", consumer_type=SHARED)
    assert take(consumer, 5) == sent
    consumer.close()
    nothing_comes(client.subscribe(topic, "s", consumer_type=SHARED))


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


# --- Key_Shared -------------------------------------------------------------------------------------


@pytest.mark.feature("F-SUB-13", "F-SUB-15")
def test_every_key_has_one_consumer_and_keeps_its_order(client: pulsar.Client, topic: str) -> None:
    consumers = [client.subscribe(topic, "s", consumer_type=KEY_SHARED) for _ in range(3)]
    publish(client, topic, 600, keys=30)
    owners: dict[str, set[int]] = defaultdict(set)
    order: dict[str, list[int]] = defaultdict(list)
    received = 0
    while received < 600:
        for index, consumer in enumerate(consumers):
            try:
                message = consumer.receive(50)
            except pulsar.Timeout:
                continue
            received += 1
            owners[message.partition_key()].add(index)
            order[message.partition_key()].append(int(message.data()[2:]))
            consumer.acknowledge(message)
    assert all(len(holders) == 1 for holders in owners.values())
    assert all(numbers == sorted(numbers) for numbers in order.values())
    assert len({index for holders in owners.values() for index in holders}) == 3


@pytest.mark.feature("F-PRB-07", "F-SUB-18")
def test_keys_that_a_slow_consumer_does_not_hold_flow_past_it(client: pulsar.Client, topic: str) -> None:
    slow = client.subscribe(topic, "s", consumer_type=KEY_SHARED)
    publish(client, topic, 20, keys=20)
    held = [slow.receive(WAIT_MS) for _ in range(20)]
    newcomer = client.subscribe(topic, "s", consumer_type=KEY_SHARED)
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(200):
        producer.send_async(b"n-%d" % number, None, partition_key=f"other-{number}")
    producer.flush()
    fresh = newcomer.receive(WAIT_MS)
    assert fresh.data().startswith(b"n-"), "keys that nobody holds go to the newcomer at once"
    newcomer.acknowledge(fresh)
    before = [newcomer.receive(WAIT_MS) for _ in range(20)]
    for number in range(20):
        producer.send(b"o-%d" % number, partition_key=f"k{number}")
    for message in held:
        slow.acknowledge(message)
    for message in before:
        newcomer.acknowledge(message)
    moved: set[bytes] = set()
    while len(moved) < 1:
        message = newcomer.receive(WAIT_MS)
        newcomer.acknowledge(message)
        if message.data().startswith(b"o-"):
            moved.add(message.data())
    assert moved, "once the old holder has acknowledged, its moved keys go on"


@pytest.mark.feature("F-SUB-17")
def test_sticky_consumers_get_their_own_ranges(client: pulsar.Client, topic: str) -> None:
    def sticky(start: int, end: int) -> pulsar.Consumer:
        policy = pulsar.ConsumerKeySharedPolicy(
            key_shared_mode=pulsar.KeySharedMode.Sticky, sticky_ranges=[(start, end)]
        )
        return client.subscribe(topic, "s", consumer_type=KEY_SHARED, key_shared_policy=policy)

    low, high = sticky(0, 30_000), sticky(30_001, 65_535)
    sent = publish(client, topic, 100, keys=100)
    got: list[bytes] = []
    for consumer in (low, high):
        while True:
            try:
                message = consumer.receive(500)
            except pulsar.Timeout:
                break
            got.append(message.data())
            consumer.acknowledge(message)
    assert sorted(got) == sorted(sent)


@pytest.mark.feature("F-SUB-17")
def test_sticky_ranges_that_overlap_are_refused(standalone: StandaloneProcess, topic: str) -> None:
    def meta(start: int, end: int) -> pb.KeySharedMeta:
        return pb.KeySharedMeta(keySharedMode=pb.STICKY, hashRanges=[pb.IntRange(start=start, end=end)])

    with RawClient(standalone.port) as raw:
        key_shared = pb.CommandSubscribe.Key_Shared
        raw.subscribe(topic, "s", 1, subType=key_shared, keySharedMeta=meta(0, 99))
        refusal = raw.subscribe(topic, "s", 2, subType=key_shared, keySharedMeta=meta(99, 120))
        assert refusal.error == pb.ConsumerAssignError
        raw.quiet()


@pytest.mark.feature("F-SUB-14")
def test_a_nacked_key_stays_with_its_consumer(client: pulsar.Client, topic: str) -> None:
    consumers = [
        client.subscribe(topic, "s", consumer_type=KEY_SHARED, negative_ack_redelivery_delay_ms=50) for _ in range(2)
    ]
    publish(client, topic, 1, keys=1)
    holders: list[int] = []
    while len(holders) < 5:
        for index, consumer in enumerate(consumers):
            try:
                message = consumer.receive(50)
            except pulsar.Timeout:
                continue
            holders.append(index)
            consumer.negative_acknowledge(message)
    assert len(set(holders)) == 1


# --- places -----------------------------------------------------------------------------------------


@pytest.mark.feature("F-CONS-27")
def test_a_new_subscription_starts_at_the_end_or_at_the_beginning(client: pulsar.Client, topic: str) -> None:
    sent = publish(client, topic, 3)
    latest = client.subscribe(topic, "latest")
    earliest = client.subscribe(topic, "earliest", initial_position=pulsar.InitialPosition.Earliest)
    assert take(earliest, 3) == sent
    nothing_comes(latest, 200)


@pytest.mark.feature("F-CONS-28", "F-CUR-08", "F-CUR-14")
@pytest.mark.parametrize("inclusive", [False, True])
@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("consumer_type", [EXCLUSIVE, SHARED])
def test_seek_by_id(
    client: pulsar.Client, topic: str, inclusive: bool, batched: bool, consumer_type: pulsar.ConsumerType
) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=consumer_type, start_message_id_inclusive=inclusive)
    sent = publish(client, topic, 50, batched=batched)
    messages = [consumer.receive(WAIT_MS) for _ in sent]
    for message in messages[::2]:
        consumer.acknowledge(message)
    consumer.seek(pulsar.MessageId.earliest)
    assert take(consumer, 50) == sent
    consumer.seek(messages[33].message_id())
    assert take(consumer, 1) == [sent[33 if inclusive else 34]]
    consumer.seek(pulsar.MessageId.latest)
    if not inclusive:
        nothing_comes(consumer, 200)


@pytest.mark.feature("F-CONS-28", "F-CUR-09", "F-RDR-03")
def test_seek_by_time_starts_with_the_first_message_of_that_time(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=SHARED)
    producer = client.create_producer(topic, batching_enabled=False)
    times: list[int] = []
    while len(times) < 20:
        producer.send(b"m-%d" % len(times))
        times.append(consumer.receive(WAIT_MS).publish_timestamp())
        while time.time() * 1000 < times[-1] + 2:
            time.sleep(0.001)
    for wanted in (0, 7, 19):
        consumer.seek(times[wanted])
        assert consumer.receive(WAIT_MS).data() == b"m-%d" % wanted
    consumer.seek(times[7] + 1)
    assert consumer.receive(WAIT_MS).data() == b"m-8"
    consumer.seek(times[19] + 1)
    nothing_comes(consumer, 200)


@pytest.mark.feature("F-RDR-01", "F-RDR-02", "F-CUR-16")
@pytest.mark.parametrize("batched", [False, True])
def test_readers_start_where_they_are_told(client: pulsar.Client, topic: str, batched: bool) -> None:
    sent = publish(client, topic, 20, batched=batched)
    first = client.create_reader(topic, pulsar.MessageId.earliest)
    messages = []
    while first.has_message_available():
        messages.append(first.read_next(WAIT_MS))
    assert [message.data() for message in messages] == sent
    after = client.create_reader(topic, messages[9].message_id())
    assert after.read_next(WAIT_MS).data() == sent[10]
    at = client.create_reader(topic, messages[9].message_id(), start_message_id_inclusive=True)
    assert at.read_next(WAIT_MS).data() == sent[9]
    latest = client.create_reader(topic, pulsar.MessageId.latest)
    assert not latest.has_message_available()
    at.seek(messages[3].message_id())
    assert at.read_next(WAIT_MS).data() == sent[3]
    after.seek(pulsar.MessageId.earliest)
    assert after.read_next(WAIT_MS).data() == sent[0]
    resumed = client.create_reader(topic, pulsar.MessageId.deserialize(messages[4].message_id().serialize()))
    assert resumed.read_next(WAIT_MS).data() == sent[5]


def test_a_reader_may_start_some_time_ago(standalone: StandaloneProcess, client: pulsar.Client, topic: str) -> None:
    publish(client, topic, 3)
    with RawClient(standalone.port) as raw:
        start = pb.MessageIdData(ledgerId=2**63 - 1, entryId=2**63 - 1)
        raw.subscribe(topic, "r", durable=False, start_message_id=start, start_message_rollback_duration_sec=3600)
        raw.flow(9)
        assert [raw.expect_message()[0].message_id.entryId for _ in range(3)] == [0, 1, 2]


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


# --- the bare protocol ------------------------------------------------------------------------------


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


@pytest.mark.feature("B-11")
def test_a_redelivery_of_everything_starts_a_new_epoch(
    standalone: StandaloneProcess, client: pulsar.Client, topic: str
) -> None:
    with RawClient(standalone.port) as raw:
        raw.subscribe(topic, "s", consumer_epoch=0)
        raw.flow(4)
        publish(client, topic, 2)
        assert [raw.expect_message()[0].consumer_epoch for _ in range(2)] == [0, 0]
        again = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=1, consumer_epoch=1)
        raw.send(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, again)
        came = [raw.expect_message()[0] for _ in range(2)]
        assert [(message.message_id.entryId, message.consumer_epoch) for message in came] == [(0, 1), (1, 1)]


@pytest.mark.feature("B-11")
def test_an_ack_with_a_request_id_is_answered(standalone: StandaloneProcess, client: pulsar.Client, topic: str) -> None:
    with RawClient(standalone.port) as raw:
        raw.subscribe(topic, "s")
        raw.flow(1)
        publish(client, topic, 1)
        message_id = raw.expect_message()[0].message_id
        ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=[message_id], request_id=5)
        raw.send(Type.ACK, ack)
        assert raw.expect("ackResponse").request_id == 5
        ack.message_id[0].entryId = 99
        raw.send(Type.ACK, ack)
        assert raw.expect("ackResponse").error == pb.NotAllowedError
        ack.consumer_id = 77
        raw.send(Type.ACK, ack)
        assert raw.expect("ackResponse").error == pb.ConsumerNotFound


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


@pytest.mark.feature("F-SUB-11")
def test_a_cumulative_ack_on_a_shared_subscription_is_refused(
    standalone: StandaloneProcess, client: pulsar.Client, topic: str
) -> None:
    with RawClient(standalone.port) as raw:
        raw.subscribe(topic, "s", subType=pb.CommandSubscribe.Shared)
        raw.flow(1)
        publish(client, topic, 1)
        message_id = raw.expect_message()[0].message_id
        ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Cumulative, message_id=[message_id], request_id=5)
        raw.send(Type.ACK, ack)
        assert raw.expect("ackResponse").error == pb.NotAllowedError


def test_seek_without_a_place_ends_the_connection_and_nobody_elses(
    standalone: StandaloneProcess, client: pulsar.Client, topic: str
) -> None:
    with RawClient(standalone.port) as raw, RawClient(standalone.port) as other:
        raw.subscribe(topic, "s")
        raw.send(Type.SEEK, pb.CommandSeek(consumer_id=1, request_id=3))
        with pytest.raises(ConnectionError):
            raw.receive()
        other.subscribe(topic, "s")
        other.quiet()


# --- restart ----------------------------------------------------------------------------------------


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
