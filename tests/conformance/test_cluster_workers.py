# SPDX-License-Identifier: Apache-2.0
"""`--workers`: several broker processes behind one address, kept running by a parent, seen by official clients."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pulsar
import pytest

from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.brokers import QUICK, QUIET, Answer, Kind, port_of
from tests.cluster import RoleProcess
from tests.conformance.raw_client import RawClient
from tests.conftest import Eventually
from tests.faults.test_bookies import until_more
from tests.faults.test_cluster import Calmly
from tests.faults.test_kill_9 import read_everything
from tests.processes import free_port

TOPICS = [f"persistent://public/default/spread-{number}" for number in range(12)]


class Workers:
    """A standalone with two workers, and what is known of each."""

    def __init__(self, directory: Path) -> None:
        self.ports = ["--port", str(free_port()), "--http-port", str(free_port())]
        words = ["standalone", "--workers", "2", *self.ports]
        self.parent = RoleProcess("parent", directory, *words, environment=QUICK)
        self.parent.start()

    @property
    def service_url(self) -> str:
        return str(self.parent.said["serviceUrl"])

    def worker(self, number: int) -> dict[str, Any]:
        """What a worker's own ready file says; empty when it has none now."""
        file = self.parent.data_directory / f"worker-{number}" / "ready.json"
        try:
            found: dict[str, Any] = json.loads(file.read_text())
        except (OSError, ValueError):
            return {}
        return found

    def number_of(self, service_url: str) -> int:
        return next(number for number in (1, 2) if self.worker(number)["serviceUrl"] == service_url)

    def owner_of(self, topic: str) -> str:
        """As a client finds it: ask the shared port, follow redirects."""
        url, authoritative = self.service_url, False
        for _ in range(5):
            with RawClient(port_of(url)) as raw:
                request = pb.CommandLookupTopic(topic=topic, request_id=raw.request_id(), authoritative=authoritative)
                raw.say(Kind.LOOKUP, request)
                answer = raw.answer_to(request.request_id).lookupTopicResponse
            assert answer.response != Answer.Failed, answer
            url, authoritative = answer.brokerServiceUrl, answer.authoritative
            if answer.response == Answer.Connect:
                return str(url)
        raise AssertionError(f"{topic} is redirected for ever")


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    made = Workers(tmp_path_factory.mktemp("workers"))
    try:
        yield made
    finally:
        if made.parent.is_running:
            made.parent.stop()


def test_topics_are_spread_over_workers_that_share_one_address(workers: Workers) -> None:
    client = pulsar.Client(workers.service_url, logger=QUIET)
    try:
        for topic in TOPICS:
            consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
            client.create_producer(topic).send(topic.encode())
            message = consumer.receive(timeout_millis=20_000)
            assert message.data() == topic.encode()
            consumer.acknowledge(message)
    finally:
        client.close()
    owners = {topic: workers.owner_of(topic) for topic in TOPICS}
    # Nobody is sent back to the shared port, and both have some.
    assert {workers.number_of(url) for url in owners.values()} == {1, 2}
    # Any of them answers HTTP on the shared port; that too leads to the owner.
    web_url = workers.parent.said["webServiceUrl"]
    with httpx.Client(base_url=web_url, follow_redirects=True, timeout=30) as http:
        for topic, owner in owners.items():
            path = topic.replace("://", "/")
            assert http.get(f"/lookup/v2/topic/{path}").json()["brokerUrl"] == owner
            assert http.get(f"/admin/v2/{path}/stats").json()["msgInCounter"] == 1
        own = sorted(str(workers.worker(number)["webServiceUrl"]).removeprefix("http://") for number in (1, 2))
        assert sorted(http.get("/admin/v2/brokers").json()) == own
        cluster = http.get("/admin/v2/clusters/standalone").json()
    assert (cluster["brokerServiceUrl"], cluster["serviceUrl"]) == (workers.service_url, web_url)


def test_a_killed_worker_is_started_again_and_nothing_acknowledged_is_lost(
    workers: Workers, eventually: Eventually
) -> None:
    topic = TOPICS[0]
    client = pulsar.Client(workers.service_url, operation_timeout_seconds=60, logger=QUIET)
    client.subscribe("persistent://public/default/under-load", "keeper").close()
    publishing = Calmly(client, "persistent://public/default/under-load")
    try:
        until_more(publishing, 100, eventually)
        owner = workers.number_of(workers.owner_of("persistent://public/default/under-load"))
        before = workers.worker(owner)
        other = workers.worker(3 - owner)
        os.kill(before["pid"], signal.SIGKILL)
        until_more(publishing, 200, eventually)
        eventually(lambda: workers.worker(owner).get("pid", before["pid"]) != before["pid"])
    finally:
        publishing.stop()
        publishing.finish()
    after = workers.worker(owner)
    # The same place as before, and the other one was left alone.
    assert after["serviceUrl"] == before["serviceUrl"]
    assert workers.worker(3 - owner) == other
    assert publishing.acknowledged.keys() == set(publishing.sent)
    stored = read_everything(client, "persistent://public/default/under-load")
    assert list(dict.fromkeys(stored)) == publishing.sent
    client.create_producer(topic).send(b"still")
    client.close()


def test_a_directory_and_a_port_belong_to_one_group(workers: Workers, tmp_path: Path) -> None:
    ports = ["--port", "0", "--http-port", "0"]
    same_directory = RoleProcess("again", tmp_path / "again", "standalone", "--workers", "1", *ports)
    same_directory.data_directory = workers.parent.data_directory
    same_directory.launch()
    assert same_directory.wait() == 2
    assert "in use" in same_directory.log_tail()
    same_port = RoleProcess("beside", tmp_path / "beside", "standalone", "--workers", "1", *workers.ports)
    same_port.launch()
    assert same_port.wait() == 2
    assert "is in use by another process; choose another with --port" in same_port.log_tail()


def test_workers_stop_with_their_parent_and_the_data_serves_without_workers(
    workers: Workers, tmp_path: Path, eventually: Eventually
) -> None:
    pids = [workers.worker(number)["pid"] for number in (1, 2)]
    assert workers.parent.stop() == 0
    assert not any(_is_alive(pid) for pid in pids)
    alone = RoleProcess("alone", tmp_path, "standalone", *workers.ports)
    alone.data_directory = workers.parent.data_directory
    alone.start()
    client = pulsar.Client(workers.service_url, logger=QUIET)
    try:
        for topic in TOPICS[1:]:
            assert read_everything(client, topic) == [topic]
    finally:
        client.close()
        assert alone.stop() == 0
    # And back again. A parent that is killed takes its workers along.
    workers.parent.start()
    pids = [workers.worker(number)["pid"] for number in (1, 2)]
    workers.parent.kill()
    eventually(lambda: not any(_is_alive(pid) for pid in pids))


def _is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
