# SPDX-License-Identifier: Apache-2.0
"""A topic that Apache's broker has written opens in ours, and back: messages, acknowledgements, schemas, properties."""

import json
import re
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pulsar
import pytest
from kazoo.client import KazooClient
from pulsar.schema import AvroSchema, Integer, Record, String

from tests.cluster import RoleProcess
from tests.interop.apache import ApacheBookie, configuration, distribution, shell
from tests.interop.apache_broker import CLUSTER, ApacheBroker, initialize_metadata
from tests.processes import free_port

QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
RECEIVE_MS = 240_000


class Reading(Record):  # type: ignore[misc]
    place = String()
    value = Integer(default=0)


class Pair(NamedTuple):
    """Two brokers over one store and the same bookies; one runs at a time."""

    apache: ApacheBroker
    ours: RoleProcess
    # Where ZooKeeper keeps what they share.
    zookeeper: str
    root: str

    def log(self, name: str) -> str:
        return self.apache.log() if name == "apache" else self.ours.log_path.read_text(errors="replace")

    def buckets(self, topic: str, subscription: str) -> list[tuple[int, int]]:
        """The buckets of delayed messages that are on record: the first and the last ledger of each."""
        tree = KazooClient(hosts=self.zookeeper)
        tree.start()
        try:
            record: bytes = tree.get(f"{self.root}/managed-ledgers/public/default/persistent/{topic}/{subscription}")[0]
        finally:
            tree.stop()
            tree.close()
        found = re.findall(rb"#pulsar\.internal\.delayed\.bucket_(\d+)_(\d+)", record)
        return [(int(first), int(last)) for first, last in found]


# Ledgers are short and buckets small, so that delayed messages are stored in them.
SMALL = {
    "managedLedgerMaxEntriesPerLedger": "20",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "delayedDeliveryTrackerFactoryClassName": "org.apache.pulsar.broker.delayed.BucketDelayedDeliveryTrackerFactory",
    "delayedDeliveryMinIndexCountPerBucket": "10",
}


@pytest.fixture(scope="module")
def pair(zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    distribution()
    directory = tmp_path_factory.mktemp("either")
    root = f"/{uuid.uuid4().hex}"
    bookies = f"zk+hierarchical://{zookeeper}{root}/ledgers"
    tree = KazooClient(hosts=zookeeper)
    tree.start()
    tree.ensure_path(root)
    tree.stop()
    tree.close()
    shell(configuration(directory / "shell", zookeeper, zkLedgersRootPath=f"{root}/ledgers"), "initnewcluster")
    store = f"zk:{zookeeper}{root}"
    initialize_metadata(store, bookies)
    with (
        ApacheBookie(directory / "one", zookeeper, zkLedgersRootPath=f"{root}/ledgers"),
        ApacheBookie(directory / "two", zookeeper, zkLedgersRootPath=f"{root}/ledgers"),
    ):
        ports = ["--port", str(free_port()), "--http-port", str(free_port())]
        environment = {
            "clusterName": CLUSTER,
            "brokerDeduplicationEnabled": "true",
            "acknowledgmentAtBatchIndexLevelEnabled": "true",
            **SMALL,
        }
        ours = RoleProcess("broker", directory / "ours", "broker", "--metadata", store, *ports, environment=environment)
        apache = ApacheBroker(directory / "apache", store, bookies, **SMALL)
        yield Pair(apache, ours, zookeeper, root)
        for broker in (apache, ours):
            if broker.is_running:
                broker.kill()


@contextmanager
def _client(url: str) -> Iterator[pulsar.Client]:
    # Longer than the session of a broker that was killed: only then can another one have its topics.
    client = pulsar.Client(url, operation_timeout_seconds=240, logger=QUIET)
    try:
        yield client
    finally:
        client.close()


def _send(client: pulsar.Client, topic: str, numbers: range, **options: object) -> None:
    producer = client.create_producer(topic, producer_name="writer", **options)
    for number in numbers:
        producer.send_async(b"%d" % number, None, sequence_id=number)
    producer.flush()
    producer.close()


def _take(
    client: pulsar.Client,
    topic: str,
    count: int,
    acked: set[int],
    kind: pulsar.ConsumerType = pulsar.ConsumerType.Shared,
) -> list[int]:
    """So many messages of subscription `kept`, as numbers; those whose number is in acked are acknowledged."""
    consumer = client.subscribe(
        topic, "kept", kind, initial_position=pulsar.InitialPosition.Earliest, batch_index_ack_enabled=True
    )
    found = []
    for _ in range(count):
        message = consumer.receive(timeout_millis=RECEIVE_MS)
        number = int(message.data())
        found.append(number)
        if number in acked:
            consumer.acknowledge(message)
    found += _more(consumer)
    consumer.close()
    return found


def _more(consumer: pulsar.Consumer) -> list[int]:
    """What comes beyond what is expected."""
    found: list[int] = []
    while True:
        try:
            found.append(int(consumer.receive(timeout_millis=700).data()))
        except pulsar.Timeout:
            return found


def _is_left(seen: list[int], left: list[int], end: str) -> bool:
    """All that was left, once each. Of a broker that was killed, acks that it had not saved may be left, too."""
    assert len(set(seen)) == len(seen)
    return sorted(seen) == left if end == "stop" else set(left) <= set(seen)


def _read_all(client: pulsar.Client, topic: str, count: int) -> list[int]:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = [int(reader.read_next(timeout_millis=RECEIVE_MS).data()) for _ in range(count)]
    assert not reader.has_message_available()
    reader.close()
    return found


def _asked(web_url: str, path: str, verb: str = "GET", body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{web_url}/admin/v2/{path}", data, method=verb)
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def _backlog(web_url: str, topic: str) -> tuple[int, int | None]:
    """What a broker says of subscription `kept`: the backlog as Pulsar counts it; in messages, if it counts them."""
    stats = _asked(web_url, f"persistent/public/default/{topic}/stats?getPreciseBacklog=true")["subscriptions"]["kept"]
    return stats["msgBacklog"], stats.get("backlogMessages")


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_apaches_topic_opens_in_ours_and_back(pair: Pair, end: str) -> None:
    """Plain messages with holes in the acknowledgements; each broker goes on where the other ended."""
    plain, batched = f"plain-{end}", f"batched-{end}"
    packed = {"batching_enabled": True, "batching_max_messages": 10, "batching_max_publish_delay_ms": 5_000}
    with _client(pair.apache.start()) as client:
        for topic, options in ((plain, {"batching_enabled": False}), (batched, packed)):
            _take(client, topic, 0, set())
            _send(client, topic, range(60), **options)
            # Holes inside the first half, and inside batches.
            assert sorted(_take(client, topic, 60, {n for n in range(30) if n % 3})) == list(range(60))
        counted = {topic: _backlog(pair.apache.web_url, topic) for topic in (plain, batched)}
        assert counted == {plain: (40, None), batched: (6, None)}, "entries, not messages"
    getattr(pair.apache, end)()
    left = [n for n in range(60) if n >= 30 or n % 3 == 0]
    said = pair.ours.start()
    with _client(said["serviceUrl"]) as client:
        if end == "stop":
            assert _backlog(said["webServiceUrl"], plain) == (40, 40)
            assert _backlog(said["webServiceUrl"], batched) == (6, 40), "the messages beside them are exact"
        for topic, options in ((plain, {"batching_enabled": False}), (batched, packed)):
            assert _read_all(client, topic, 60) == list(range(60))
            seen = _take(client, topic, len(left), {0, 3, 40, 41, 59})
            assert _is_left(seen, left, end)
            _send(client, topic, range(50, 90), **options)
            assert _read_all(client, topic, 90) == list(range(90)), "sequences up to 59 are known to our broker too"
    getattr(pair.ours, end)()
    with _client(pair.apache.start()) as client:
        for topic, options in ((plain, {"batching_enabled": False}), (batched, packed)):
            assert _read_all(client, topic, 90) == list(range(90))
            _send(client, topic, range(80, 100), **options)
            assert _read_all(client, topic, 100) == list(range(100)), "Apache's broker knows what ours has stored"
            expected = [n for n in [*left, *range(60, 100)] if n not in {0, 3, 40, 41, 59}]
            assert _is_left(_take(client, topic, len(expected), set()), expected, end)
    pair.apache.stop()


SOON_MS = 20_000
LATER_MS = 24 * 3_600_000
# How each broker says how many delayed entries the buckets of a subscription have given it.
READ = {
    "apache": r"{topic} / kept\] Recover delayed message index bucket snapshot finish, buckets: \d+, "
    r"numberDelayedMessages: (\d+)",
    "ours": r"{topic}: (?:\d+) of (?:\d+) buckets of kept are read: (\d+) delayed entries",
}


@pytest.mark.feature("D-22", "F-DLY-06")
@pytest.mark.parametrize("writer", ["apache", "ours"])
def test_delayed_messages_that_one_stored_in_buckets_are_read_from_them_by_the_other(
    pair: Pair, writer: str, eventually: Callable[..., Any]
) -> None:
    """Half of the messages are due soon and come once, the others tomorrow: these the other broker has from buckets."""
    topic = f"delayed-{writer}"
    starts: dict[str, Callable[[], str]] = {
        "apache": pair.apache.start,
        "ours": lambda: str(pair.ours.start()["serviceUrl"]),
    }
    url = starts.pop(writer)()
    soon_ms = int(time.time() * 1000) + SOON_MS
    ledgers: list[int] = []
    with _client(url) as client:
        consumer = client.subscribe(topic, "kept", pulsar.ConsumerType.Shared)
        producer = client.create_producer(topic, batching_enabled=False)
        for number in range(100):
            due_ms = soon_ms + (LATER_MS if number % 2 else 0) + number % 7
            ledgers.append(producer.send(b"%d" % number, deliver_at=due_ms).ledger_id())
        eventually(lambda: len(pair.buckets(topic, "kept")) > 1)
        consumer.close()
    (pair.apache if writer == "apache" else pair.ours).stop()
    (reader,) = starts
    in_buckets = [
        number
        for number, ledger_id in enumerate(ledgers)
        if any(first <= ledger_id <= last for first, last in pair.buckets(topic, "kept"))
    ]
    with _client(starts[reader]()) as client:
        consumer = client.subscribe(topic, "kept", pulsar.ConsumerType.Shared)
        came: list[int] = []
        while len(came) < 50:
            message = consumer.receive(timeout_millis=240_000)
            assert time.time() * 1000 >= soon_ms - 2_000, "not before their time"
            came.append(int(message.data()))
            consumer.acknowledge(message)
        assert sorted(came) == list(range(0, 100, 2))
        assert not _more(consumer), "nothing comes twice, and nothing of tomorrow"
    said = re.findall(READ[reader].format(topic=topic), pair.log(reader))
    assert said, "the other broker read no bucket"
    assert sum(number % 2 for number in in_buckets) <= int(said[0]) <= len(in_buckets)
    (pair.ours if writer == "apache" else pair.apache).stop()


def _wider() -> type[Record]:
    """The next version of a record: Avro knows it by its name."""

    class Reading(Record):  # type: ignore[misc]
        place = String()
        value = Integer(default=0)
        unit = String(required_default=True)

    return Reading


Wider = _wider()


def test_schemas_partitions_and_properties_are_read_by_either(pair: Pair) -> None:
    """What the records beside a topic's log say, written by one broker and used by the other."""
    web = pair.apache.web_url
    with _client(pair.apache.start()) as client:
        _asked(web, "persistent/public/default/spread/partitions", "PUT", 3)
        _asked(web, "persistent/public/default/marked", "PUT", {"owner": "blue"})
        # Without a subscription nothing is kept once a broker has left.
        for topic in ("spread-partition-0", "spread-partition-1", "spread-partition-2", "typed", "ended"):
            client.subscribe(topic, "kept").close()
        for index in range(3):
            _send(client, f"spread-partition-{index}", range(10))
        producer = client.create_producer("typed", schema=AvroSchema(Reading))
        producer.send(Reading(place="north", value=1))
        client.subscribe("marked", "kept").close()
        _asked(web, "persistent/public/default/marked/subscription/kept/properties", "PUT", {"team": "red"})
        terminated = client.create_producer("ended")
        terminated.send(b"last")
        _asked(web, "persistent/public/default/ended/terminate", "POST")
    pair.apache.stop()
    said = pair.ours.start()
    web = said["webServiceUrl"]
    with _client(said["serviceUrl"]) as client:
        assert len(client.get_topic_partitions("spread")) == 3
        for index in range(3):
            assert _read_all(client, f"spread-partition-{index}", 10) == list(range(10))
        assert _asked(web, "schemas/public/default/typed/schema")["version"] == 0
        reader = client.create_reader("typed", pulsar.MessageId.earliest, schema=AvroSchema(Reading))
        assert reader.read_next(timeout_millis=RECEIVE_MS).value().place == "north"
        producer = client.create_producer("typed", schema=AvroSchema(Wider))
        producer.send(Wider(place="south", value=2, unit="C"))
        assert _asked(web, "persistent/public/default/marked/properties") == {"owner": "blue"}
        kept = "persistent/public/default/marked/subscription/kept/properties"
        assert _asked(web, kept) == {"team": "red"}
        with pytest.raises(pulsar.TopicTerminated):
            client.create_producer("ended")
        _asked(web, "persistent/public/default/spread/partitions", "POST", 4)
        client.subscribe("spread-partition-3", "kept").close()
        _send(client, "spread-partition-3", range(10))
    pair.ours.stop()
    web = pair.apache.web_url
    with _client(pair.apache.start()) as client:
        assert len(client.get_topic_partitions("spread")) == 4
        for index in range(4):
            assert _read_all(client, f"spread-partition-{index}", 10) == list(range(10))
        assert _asked(web, "schemas/public/default/typed/schema")["version"] == 1
        reader = client.create_reader("typed", pulsar.MessageId.earliest, schema=AvroSchema(Wider))
        found = [reader.read_next(timeout_millis=RECEIVE_MS).value() for _ in range(2)]
        assert [(each.place, each.value) for each in found] == [("north", 1), ("south", 2)]
        # What our broker notes in a record for itself is seen, and kept, as properties.
        for path, property_ in (("properties", {"owner": "blue"}), ("subscription/kept/properties", {"team": "red"})):
            assert property_.items() <= _asked(web, f"persistent/public/default/marked/{path}").items()
    pair.apache.stop()
