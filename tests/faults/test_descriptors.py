# SPDX-License-Identifier: Apache-2.0
"""A server that has no descriptor left: whoever it serves already it serves on, and others again when there is one."""

import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pulsar
import pytest

from tests.conftest import Eventually
from tests.processes import StandaloneProcess

TOPIC = "persistent://public/default/descriptors"
QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
# How many more than it has now the server may open, and how many strangers come.
LEFT = 5
STRANGERS = 40
# A loop that spins is asleep in none of so many looks in a row.
LOOKS = 20


def descriptors(pid: int) -> list[int]:
    return sorted(map(int, os.listdir(f"/proc/{pid}/fd")))


@contextmanager
def few_descriptors(pid: int, left: int = LEFT) -> Iterator[int]:
    """How many the server may have, as long as this lasts."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    allowed = descriptors(pid)[-1] + 1 + left
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (allowed, before[1]))
    try:
        yield allowed
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def is_asleep(pid: int) -> bool:
    """Whether the thread that the loop runs on waits for something."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


@pytest.mark.parametrize("event_loop", ["uvloop", "asyncio"])
def test_a_server_without_descriptors_serves_whom_it_has_and_does_not_spin(
    tmp_path: Path, eventually: Eventually, event_loop: str
) -> None:
    """F209: EMFILE on accept, with clients that come again and again."""
    config = tmp_path / "broker.conf"
    config.write_text(f"runtime.event_loop={event_loop}\n")
    with StandaloneProcess(tmp_path / "run", "--config", str(config)) as standalone:
        client = pulsar.Client(standalone.service_url, operation_timeout_seconds=20, logger=QUIET)
        consumer = client.subscribe(TOPIC, "s")
        producer = client.create_producer(TOPIC, send_timeout_millis=20_000)
        with few_descriptors(standalone.pid) as allowed:
            strangers = [socket.create_connection(("127.0.0.1", standalone.port), timeout=5) for _ in range(STRANGERS)]
            eventually(lambda: len(descriptors(standalone.pid)) == allowed)
            for number in range(20):
                producer.send(b"%d" % number)
                message = consumer.receive(20_000)
                assert message.data() == b"%d" % number
                consumer.acknowledge(message)
            eventually(lambda: all(is_asleep(standalone.pid) for _ in range(LOOKS)))
            for stranger in strangers:
                stranger.close()
        fresh = pulsar.Client(standalone.service_url, operation_timeout_seconds=20, logger=QUIET)
        fresh.create_producer(TOPIC, send_timeout_millis=20_000).send(b"again")
        assert consumer.receive(20_000).data() == b"again"
        fresh.close()
        client.close()
        assert standalone.stop() == 0


def test_administration_is_served_once_there_are_descriptors_again(tmp_path: Path, eventually: Eventually) -> None:
    """Its modules are read when somebody knocks, and strangers had taken the last descriptors by then."""
    with StandaloneProcess(tmp_path / "run", cold=True) as standalone:
        with few_descriptors(standalone.pid, left=2) as allowed:
            strangers = [socket.create_connection(("127.0.0.1", standalone.port), timeout=5) for _ in range(STRANGERS)]
            eventually(lambda: len(descriptors(standalone.pid)) == allowed)
            eventually(lambda: "waits for a free descriptor" in standalone.log_path.read_text())
            for stranger in strangers:
                stranger.close()
        with urlopen(f"{standalone.web_url}/admin/v2/clusters", timeout=60) as answer:
            assert answer.status == 200
        assert standalone.stop() == 0
