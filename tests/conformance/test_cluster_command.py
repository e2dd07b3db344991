# SPDX-License-Identifier: Apache-2.0
"""`magnetar cluster` as somebody types it: up, status, kill, restart, logs, down, each a command of its own."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest
from typer.testing import CliRunner

from magnetar.cli.cluster import app
from magnetar.errors import MagnetarError


class ClusterCommand:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def run(self, verb: str, *words: str, code: int = 0) -> str:
        """One command, in this process: only the members of the cluster are processes of their own."""
        done = CliRunner().invoke(app, [verb, *words, "--data-dir", str(self.directory)])
        if isinstance(done.exception, MagnetarError):
            assert code == 1, f"{verb} {words}: {done.exception}"
            return str(done.exception)
        assert done.exit_code == code, f"{verb} {words} ended with {done.exit_code}:\n{done.output}\n{done.exception}"
        return done.output

    def status(self, code: int = 0) -> dict[str, Any]:
        said = self.run("status", "--json", code=code)
        found: dict[str, Any] = json.loads(said)
        return found

    def until_paused(self, name: str) -> dict[str, Any]:
        """The kernel stops a process soon after it was told to."""
        end = time.monotonic() + 30
        while True:
            done = CliRunner().invoke(app, ["status", "--json", "--data-dir", str(self.directory)])
            found: dict[str, Any] = json.loads(done.output)["processes"][name]
            if found["state"] == "paused":
                assert done.exit_code == 1
                return found
            assert time.monotonic() < end, found
            time.sleep(0.02)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterCommand]:
    command = ClusterCommand(tmp_path_factory.mktemp("cluster") / "data")
    command.run("up", "--brokers", "2", "--bookies", "2")
    try:
        yield command
    finally:
        command.run("down", "--wipe")


def _round_trip(service_url: str, topic: str, text: str) -> None:
    client = pulsar.Client(service_url)
    try:
        consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
        client.create_producer(topic).send(text.encode())
        message = consumer.receive(timeout_millis=20_000)
        assert message.data() == text.encode()
        consumer.acknowledge(message)
    finally:
        client.close()


def test_killed_is_seen_and_restarted_serves_on_the_same_port(cluster: ClusterCommand) -> None:
    port = cluster.status()["processes"]["broker-1"]["port"]
    cluster.run("kill", "broker-1")
    seen = cluster.status(code=1)["processes"]["broker-1"]
    assert (seen["state"], seen["pid"]) == ("stopped", None)
    assert "is not running" in cluster.run("kill", "broker-1", code=1)
    cluster.run("restart", "broker-1")
    cluster.run("kill", "broker-1", "--signal", "STOP")
    paused = cluster.until_paused("broker-1")
    cluster.run("restart", "broker-1")
    found = cluster.status()
    assert found["processes"]["broker-1"]["pid"] not in (None, paused["pid"])
    assert found["processes"]["broker-1"]["port"] == port
    _round_trip(found["service_url"], "three", "again")


def test_logs_are_those_of_the_one_that_was_named(cluster: ClusterCommand) -> None:
    assert "Magnetar bookie" in cluster.run("logs", "bookie-2", "-n", "1000")
    assert "Magnetar broker" in cluster.run("logs", "broker-1", "-n", "1000")


def test_what_cannot_be_done_is_one_sentence(cluster: ClusterCommand, tmp_path: Path) -> None:
    assert "There is no broker-9 here" in cluster.run("restart", "broker-9", code=1)
    assert "does not shrink" in cluster.run("up", "--bookies", "1", code=1)
    assert "keeps its metadata in remote:" in cluster.run("up", "--metadata", "zk:127.0.0.1:1", code=1)
    assert "There is no cluster in" in ClusterCommand(tmp_path).run("status", code=1)
    (tmp_path / "precious").touch()
    assert "holds something else" in ClusterCommand(tmp_path).run("up", code=1)
    assert (tmp_path / "precious").exists()


def test_down_stops_everything_and_up_finds_the_data(cluster: ClusterCommand) -> None:
    url = cluster.status()["service_url"]
    client = pulsar.Client(url)
    client.subscribe("kept", "s").close()
    client.create_producer("kept").send(b"stored")
    client.close()
    pids = [found["pid"] for found in cluster.status()["processes"].values()]
    cluster.run("down")
    assert all(found["pid"] is None for found in cluster.status(code=1)["processes"].values())
    for pid in pids:
        assert not Path(f"/proc/{pid}/cmdline").exists() or not Path(f"/proc/{pid}/cmdline").read_bytes()
    cluster.run("up")
    assert cluster.status()["service_url"] == url
    client = pulsar.Client(url)
    assert client.subscribe("kept", "s").receive(timeout_millis=20_000).data() == b"stored"
    client.close()


@pytest.mark.feature("F-PLAT-02")
def test_every_tier_is_a_process_of_its_own_and_one_more_joins_while_the_others_run(cluster: ClusterCommand) -> None:
    before = cluster.status()
    assert set(before["processes"]) == {"metadata", "bookie-1", "bookie-2", "broker-1", "broker-2"}
    pids = {name: found["pid"] for name, found in before["processes"].items()}
    assert len(set(pids.values())) == 5
    for pid in pids.values():
        os.kill(pid, 0)
    _round_trip(before["service_url"], "one", "before")
    cluster.run("up", "--bookies", "3", "--brokers", "3", "--proxies", "1", "--autorecoveries", "1")
    after = cluster.status()
    added = ("bookie-3", "broker-3", "proxy-1", "autorecovery-1")
    assert {after["processes"][name]["state"] for name in added} == {"serving"}
    assert after["service_url"] == f"pulsar://127.0.0.1:{after['processes']['proxy-1']['port']}"
    assert {name: after["processes"][name]["pid"] for name in pids} == pids
    for number in range(8):
        _round_trip(after["service_url"], f"two-{number}", "after")
