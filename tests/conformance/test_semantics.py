# SPDX-License-Identifier: Apache-2.0
"""What subscriptions, topics and policies mean, seen from both sides: the official client and administration."""

import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pulsar
import pytest

from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.conformance.raw_client import RawClient, Type
from tests.conftest import Eventually
from tests.processes import StandaloneProcess

SHARED, KEY_SHARED = pulsar.ConsumerType.Shared, pulsar.ConsumerType.KeyShared
EXCLUSIVE = pulsar.ConsumerType.Exclusive
EARLIEST = pulsar.InitialPosition.Earliest
WAIT_MS = 10_000
LIMITS = {
    "maxSameAddressProducersPerTopic": "3",
    "maxSameAddressConsumersPerTopic": "12",
    "brokerMaxConnectionsPerIp": "40",
    "maxTenants": "5",
    "maxNamespacesPerTenant": "3",
    "managedLedgerMaxEntriesPerLedger": "20",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
}

Call = Callable[..., Any]


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    directory: Path = tmp_path_factory.mktemp("semantics")
    with StandaloneProcess(directory, environment=LIMITS) as process:
        yield process


@pytest.fixture
def admin(standalone: StandaloneProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{standalone.web_url}/admin/v2", timeout=30) as admin:
        yield admin


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


def path_of(name: str) -> str:
    return f"/persistent/public/default/{name}"


def asked(admin: httpx.Client, path: str) -> Any:
    answer = admin.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def told(admin: httpx.Client, method: str, path: str, body: object = None) -> None:
    answer = admin.request(method, path, json=body)
    assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"


def publish(client: pulsar.Client, topic: str, count: int, **options: Any) -> list[pulsar.MessageId]:
    producer = client.create_producer(topic, batching_enabled=False, **options)
    ids = [producer.send(b"%d" % number) for number in range(count)]
    producer.close()
    return ids


@pytest.mark.feature("F-SUB-01", "F-RET-10")
def test_a_subscription_is_a_cursor_and_deleting_it_frees_no_data(
    client: pulsar.Client, admin: httpx.Client, name: str, eventually: Eventually
) -> None:
    told(admin, "PUT", path_of(name))
    told(admin, "POST", f"{path_of(name)}/retention", {"retentionTimeInMinutes": 60, "retentionSizeInMB": 100})
    consumer = client.subscribe(name, "s")
    publish(client, name, 50)
    for _ in range(50):
        consumer.acknowledge_cumulative(consumer.receive(WAIT_MS))
    eventually(lambda: asked(admin, f"{path_of(name)}/stats")["subscriptions"]["s"]["msgBacklog"] == 0)
    assert asked(admin, f"{path_of(name)}/stats")["storageSize"] > 0, "kept by retention"
    # A roll takes its time, and messages go on into the full ledger meanwhile.
    eventually(lambda: len(asked(admin, f"{path_of(name)}/internalStats")["ledgers"]) > 1)
    inside = asked(admin, f"{path_of(name)}/internalStats")
    assert set(inside["cursors"]) == {"s"}
    assert "markDeletePosition" in inside["cursors"]["s"]
    ledgers = [ledger["ledgerId"] for ledger in inside["ledgers"]]
    consumer.unsubscribe()
    after = asked(admin, f"{path_of(name)}/internalStats")
    assert after["cursors"] == {}
    assert [ledger["ledgerId"] for ledger in after["ledgers"]][: len(ledgers)] == ledgers


@pytest.mark.feature("F-SUB-03")
def test_exclusive_on_partitions_keeps_order_and_takes_both_kinds_of_acks(
    client: pulsar.Client, admin: httpx.Client, name: str
) -> None:
    told(admin, "PUT", f"{path_of(name)}/partitions", 3)
    consumer = client.subscribe(name, "s", EXCLUSIVE)
    producer = client.create_producer(name, batching_enabled=False)
    for number in range(30):
        producer.send(b"%d" % number)
    seen: dict[str, list[int]] = {}
    last: dict[str, pulsar.Message] = {}
    for number in range(30):
        message = consumer.receive(WAIT_MS)
        seen.setdefault(message.topic_name(), []).append(int(message.data()))
        last[message.topic_name()] = message
        if number % 2:
            consumer.acknowledge(message)
    assert len(seen) == 3
    assert all(numbers == sorted(numbers) for numbers in seen.values())
    for message in last.values():
        consumer.acknowledge_cumulative(message)
    consumer.close()
    again = client.subscribe(name, "s", EXCLUSIVE)
    with pytest.raises(pulsar.Timeout):
        again.receive(500)
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(name, "s", EXCLUSIVE)


@pytest.mark.feature("F-SUB-20")
def test_a_type_that_is_switched_off_is_refused_at_once(client: pulsar.Client, admin: httpx.Client, name: str) -> None:
    told(admin, "PUT", path_of(name))
    told(admin, "POST", f"{path_of(name)}/subscriptionTypesEnabled", ["Exclusive", "Failover"])

    def is_refused() -> bool:
        try:
            client.subscribe(name, "s", SHARED).close()
        except pulsar.PulsarException:
            return True
        return False

    assert is_refused()
    client.subscribe(name, "s", EXCLUSIVE).close()
    told(admin, "DELETE", f"{path_of(name)}/subscriptionTypesEnabled")
    assert not is_refused()


@pytest.mark.feature("F-TOP-11")
def test_a_topic_without_partitions_is_like_one_partition_but_for_its_index(
    client: pulsar.Client, admin: httpx.Client, name: str
) -> None:
    told(admin, "PUT", path_of(name + "-plain"))
    told(admin, "PUT", f"{path_of(name + '-one')}/partitions", 1)
    seen: list[tuple[Any, ...]] = []
    for topic, index in ((name + "-plain", -1), (name + "-one", 0)):
        consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
        ids = publish(client, topic, 5)
        got = [consumer.receive(WAIT_MS) for _ in range(5)]
        assert {message_id.partition() for message_id in ids} == {index}
        assert {message.message_id().partition() for message in got} == {index}
        consumer.acknowledge_cumulative(got[2])
        consumer.redeliver_unacknowledged_messages()
        left = [consumer.receive(WAIT_MS).data() for _ in range(2)]
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        read = [reader.read_next(WAIT_MS).data() for _ in range(5)]
        entries = [message_id.entry_id() for message_id in ids]
        seen.append(([message.data() for message in got], left, read, entries))
    assert seen[0] == seen[1]
    assert len(client.get_topic_partitions(name + "-one")) == len(client.get_topic_partitions(name + "-plain")) == 1


@pytest.mark.feature("F-TOP-19")
def test_a_subscription_made_on_a_partitioned_topic_is_on_every_partition(
    client: pulsar.Client, admin: httpx.Client, name: str
) -> None:
    told(admin, "PUT", f"{path_of(name)}/partitions", 4)
    told(admin, "PUT", f"{path_of(name)}/subscription/group")
    stats = asked(admin, f"{path_of(name)}/partitioned-stats?perPartition=true")
    assert len(stats["partitions"]) == 4
    assert all("group" in partition["subscriptions"] for partition in stats["partitions"].values())
    producer = client.create_producer(name)
    stats = asked(admin, f"{path_of(name)}/partitioned-stats?perPartition=true")
    assert [len(partition["publishers"]) for partition in stats["partitions"].values()] == [1, 1, 1, 1]
    producer.close()


@pytest.mark.feature("F-RDR-05")
def test_the_broker_knows_how_far_behind_a_reader_is(
    client: pulsar.Client, admin: httpx.Client, name: str, eventually: Eventually
) -> None:
    publish(client, name, 10)
    reader = client.create_reader(name, pulsar.MessageId.earliest, receiver_queue_size=1, reader_name="r")

    def backlog() -> int:
        subscriptions = asked(admin, f"{path_of(name)}/stats")["subscriptions"]
        assert len(subscriptions) == 1
        (only,) = subscriptions.values()
        assert only["isDurable"] is False
        return int(only["msgBacklog"])

    assert backlog() == 10
    for _ in range(6):
        reader.read_next(WAIT_MS)
    eventually(lambda: backlog() <= 4)
    reader.close()


@pytest.mark.feature("F-PLAT-10", "F-SUB-08")
def test_ten_consumers_share_one_partition(client: pulsar.Client, name: str) -> None:
    consumers = [client.subscribe(name, "s", SHARED, receiver_queue_size=2) for _ in range(10)]
    publish(client, name, 100)
    counts: Counter[int] = Counter()
    for number, consumer in enumerate(consumers):
        consumer.acknowledge(consumer.receive(WAIT_MS))
        counts[number] += 1
    assert len(counts) == 10, "every one of them got something"


@pytest.mark.feature("F-CMP-09")
def test_compaction_reads_through_a_cursor_of_its_own(
    client: pulsar.Client, admin: httpx.Client, name: str, eventually: Eventually
) -> None:
    producer = client.create_producer(name, batching_enabled=False)
    for number in range(15):
        producer.send(b"%d" % number, partition_key=f"k{number % 2}")
    told(admin, "PUT", f"{path_of(name)}/compaction")
    eventually(lambda: asked(admin, f"{path_of(name)}/compaction")["status"] == "SUCCESS")
    inside = asked(admin, f"{path_of(name)}/internalStats")
    assert set(inside["cursors"]) == {"__compaction"}
    assert inside["cursors"]["__compaction"]["markDeletePosition"] == inside["lastConfirmedEntry"]
    assert asked(admin, f"{path_of(name)}/stats")["subscriptions"] == {}, "and is no user's subscription"


@pytest.mark.feature("B-02")
def test_hashes_that_drain_are_shown_with_their_consumer(
    client: pulsar.Client, admin: httpx.Client, name: str, eventually: Eventually
) -> None:
    first = client.subscribe(name, "s", KEY_SHARED, consumer_name="first")
    producer = client.create_producer(name, batching_enabled=False)
    for number in range(40):
        producer.send(b"%d" % number, partition_key=f"k{number}")
    held = [first.receive(WAIT_MS) for _ in range(40)]
    second = client.subscribe(name, "s", KEY_SHARED, consumer_name="second")

    def consumers() -> dict[str, Any]:
        shown = asked(admin, f"{path_of(name)}/stats")["subscriptions"]["s"]["consumers"]
        return {consumer["consumerName"]: consumer for consumer in shown}

    before = consumers()
    moved = before["first"]["drainingHashesCount"]
    assert 0 < moved < 40
    assert before["first"]["drainingHashesUnackedMessages"] >= moved
    assert len(before["first"]["drainingHashes"]) == moved
    assert before["second"]["drainingHashes"] == []
    covered = sorted(
        tuple(int(part) for part in text.strip("[]").split(","))
        for consumer in before.values()
        for text in consumer["keyHashRanges"]
    )
    assert covered[0][0] == 0
    assert covered[-1][1] == 65_535
    assert all(left[1] + 1 == right[0] for left, right in pairwise(covered))
    for number in range(40):
        producer.send(b"again-%d" % number, partition_key=f"k{number}")
    eventually(lambda: any(each["blockedAttempts"] > 0 for each in consumers()["first"]["drainingHashes"]))
    for message in held:
        first.acknowledge(message)
    eventually(lambda: consumers()["first"]["drainingHashesCount"] == 0)
    assert consumers()["first"]["drainingHashesClearedTotal"] == moved
    assert second.receive(WAIT_MS).data().startswith(b"again")


@pytest.mark.feature("B-08")
def test_one_address_gets_so_many_producers_and_consumers_of_a_topic(client: pulsar.Client, name: str) -> None:
    producers = [client.create_producer(name) for _ in range(3)]
    with pytest.raises(pulsar.PulsarException, match="ProducerBusy"):
        client.create_producer(name)
    producers.pop().close()
    producers.append(client.create_producer(name))
    consumers = [client.subscribe(name, f"s{number}") for number in range(12)]
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(name, "one-more")
    consumers.pop().close()
    client.subscribe(name, "one-more")


@pytest.mark.feature("B-08")
def test_one_address_gets_so_many_connections(standalone: StandaloneProcess) -> None:
    """F141: one address cannot take every place."""
    kept: list[RawClient] = []

    def one_more() -> bool:
        try:
            raw = RawClient(standalone.port, connect=False)
            kept.append(raw)
            raw.connect()
        except (OSError, AssertionError, EOFError):
            return False
        return True

    assert not all(one_more() for _ in range(45))
    assert 30 <= len(kept) <= 41
    for raw in kept:
        raw.close()


@pytest.mark.feature("F-DISP-16")
def test_data_and_control_are_served_by_listeners_of_their_own(standalone: StandaloneProcess) -> None:
    with socket.create_connection(("127.0.0.1", standalone.port), timeout=10) as raw:
        raw.sendall(b"GET /admin/v2/clusters HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"HTTP" not in _rest(raw)
    answer = httpx.get(f"{standalone.web_url}/admin/v2/clusters", timeout=10)
    assert answer.status_code == 200
    with socket.create_connection(("127.0.0.1", standalone.http_port), timeout=10) as raw:
        connect = pb.CommandConnect(client_version="raw", protocol_version=21)
        raw.sendall(pb.BaseCommand(type=Type.CONNECT, connect=connect).SerializeToString() + b"\r\n\r\n")
        assert b"HTTP/1.1 400" in _rest(raw)


def _rest(raw: socket.socket) -> bytes:
    found = b""
    while part := raw.recv(4096):
        found += part
    return found


@pytest.mark.feature("F-TOP-06", "F-RET-10")
def test_policies_set_over_http_hold_for_the_topics_that_are_loaded(
    client: pulsar.Client, admin: httpx.Client, name: str, eventually: Eventually
) -> None:
    """TTL, quota and retention: each changes what the same loaded topic does next."""
    consumer = client.subscribe(name, "s")
    producer = client.create_producer(name, batching_enabled=False)
    for _ in range(3):
        producer.send(b"x" * 1000)
    quota = {"limitSize": 1000, "limitTime": -1, "policy": "producer_exception"}
    told(admin, "POST", f"{path_of(name)}/backlogQuota?backlogQuotaType=destination_storage", quota)

    def is_held() -> bool:
        try:
            client.create_producer(name).close()
        except pulsar.ProducerBlockedQuotaExceededException:
            return True
        return False

    eventually(is_held)
    told(admin, "DELETE", f"{path_of(name)}/backlogQuota?backlogQuotaType=destination_storage")
    eventually(lambda: not is_held())
    told(admin, "POST", f"{path_of(name)}/retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
    for _ in range(3):
        consumer.acknowledge(consumer.receive(WAIT_MS))
    eventually(lambda: asked(admin, f"{path_of(name)}/stats")["subscriptions"]["s"]["msgBacklog"] == 0)


@pytest.mark.feature("F-TOP-06", "B-06")
def test_a_producer_that_offers_twice_its_rate_is_held_to_it(
    client: pulsar.Client, admin: httpx.Client, name: str
) -> None:
    told(admin, "PUT", path_of(name))
    told(admin, "POST", f"{path_of(name)}/publishRate", {"publishThrottlingRateInMsg": 50})
    producer = client.create_producer(name, batching_enabled=False, max_pending_messages=1000)
    done = threading.Semaphore(0)
    for _ in range(200):
        producer.send_async(b"x" * 20_000, lambda *_: done.release())
    for _ in range(50):
        assert done.acquire(timeout=30)
    # Of 200 offered at once, 50 pass as the bucket is full, and what was read with them; the others wait.
    assert asked(admin, f"{path_of(name)}/stats")["msgInCounter"] < 200
    producer.flush()
    assert asked(admin, f"{path_of(name)}/stats")["msgInCounter"] == 200


@pytest.mark.feature("F-RET-10")
def test_the_backlog_in_messages_is_exact_with_batches_holes_and_parts_of_them(
    standalone: StandaloneProcess, client: pulsar.Client, admin: httpx.Client, name: str, eventually: Eventually
) -> None:
    """`msgBacklog` counts entries, as Pulsar's does; `backlogMessages` counts messages."""
    consumer = client.subscribe(name, "s", SHARED, batch_index_ack_enabled=True)
    producer = client.create_producer(name, batching_enabled=True, batching_max_publish_delay_ms=50)
    for number in range(40):
        producer.send_async(b"%d" % number, None)
    producer.flush()
    for number in range(10):
        producer.send(b"single-%d" % number)
    got = [consumer.receive(WAIT_MS) for _ in range(50)]
    for message in got[5:17] + got[44:]:
        consumer.acknowledge(message)

    def backlog() -> tuple[int, int]:
        stats = asked(admin, f"{path_of(name)}/stats")["subscriptions"]["s"]
        return stats["backlogMessages"], stats["msgBacklog"]

    eventually(lambda: backlog()[0] == 32)
    assert backlog()[1] < 32, "batches are one entry each"
    told(admin, "PUT", f"{path_of(name)}/unload")
    assert backlog()[0] == 32, "saved with the cursor"
    eventually(consumer.is_connected)
    consumer.seek(pulsar.MessageId.earliest)
    eventually(lambda: backlog()[0] == 50)


@pytest.mark.feature("B-08")
def test_so_many_tenants_namespaces_and_topics_and_no_more(admin: httpx.Client) -> None:
    info = {"adminRoles": [], "allowedClusters": ["standalone"]}

    def until_refused(make: Callable[[int], httpx.Response]) -> tuple[int, int]:
        for number in range(10):
            answer = make(number)
            if not answer.is_success:
                return number, answer.status_code
        raise AssertionError("never refused")

    made, status = until_refused(lambda number: admin.put(f"/tenants/limit-{number}", json=info))
    assert (status, len(asked(admin, "/tenants"))) == (412, 5)
    made, status = until_refused(lambda number: admin.put(f"/namespaces/limit-0/n{number}"))
    assert (made, status) == (3, 412)
    told(admin, "POST", "/namespaces/limit-0/n0/maxTopicsPerNamespace", 2)
    made, status = until_refused(lambda number: admin.put(f"/persistent/limit-0/n0/t{number}"))
    assert (made, status) == (2, 412)


def _subscribe(raw: RawClient, topic: str, consumer: str, consumer_id: int) -> pb.BaseCommand:
    request_id = raw.request_id()
    subscribe = pb.CommandSubscribe(
        topic=topic,
        subscription="s",
        subType=pb.CommandSubscribe.Shared,
        consumer_id=consumer_id,
        consumer_name=consumer,
        request_id=request_id,
        initialPosition=pb.CommandSubscribe.Earliest,
    )
    raw.say(Type.SUBSCRIBE, subscribe)
    return raw.answer_to(request_id)


def _leave(raw: RawClient, consumer_id: int) -> None:
    request_id = raw.request_id()
    raw.say(Type.CLOSE_CONSUMER, pb.CommandCloseConsumer(consumer_id=consumer_id, request_id=request_id))
    assert raw.answer_to(request_id).type == Type.SUCCESS


def test_a_consumer_that_subscribes_too_often_is_refused_and_no_other(
    standalone: StandaloneProcess, admin: httpx.Client, name: str
) -> None:
    topic = f"persistent://public/default/{name}"
    told(admin, "PUT", path_of(name))
    rate = {"subscribeThrottlingRatePerConsumer": 2, "ratePeriodInSecond": 36_000}
    told(admin, "POST", f"{path_of(name)}/subscribeRate", rate)
    with RawClient(standalone.port) as raw:
        for _ in range(2):
            assert _subscribe(raw, topic, "restless", 1).type == Type.SUCCESS
            _leave(raw, 1)
        refused = _subscribe(raw, topic, "restless", 1)
        assert refused.type == Type.ERROR
        assert refused.error.error == pb.NotAllowedError
        assert "rate" in refused.error.message
        assert _subscribe(raw, topic, "calm", 2).type == Type.SUCCESS


def test_the_end_of_a_terminated_topic_is_told_when_the_last_message_is_acknowledged(
    standalone: StandaloneProcess, client: pulsar.Client, admin: httpx.Client, name: str
) -> None:
    topic = f"persistent://public/default/{name}"
    publish(client, topic, 1)
    told(admin, "POST", f"{path_of(name)}/terminate")
    with RawClient(standalone.port) as raw:
        assert _subscribe(raw, topic, "c", 7).type == Type.SUCCESS
        raw.say(Type.FLOW, pb.CommandFlow(consumer_id=7, messagePermits=10))
        got = raw.expect(Type.MESSAGE).message
        ack = pb.CommandAck(consumer_id=7, ack_type=pb.CommandAck.Individual, message_id=[got.message_id])
        raw.say(Type.ACK, ack)
        assert raw.expect(Type.REACHED_END_OF_TOPIC).reachedEndOfTopic.consumer_id == 7
        # One who comes later has nothing to wait for.
        assert _subscribe(raw, topic, "late", 8).type == Type.SUCCESS
        raw.say(Type.FLOW, pb.CommandFlow(consumer_id=8, messagePermits=10))
        assert raw.expect(Type.REACHED_END_OF_TOPIC).reachedEndOfTopic.consumer_id == 8
