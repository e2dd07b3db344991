# SPDX-License-Identifier: Apache-2.0
"""A standalone that is killed again and again while the official client publishes: nothing acknowledged is lost."""

import random
import time
from pathlib import Path

import httpx
import pulsar
import pytest

from tests.conformance.raw_client import RawClient
from tests.conformance.raw_client import Type as RawKind
from tests.conftest import Eventually
from tests.faults.client_threads import ClientThread
from tests.processes import StandaloneProcess

KILLS = 4
_IN_FLIGHT_MAX = 500
QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)


class Publishing(ClientThread):
    """An official producer in a thread of its own; knows what was sent, in order, and what was acknowledged when."""

    def __init__(self, client: pulsar.Client, topic: str) -> None:
        super().__init__(client)
        self.sent: list[str] = []
        self.acknowledged: dict[str, float] = {}
        # Answers of any kind.
        self._answered = 0
        self._producer = client.create_producer(topic, send_timeout_millis=0, max_pending_messages=2 * _IN_FLIGHT_MAX)
        self.begin()

    def _run(self) -> None:
        while not self._stop.is_set():
            # Who waits for room inside the client waits for ever, when the other side is gone for good.
            if len(self.sent) - self._answered < _IN_FLIGHT_MAX:
                self._send(f"m-{len(self.sent)}")
                self._pause()
            else:
                self._stop.wait(0.005)

    def _send(self, name: str) -> None:
        self.sent.append(name)
        self._producer.send_async(name.encode(), lambda result, _: self._on_answer(name, result))

    def _pause(self) -> None:
        if len(self.sent) % 50 == 0:
            self._stop.wait(0.005)

    def _on_answer(self, name: str, result: pulsar.Result) -> None:
        if result == pulsar.Result.Ok:
            self.acknowledged[name] = time.monotonic()
        self._answered += 1

    def finish(self) -> None:
        """No more messages; wait for the receipts of those that were sent."""
        self.stop()
        while self._answered < len(self.sent):
            time.sleep(0.01)


def read_everything(client: pulsar.Client, topic: str) -> list[str]:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    names = []
    while reader.has_message_available():
        names.append(reader.read_next(timeout_millis=20_000).data().decode())
    reader.close()
    return names


@pytest.mark.feature("F-PLAT-01", "F-PROD-02")
def test_every_acknowledged_message_survives_kill_9_in_send_order(tmp_path: Path, eventually: Eventually) -> None:
    chance = random.Random(7)
    topic = "persistent://public/default/killed"
    with StandaloneProcess(tmp_path) as standalone:
        client = pulsar.Client(standalone.service_url, operation_timeout_seconds=60, logger=QUIET)
        # A subscription that has read nothing keeps everything; without one, data may go when its ledger is full.
        client.subscribe(topic, "keeper", initial_position=pulsar.InitialPosition.Earliest).close()
        publishing = Publishing(client, topic)
        kill_times = []
        try:
            for _ in range(KILLS):
                wanted = len(publishing.acknowledged) + chance.randint(100, 2_000)
                eventually(lambda wanted=wanted: len(publishing.acknowledged) >= wanted)
                kill_times.append(time.monotonic())
                standalone.kill()
                standalone.start()
        finally:
            publishing.stop()
        publishing.finish()
        names = read_everything(client, topic)
        client.close()

    assert len(publishing.acknowledged) == len(publishing.sent) > KILLS * 100
    firsts = list(dict.fromkeys(names))
    assert firsts == publishing.sent, "every message is there, first occurrences in send order"
    seen: set[str] = set()
    for name in names:
        if name in seen:
            receipt = publishing.acknowledged[name]
            assert any(receipt > kill for kill in kill_times), f"{name} was acknowledged and stored twice"
        seen.add(name)


@pytest.mark.feature("F-CUR-01")
def test_the_cursor_stands_where_the_last_persisted_ack_put_it(tmp_path: Path) -> None:
    topic = "persistent://public/default/acked"
    with StandaloneProcess(tmp_path) as standalone:
        client = pulsar.Client(standalone.service_url, logger=QUIET)
        consumer = client.subscribe(topic, "keeper")
        producer = client.create_producer(topic)
        for index in range(100):
            producer.send(f"m-{index}".encode())
        for _ in range(40):
            consumer.acknowledge(consumer.receive(timeout_millis=10_000))
        client.close()
        standalone.stop()
        standalone.start()
        client = pulsar.Client(standalone.service_url, logger=QUIET)
        consumer = client.subscribe(topic, "keeper")
        assert consumer.receive(timeout_millis=10_000).data() == b"m-40"
        standalone.kill()
        standalone.start()
        assert consumer.receive(timeout_millis=30_000).data() in (b"m-41", b"m-40")
        client.close()


def test_a_subscription_that_was_given_nothing_yet_gets_its_message_from_the_next_owner(tmp_path: Path) -> None:
    """F77: its cursor has never moved, and nothing but that is known of it."""
    topic = "persistent://public/default/unread"
    with StandaloneProcess(tmp_path) as standalone:
        client = pulsar.Client(standalone.service_url, logger=QUIET)
        client.subscribe(topic, "keeper").close()
        client.create_producer(topic).send(b"unread")
        client.close()
        standalone.kill()
        standalone.start()
        client = pulsar.Client(standalone.service_url, logger=QUIET)
        assert client.subscribe(topic, "keeper").receive(timeout_millis=30_000).data() == b"unread"
        client.close()


def test_every_receipt_is_true_when_a_broker_stops_in_order_under_load(tmp_path: Path, eventually: Eventually) -> None:
    """F106: messages are on their way when it is asked to stop, and it stops with exit code 0."""
    topic = "persistent://public/default/stopped"
    with StandaloneProcess(tmp_path) as standalone:
        client = pulsar.Client(standalone.service_url, operation_timeout_seconds=60, logger=QUIET)
        client.subscribe(topic, "keeper", initial_position=pulsar.InitialPosition.Earliest).close()
        publishing = Publishing(client, topic)
        try:
            for _ in range(3):
                wanted = len(publishing.acknowledged) + 500
                eventually(lambda wanted=wanted: len(publishing.acknowledged) >= wanted)
                assert standalone.stop() == 0
                told = list(publishing.acknowledged)
                standalone.start()
                reading = pulsar.Client(standalone.service_url, operation_timeout_seconds=60, logger=QUIET)
                assert set(told) <= set(read_everything(reading, topic))
                reading.close()
        finally:
            publishing.stop()
        publishing.finish()
        names = read_everything(client, topic)
        client.close()
    assert list(dict.fromkeys(names)) == publishing.sent


ROOM = 100


@pytest.mark.feature("F-PRB-15")
def test_a_queue_that_was_full_at_a_failover_has_all_of_its_room_again(tmp_path: Path, eventually: Eventually) -> None:
    """A producer is slow after a failover when room in its queue is not given back. So room is counted, not time."""
    with StandaloneProcess(tmp_path) as process:
        client = pulsar.Client(process.service_url, logger=QUIET)
        client.subscribe("room", "keeps").close()
        producer = client.create_producer(
            "room", max_pending_messages=ROOM, block_if_queue_full=False, send_timeout_millis=0, batching_enabled=False
        )
        producer.send(b"first")
        for _ in range(2):
            results: list[pulsar.Result] = []
            process.pause()
            for number in range(ROOM + 20):
                producer.send_async(b"%d" % number, lambda result, _, told=results: told.append(result))
            eventually(lambda told=results: len(told) >= 20)
            assert set(results) == {pulsar.Result.ProducerQueueIsFull}
            assert len(results) == 20, "all of the room is there, and no more"
            process.kill()
            process.start()
            eventually(lambda told=results: len(told) == ROOM + 20, limit_s=60)
            assert results[20:] == [pulsar.Result.Ok] * ROOM
        names = read_everything(client, "room")
        assert len(names) >= 1 + 2 * ROOM
        client.close()


@pytest.mark.feature("F-HA-06")
def test_what_was_in_flight_doubles_without_deduplication_and_not_with_it(tmp_path: Path) -> None:
    """A producer that did not see the receipts before its broker died sends everything again."""
    with StandaloneProcess(tmp_path) as standalone:
        rest = f"{standalone.web_url}/admin/v2/namespaces/public/once"
        assert httpx.put(rest, json={}, timeout=30).status_code == 204
        headers = {"content-type": "application/json"}
        assert httpx.post(f"{rest}/deduplication", content="true", headers=headers, timeout=30).status_code == 204
        topics = ("persistent://public/default/twice", "persistent://public/once/once")
        client = pulsar.Client(standalone.service_url, operation_timeout_seconds=60, logger=QUIET)
        for topic in topics:
            client.subscribe(topic, "keeper").close()
        for _ in range(2):
            for topic in topics:
                with RawClient(standalone.port) as raw:
                    assert raw.open_producer(topic, producer_name="p").type == RawKind.PRODUCER_SUCCESS
                    for number in range(10):
                        raw.send(sequence_id=number)
                    for _ in range(10):
                        raw.expect(RawKind.SEND_RECEIPT)
            standalone.kill()
            standalone.start()
        assert [len(read_everything(client, topic)) for topic in topics] == [20, 10]
        client.close()
