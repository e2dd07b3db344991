# SPDX-License-Identifier: Apache-2.0
"""Runs the compose file without a container engine, under `unshare --net --mount --fork`.

Each service has a network of its own on one bridge, is found by its name, and gets its command, environment, volumes
and health checks from the file. The image is this checkout. Nothing of it can be reached from outside, and all of it
ends with this process. Prints what was seen as JSON. Needs root.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from tools.zookeeper import fetch

COMPOSE = Path(__file__).parents[2] / "deploy" / "compose" / "compose.yaml"
HEALTHY_LIMIT_S = 240.0
_ZOOKEEPER_IS_WELL = """
import socket
with socket.create_connection(("localhost", 2181), timeout=5) as s:
    s.sendall(b"srvr")
    assert b"Mode:" in s.recv(4096)
"""
_ROUND_TRIP = """
import httpx, json, pulsar
client = pulsar.Client("pulsar://localhost:6650", operation_timeout_seconds=120)
consumer = client.subscribe("persistent://public/default/boxed", "s")
producer = client.create_producer("persistent://public/default/boxed")
for number in range(10):
    producer.send(b"%d" % number)
received = []
for _ in range(10):
    message = consumer.receive(timeout_millis=60_000)
    consumer.acknowledge(message)
    received.append(message.data().decode())
client.close()
clusters = httpx.get("http://localhost:8080/admin/v2/clusters", timeout=60).json()
brokers = httpx.get("http://localhost:8080/admin/v2/brokers", timeout=60).json()
print(json.dumps({"received": received, "clusters": clusters, "brokers": brokers}))
"""


class Composition:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._services: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE.read_text())["services"]
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._hosts = directory / "hosts"
        self.seen: dict[str, Any] = {"healthy": []}

    def lay_network(self) -> None:
        lines = ["127.0.0.1 localhost"]
        # Names of namespaces are files: where only this process sees them.
        os.makedirs("/run/netns", exist_ok=True)
        _run("mount", "-t", "tmpfs", "none", "/run/netns")
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", "bridge0", "type", "bridge")
        _run("ip", "link", "set", "bridge0", "up")
        for number, name in enumerate(self._services, 10):
            _run("ip", "netns", "add", name)
            _run("ip", "link", "add", f"veth{number}", "type", "veth", "peer", "name", "eth0", "netns", name)
            _run("ip", "link", "set", f"veth{number}", "master", "bridge0", "up")
            _run("ip", "-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", "eth0")
            _run("ip", "-n", name, "link", "set", "eth0", "up")
            _run("ip", "-n", name, "link", "set", "lo", "up")
            lines.append(f"10.77.0.{number} {name}")
        self._hosts.write_text("\n".join(lines) + "\n")

    def up(self) -> None:
        """In the order that `depends_on` asks for."""
        for name in self._services:
            self._need(name)
        for name in self._services:
            if name != "initialize":
                self._until_healthy(name)
                self.seen["healthy"].append(name)

    def round_trip(self) -> None:
        done = subprocess.run(
            self._inside("proxy", [sys.executable, "-c", _ROUND_TRIP]), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"the round trip failed: {done.stderr[-2000:]}")
        self.seen |= json.loads(done.stdout.strip().splitlines()[-1])

    def down(self) -> None:
        """Whoever depends on others first."""
        for name, process in reversed(self._processes.items()):
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
            self.seen.setdefault("exit", {})[name] = process.returncode

    # --- private ------------------------------------------------------------------------------

    def _need(self, name: str) -> None:
        if name in self._processes:
            return
        for other, wanted in self._services[name].get("depends_on", {}).items():
            self._need(other)
            if wanted["condition"] == "service_healthy":
                self._until_healthy(other)
            elif self._processes[other].wait(HEALTHY_LIMIT_S):
                raise SystemExit(f"{other} failed: {self._log(other)}")
        self._start(name)

    def _start(self, name: str) -> None:
        service, data = self._services[name], self._directory / name
        data.mkdir(parents=True)
        settings = {key: str(value) for key, value in (service.get("environment") or {}).items()}
        if name.startswith("zookeeper"):
            words = _zookeeper(settings, data)
        else:
            words = [word.replace("/data", str(data)) for word in service["command"]]
            words = [sys.executable, "-m", "magnetar.cli.entry", *words]
        with (self._directory / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                self._inside(name, words), env={**os.environ, **settings}, stdout=log, stderr=log
            )

    def _until_healthy(self, name: str) -> None:
        check = [sys.executable, "-c", _ZOOKEEPER_IS_WELL]
        if not name.startswith("zookeeper"):
            kind, program, *words = self._services[name]["healthcheck"]["test"]
            assert (kind, program) == ("CMD", "python"), name
            check = [sys.executable, *words]
        until = time.monotonic() + HEALTHY_LIMIT_S
        while subprocess.run(self._inside(name, check), capture_output=True, check=False).returncode:
            if self._processes[name].poll() is not None or time.monotonic() > until:
                raise SystemExit(f"{name} is not well: {self._log(name)}")
            time.sleep(0.2)

    def _inside(self, name: str, words: list[str]) -> list[str]:
        """In the network of a service, where every service is found by its name."""
        script = f'mount --bind {self._hosts} /etc/hosts && exec "$@"'
        return ["ip", "netns", "exec", name, "unshare", "--mount", "sh", "-c", script, "sh", *words]

    def _log(self, name: str) -> str:
        return (self._directory / f"{name}.log").read_text(errors="replace")[-2000:]


def _zookeeper(settings: dict[str, str], data: Path) -> list[str]:
    """What the entry script of ZooKeeper's image makes of its environment."""
    (data / "myid").write_text(settings["ZOO_MY_ID"])
    lines = ["tickTime=500", "initLimit=40", "syncLimit=20", f"dataDir={data}", "admin.enableServer=false"]
    lines += ["maxClientCnxns=0", *settings["ZOO_SERVERS"].split()]
    (data / "zoo.cfg").write_text("\n".join(lines) + "\n")
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    options = ["-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dzookeeper.forceSync=no"]
    return ["java", *options, "-cp", f"{fetch()}/*", main, str(data / "zoo.cfg")]


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stderr}")


def main(directory: str) -> None:
    composition = Composition(Path(directory))
    composition.lay_network()
    try:
        composition.up()
        composition.round_trip()
    finally:
        composition.down()
    sys.stdout.write(json.dumps(composition.seen) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
