# SPDX-License-Identifier: Apache-2.0
"""Apache Pulsar, to be measured beside us: its published distribution, fetched by Maven, as upstream starts it.

    python -m benchmarks.peers fetch       fetch and unpack it into the cache (about 250 MB)

The heap and every other setting are upstream's own, except the ports, loopback, and that the journal is synced before a
receipt, as ours is. REFERENCE_PULSAR names a distribution that is unpacked already; PULSAR_VERSION another version.
Nothing of it is part of Magnetar.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from benchmarks.servers import Server
from tests.processes import free_port
from tools.java import find_java

VERSION: Final = os.environ.get("PULSAR_VERSION", "4.0.8")
PLUGIN: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.0:copy"
START_LIMIT_S: Final = 180.0


class Missing(Exception):
    """A peer cannot be had on this machine; the text says why."""


def home() -> Path:
    """The unpacked distribution; fetched when it is not there."""
    named = os.environ.get("REFERENCE_PULSAR")
    if named:
        return Path(named)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "magnetar"
    unpacked = cache / f"apache-pulsar-{VERSION}"
    if (unpacked / "bin" / "pulsar").exists():
        return unpacked
    if find_java() is None:
        raise Missing("Apache Pulsar needs a Java of 17 or newer")
    if shutil.which("mvn") is None:
        raise Missing("Apache Pulsar is fetched by Maven, which is not here")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        artifact = f"org.apache.pulsar:pulsar-server-distribution:{VERSION}:tar.gz:bin"
        command = ["mvn", "-q", "-B", PLUGIN, f"-Dartifact={artifact}", f"-DoutputDirectory={scratch}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Missing(
                f"Maven could not fetch Apache Pulsar {VERSION}: {(done.stdout + done.stderr)[-300:].strip()}"
            )
        (archive,) = Path(scratch).glob("*.tar.gz")
        subprocess.run(["tar", "-xzf", str(archive), "-C", scratch], check=True)
        Path(scratch, unpacked.name).rename(unpacked)
    return unpacked


class PulsarServer:
    """`pulsar standalone` on one data directory; start, kill and start again keep the ports."""

    name = "pulsar"

    def __init__(self, distribution: Path, directory: Path, config: dict[str, str] | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.data_directory = directory / "data"
        self._distribution = distribution
        self._port, self._http_port, self._bookie_port = free_port(), free_port(), free_port()
        self._process: subprocess.Popen[bytes] | None = None
        settings = {
            "brokerServicePort": str(self._port),
            "webServicePort": str(self._http_port),
            "bindAddress": "127.0.0.1",
            "advertisedAddress": "127.0.0.1",
            "journalSyncData": "true",
        } | (config or {})
        text = (distribution / "conf" / "standalone.conf").read_text()
        for key, value in settings.items():
            text, found = re.subn(rf"(?m)^{key}=.*$", f"{key}={value}", text)
            text += "" if found else f"\n{key}={value}\n"
        (directory / "standalone.conf").write_text(text)

    @property
    def service_url(self) -> str:
        return f"pulsar://127.0.0.1:{self._port}"

    @property
    def web_url(self) -> str:
        return f"http://127.0.0.1:{self._http_port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def environment(self) -> dict[str, str]:
        own = {
            "PULSAR_STANDALONE_CONF": str(self.directory / "standalone.conf"),
            "PULSAR_LOG_DIR": str(self.directory / "logs"),
        }
        return {**os.environ, **own}

    def start(self) -> None:
        """Start and wait until its namespace can be used."""
        command = [str(self._distribution / "bin" / "pulsar"), "standalone", "-nfw", "-nss", "-a", "127.0.0.1"]
        command += ["--metadata-dir", str(self.data_directory / "metadata")]
        command += ["--bookkeeper-dir", str(self.data_directory / "bookkeeper")]
        command += ["--bookkeeper-port", str(self._bookie_port)]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self.directory, env=self.environment(), start_new_session=True
            )
        until = time.monotonic() + START_LIMIT_S
        while not self._serves():
            if self._process.poll() is not None or time.monotonic() > until:
                tail = (self.directory / "log").read_text(errors="replace")[-600:]
                self.kill()
                raise Missing(f"Apache Pulsar does not start: {tail}")
            time.sleep(0.05)

    def _serves(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.web_url}/admin/v2/namespaces/public/default", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def kill(self) -> None:
        """kill -9 of the session that it was started in, and of nothing else."""
        assert self._process is not None
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def admin(self, *words: str) -> list[str]:
        return [str(self._distribution / "bin" / "pulsar-admin"), "--admin-url", self.web_url, *words]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()


class ApachePulsar:
    """The published distribution; `Missing` when it cannot be had."""

    name = "pulsar"

    def __init__(self) -> None:
        self.distribution = home()

    def words(self) -> str:
        jars = sorted((self.distribution / "lib").glob("org.apache.pulsar-pulsar-broker-[0-9]*.jar"))
        found = re.search(r"broker-(\d[\w.]*)\.jar", jars[0].name) if jars else None
        heap = os.environ.get("PULSAR_MEM", "upstream's heap")
        return f"Apache Pulsar {found[1] if found else VERSION} standalone, {heap}, journalSyncData=true"

    def server(self, directory: Path, config: dict[str, str] | None = None) -> Server:
        return PulsarServer(self.distribution, directory, config)

    def perf(self, *words: str) -> list[str]:
        return [str(self.distribution / "bin" / "pulsar-perf"), *words]


if __name__ == "__main__":
    if sys.argv[1:] != ["fetch"]:
        raise SystemExit(__doc__)
    try:
        print(home())
    except Missing as error:
        raise SystemExit(str(error)) from None
