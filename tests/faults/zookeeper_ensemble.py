# SPDX-License-Identifier: Apache-2.0
"""Three ZooKeeper servers that elect a leader among them; each stopped and started by itself."""

import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.processes import free_port
from tools.zookeeper import fetch

_START_LIMIT_S = 60.0


class Server:
    def __init__(self, directory: Path, number: int, port: int, members: str) -> None:
        self.port = port
        data = directory / f"zookeeper-{number}"
        data.mkdir(parents=True)
        (data / "myid").write_text(str(number))
        self._log = data / "log"
        self._settings = data / "zoo.cfg"
        self._settings.write_text(
            f"tickTime=500\ninitLimit=20\nsyncLimit=10\ndataDir={data}\nclientPort={port}\n"
            f"clientPortAddress=127.0.0.1\nmaxClientCnxns=0\nadmin.enableServer=false\n{members}"
        )
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self) -> None:
        line = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dzookeeper.forceSync=no"]
        line += ["-cp", f"{fetch()}/*", "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(self._settings)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(line, stdout=log, stderr=subprocess.STDOUT)

    def until_serving(self) -> None:
        until = time.monotonic() + _START_LIMIT_S
        while not self._serves():
            assert time.monotonic() < until, f"ZooKeeper does not serve: {self._log.read_text()[-2000:]}"
            time.sleep(0.05)

    def restart(self) -> None:
        self.stop()
        self.launch()
        self.until_serving()

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def _serves(self) -> bool:
        """A server without a quorum says that it serves nobody."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as connection:
                connection.sendall(b"srvr")
                return b"Mode:" in connection.recv(4096)
        except OSError:
            return False


class ZooKeeperEnsemble:
    """The first of several never leads. It reaches the others' ports as `reached` says: straight, or by another one."""

    def __init__(
        self, directory: Path, count: int = 3, *, reached: Callable[[int], int] = lambda port: port, settings: str = ""
    ) -> None:
        ports = [(free_port(), free_port(), free_port()) for _ in range(count)]
        self.servers = []
        for number, (port, _, _) in enumerate(ports, 1):
            members = "".join(
                f"server.{other}=127.0.0.1:{reached(peers) if number == 1 < other else peers}:{election}\n"
                for other, (_, peers, election) in enumerate(ports, 1)
            )
            self.servers.append(Server(directory, number, port, members + settings))

    @property
    def url(self) -> str:
        return "zk:" + ",".join(f"127.0.0.1:{server.port}" for server in self.servers)

    def __enter__(self) -> Self:
        try:
            for server in self.servers:
                server.launch()
            for server in self.servers:
                server.until_serving()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        for server in self.servers:
            server.stop()
