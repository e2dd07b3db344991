# SPDX-License-Identifier: Apache-2.0
"""Apache's own bookie and shell, from an unpacked Pulsar distribution that REFERENCE_PULSAR names."""

import os
import subprocess
import time
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.processes import free_port

# The last resort against something that hangs: a busy machine takes minutes to start what a quiet one has in seconds.
START_LIMIT_S = COMMAND_LIMIT_S = 900.0
# As much as a test needs, and no more.
MEMORY = "-Xmx512m -XX:MaxDirectMemorySize=512m"
# Started often and for a short time: neither compiled to the end nor with a collector that takes threads of its own.
_SHORT_LIVED = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def distribution() -> Path:
    named = os.environ.get("REFERENCE_PULSAR")
    if not named:
        pytest.skip("REFERENCE_PULSAR names no unpacked Apache Pulsar distribution")
    return Path(named)


def environment(**more: str) -> dict[str, str]:
    """For one of Apache's programs."""
    return {**os.environ, "PULSAR_GC": _SHORT_LIVED, **more}


def configuration(directory: Path, zookeeper: str, **changes: str) -> Path:
    """The shipped file with some keys changed."""
    keys = {"zkServers": zookeeper, **changes}
    lines = (distribution() / "conf" / "bookkeeper.conf").read_text().splitlines()
    dropped = (*keys, "metadataServiceUri")
    kept = [line for line in lines if line.partition("=")[0].strip() not in dropped]
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "bookkeeper.conf"
    path.write_text("\n".join([*kept, *(f"{key}={value}" for key, value in keys.items())]) + "\n")
    return path


def shell(path: Path, *arguments: str) -> str:
    """One command of Apache's shell; what it printed."""
    variables = environment(BOOKIE_CONF=str(path), BOOKIE_MEM="-Xmx256m")
    line = [str(distribution() / "bin" / "bookkeeper"), "shell", *arguments]
    done = subprocess.run(line, env=variables, capture_output=True, text=True, timeout=COMMAND_LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout


class ApacheBookie:
    def __init__(self, directory: Path, zookeeper: str, **changes: str) -> None:
        self.port = free_port()
        self.bookie_id = f"127.0.0.1:{self.port}"
        self._log_path = directory / "log"
        self._configuration = configuration(
            directory,
            zookeeper,
            bookiePort=str(self.port),
            advertisedAddress="127.0.0.1",
            allowLoopback="true",
            journalDirectory=str(directory / "journal"),
            ledgerDirectories=str(directory / "ledgers"),
            httpServerEnabled="false",
            prometheusStatsHttpPort=str(free_port()),
            autoRecoveryDaemonEnabled="false",
            dbStorage_writeCacheMaxSizeMb="32",
            dbStorage_readAheadCacheMaxSizeMb="32",
            dbStorage_rocksDB_blockCacheSize="8388608",
            **changes,
        )
        self._zookeeper = zookeeper
        self._record = f"{changes.get('zkLedgersRootPath', '/ledgers')}/available/{self.bookie_id}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "ApacheBookie":
        variables = environment(PULSAR_BOOKKEEPER_CONF=str(self._configuration), BOOKIE_MEM=MEMORY)
        line = [str(distribution() / "bin" / "pulsar"), "bookie"]
        with self._log_path.open("wb") as log:
            self._process = subprocess.Popen(line, env=variables, stdout=log, stderr=log)
        try:
            self._wait_until_listed(self._process)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _wait_until_listed(self, process: "subprocess.Popen[bytes]") -> None:
        """It listens some time before it is listed, and only then it is one of the cluster."""
        until = time.monotonic() + START_LIMIT_S
        tree = KazooClient(hosts=self._zookeeper)
        tree.start(timeout=START_LIMIT_S)
        try:
            while tree.exists(self._record) is None:
                assert process.poll() is None, self._log_path.read_text()[-4000:]
                assert time.monotonic() < until, self._log_path.read_text()[-4000:]
                time.sleep(0.2)
        finally:
            tree.stop()
            tree.close()

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
