# SPDX-License-Identifier: Apache-2.0
"""Run the client's end-to-end suite against Apache Pulsar: `make client-against-apache REFERENCE_PULSAR=…`.

Starts the unpacked distribution that REFERENCE_PULSAR names as a standalone on loopback, with its data in a scratch
directory, runs the tests that know a service only by its URLs, and stops it. Needs Java 17 or newer. Not part of CI.
"""

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

READY_S = 180
SUITE = (
    "tests/conformance/test_client_producer.py",
    "tests/conformance/test_client_consumer.py",
    "tests/conformance/test_client_reader.py",
    "tests/conformance/test_client_values.py",
    "tests/conformance/test_client_blocking.py",
)
SETTINGS = {
    "bindAddress": "127.0.0.1",
    "advertisedAddress": "127.0.0.1",
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "transactionCoordinatorEnabled": "true",
    "systemTopicEnabled": "true",
    "delayedDeliveryTickTimeMillis": "100",
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def configuration(home: Path, settings: dict[str, str]) -> str:
    """The distribution's own, with these keys changed; keys that it only has as comments are appended."""
    text = (home / "conf" / "standalone.conf").read_text()
    for key, value in settings.items():
        text, found = re.subn(rf"(?m)^{key}=.*$", f"{key}={value}", text)
        if not found:
            text += f"\n{key}={value}\n"
    return text


def wait_until_ready(server: "subprocess.Popen[bytes]", web_url: str, log: Path) -> None:
    until = time.monotonic() + READY_S
    while time.monotonic() < until:
        if server.poll() is not None:
            raise SystemExit(f"Apache Pulsar ended: {log.read_text().splitlines()[-1:]}")
        try:
            with urllib.request.urlopen(f"{web_url}/admin/v2/namespaces/public/default", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise SystemExit(f"Apache Pulsar does not serve after {READY_S} s, see {log}")


def main() -> int:
    named = os.environ.get("REFERENCE_PULSAR", "")
    home = Path(named)
    if not named or not (home / "bin" / "pulsar").exists():
        raise SystemExit("REFERENCE_PULSAR should name an unpacked Apache Pulsar distribution")
    with tempfile.TemporaryDirectory(prefix="against-apache-") as scratch_name:
        scratch = Path(scratch_name)
        port, web_port, bookie_port = free_port(), free_port(), free_port()
        ports = {"brokerServicePort": str(port), "webServicePort": str(web_port)}
        (scratch / "standalone.conf").write_text(configuration(home, SETTINGS | ports))
        environment = os.environ | {
            "PULSAR_STANDALONE_CONF": str(scratch / "standalone.conf"),
            "PULSAR_MEM": os.environ.get("PULSAR_MEM", "-Xms256m -Xmx768m -XX:MaxDirectMemorySize=768m"),
            "PULSAR_LOG_DIR": str(scratch / "logs"),
        }
        command = [str(home / "bin" / "pulsar"), "standalone", "-nfw", "-nss", "-a", "127.0.0.1"]
        command += ["--bookkeeper-dir", str(scratch / "bookkeeper"), "--metadata-dir", str(scratch / "metadata")]
        command += ["--bookkeeper-port", str(bookie_port)]
        with (scratch / "log").open("wb") as log:
            server = subprocess.Popen(command, cwd=scratch, env=environment, stdout=log, stderr=log)
        try:
            wait_until_ready(server, f"http://127.0.0.1:{web_port}", scratch / "log")
            tests = os.environ | {
                "MAGNETAR_TEST_SERVICE_URL": f"pulsar://127.0.0.1:{port}",
                "MAGNETAR_TEST_WEB_URL": f"http://127.0.0.1:{web_port}",
            }
            pytest = [sys.executable, "-m", "pytest", "-n0", *(sys.argv[1:] or SUITE)]
            return subprocess.run(pytest, env=tests, check=False).returncode
        finally:
            server.terminate()
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


if __name__ == "__main__":
    sys.exit(main())
