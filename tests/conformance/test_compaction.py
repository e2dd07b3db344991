# SPDX-License-Identifier: Apache-2.0
"""The compacted view as the official client reads it; the broker compacts by itself, as soon as there is something."""

import time
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest

from tests.conformance.exchanges import QUIET
from tests.processes import StandaloneProcess

PATIENCE_S = 30.0

Pairs = list[tuple[str, bytes]]


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    directory: Path = tmp_path_factory.mktemp("standalone")
    settings = directory / "broker.conf"
    settings.write_text(
        "brokerServiceCompactionThresholdInBytes=1\nbrokerServiceCompactionMonitorIntervalInSeconds=1\n"
    )
    with StandaloneProcess(directory, "--config", str(settings)) as process:
        yield process


def pairs_of(client: pulsar.Client, topic: str, *, compacted: bool) -> Pairs:
    """Everything that a reader from the beginning gets."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest, is_read_compacted=compacted)
    found = []
    while reader.has_message_available():
        message = reader.read_next(10_000)
        found.append((message.partition_key(), message.data()))
    reader.close()
    return found


def wait_for(client: pulsar.Client, topic: str, expected: Pairs) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while (found := pairs_of(client, topic, compacted=True)) != expected:
        assert time.monotonic() < until_s, f"the compacted view stays {found}"


@pytest.mark.feature("F-CMP-01", "F-CMP-03", "F-CMP-06", "F-CMP-07")
def test_the_view_has_the_last_message_of_each_key_and_the_topic_stays_as_it_is(
    client: pulsar.Client, topic: str
) -> None:
    sent = [("a", b"1"), ("b", b"1"), ("a", b"2"), ("c", b"1"), ("c", b"")]
    producer = client.create_producer(topic, batching_enabled=False)
    for key, value in sent:
        producer.send(value, partition_key=key)
    wait_for(client, topic, [("b", b"1"), ("a", b"2")])
    assert pairs_of(client, topic, compacted=False) == sent
    producer.send(b"3", partition_key="b")
    producer.send(b"1", partition_key="d")
    wait_for(client, topic, [("a", b"2"), ("b", b"3"), ("d", b"1")])


@pytest.mark.feature("F-CMP-12")
def test_messages_inside_a_batch_are_judged_one_by_one(client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=1_000)
    for key, value in (("k1", b"1"), ("k2", b"2"), ("k1", b"3")):
        producer.send_async(value, lambda *_: None, partition_key=key)
    producer.flush()
    wait_for(client, topic, [("k2", b"2"), ("k1", b"3")])


@pytest.mark.feature("F-CMP-10", "F-CMP-11")
def test_a_consumer_opts_in_and_only_where_one_is_active(client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic, batching_enabled=False)
    for value in (b"1", b"2", b"3"):
        producer.send(value, partition_key="k")
    wait_for(client, topic, [("k", b"3")])
    earliest = pulsar.InitialPosition.Earliest
    consumer = client.subscribe(topic, "s", initial_position=earliest, is_read_compacted=True)
    message = consumer.receive(10_000)
    assert message.data() == b"3"
    consumer.acknowledge_cumulative(message)
    producer.send(b"4", partition_key="k")
    assert consumer.receive(10_000).data() == b"4"
    with pytest.raises(pulsar.PulsarException):
        client.subscribe(topic, "shared", consumer_type=pulsar.ConsumerType.Shared, is_read_compacted=True)


@pytest.mark.feature("F-CMP-04")
def test_the_view_survives_kill_9(standalone: StandaloneProcess, topic: str) -> None:
    client = pulsar.Client(standalone.service_url, logger=QUIET)
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(20):
        producer.send(str(number).encode(), partition_key=f"k{number % 3}")
    expected = [("k2", b"17"), ("k0", b"18"), ("k1", b"19")]
    wait_for(client, topic, expected)
    client.close()
    standalone.kill()
    standalone.start()
    client = pulsar.Client(standalone.service_url, logger=QUIET)
    assert pairs_of(client, topic, compacted=True) == expected
    client.close()
