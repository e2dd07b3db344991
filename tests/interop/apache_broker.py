# SPDX-License-Identifier: Apache-2.0
"""Apache's own broker, from the distribution that REFERENCE_PULSAR names, on metadata and bookies that are there."""

import signal
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

from tests.interop.apache import COMMAND_LIMIT_S, MEMORY, START_LIMIT_S, distribution, environment
from tests.processes import free_port

CLUSTER = "interop"
# No services beside the topics: each would take ledgers and time of its own.
_PLAIN = {
    "clusterName": CLUSTER,
    "advertisedAddress": "127.0.0.1",
    "bindAddress": "127.0.0.1",
    "loadBalancerEnabled": "false",
    "numIOThreads": "2",
    "numHttpServerThreads": "4",
    "managedLedgerDefaultEnsembleSize": "2",
    "managedLedgerDefaultWriteQuorum": "2",
    "managedLedgerDefaultAckQuorum": "2",
    "managedLedgerCacheSizeMB": "16",
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "brokerDeduplicationEnabled": "true",
    "brokerShutdownTimeoutMs": "20000",
}


def initialize_metadata(store: str, bookies: str) -> None:
    """The cluster's first records, as Apache's own tool writes them."""
    line = [str(distribution() / "bin" / "pulsar"), "initialize-cluster-metadata", "-c", CLUSTER, "-md", store]
    line += ["-cms", store, "-uw", "http://127.0.0.1:8080", "-ub", "pulsar://127.0.0.1:6650", "-bn", "4"]
    line += ["--existing-bk-metadata-service-uri", bookies]
    variables = environment(PULSAR_MEM="-Xmx256m")
    done = subprocess.run(line, env=variables, capture_output=True, text=True, timeout=COMMAND_LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


class ApacheBroker:
    def __init__(self, directory: Path, store: str, bookies: str, **changes: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._http_port = free_port()
        port = free_port()
        self.service_url = f"pulsar://127.0.0.1:{port}"
        self.web_url = f"http://127.0.0.1:{self._http_port}"
        keys = {
            **_PLAIN,
            "metadataStoreUrl": store,
            "configurationMetadataStoreUrl": store,
            "bookkeeperMetadataServiceUri": bookies,
            "brokerServicePort": str(port),
            "webServicePort": str(self._http_port),
            **changes,
        }
        lines = (distribution() / "conf" / "broker.conf").read_text().splitlines()
        kept = [line for line in lines if line.partition("=")[0].strip() not in keys]
        self._configuration = directory / "broker.conf"
        self._configuration.write_text("\n".join([*kept, *(f"{key}={value}" for key, value in keys.items())]) + "\n")
        self._log_path = directory / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        """Serve; returns the service URL. One that a failed test has left running is ended first."""
        if self.is_running:
            self.kill()
        variables = environment(PULSAR_BROKER_CONF=str(self._configuration), PULSAR_MEM=MEMORY)
        with self._log_path.open("ab") as log:
            line = [str(distribution() / "bin" / "pulsar"), "broker"]
            self._process = subprocess.Popen(line, env=variables, stdout=log, stderr=log)
        until = time.monotonic() + START_LIMIT_S
        while not self._serves():
            assert self._process.poll() is None, self._log_tail()
            assert time.monotonic() < until, self._log_tail()
            time.sleep(0.2)
        return self.service_url

    def stop(self) -> None:
        """As an operator stops it: topics are closed, cursors are saved."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(COMMAND_LIMIT_S)

    def _serves(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.web_url}/admin/v2/brokers/health", timeout=20) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def log(self) -> str:
        return self._log_path.read_text(errors="replace")

    def _log_tail(self) -> str:
        return self.log()[-4000:]
