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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from benchmarks.servers import Server
from tests.processes import free_port
from tools.java import find_java, java_words

VERSION: Final = os.environ.get("PULSAR_VERSION", "4.0.8")
PLUGIN: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.0:copy"
START_LIMIT_S: Final = 180.0
FETCH_LIMIT_S: Final = 1_800.0
NEEDED: Final = ("bin/pulsar", "bin/pulsar-admin", "bin/pulsar-perf", "conf/standalone.conf")
"""What loads use of a distribution."""


class Missing(Exception):
    """A peer cannot be had on this machine; the text says why."""


def java_for(what: str) -> str:
    java = find_java()
    if java is None:
        raise Missing(f"{what} needs a Java of 17 or newer")
    return java


def java_told() -> str:
    """The Java that runs peers, in the words of a run."""
    java = find_java()
    return f"Java {(java and java_words(java)) or 'of an unknown version'}"


def heap_of(distribution: Path) -> str:
    """PULSAR_MEM, or else what upstream's script sets it to."""
    named = os.environ.get("PULSAR_MEM")
    if named:
        return f"PULSAR_MEM={named}"
    script = distribution / "conf" / "pulsar_env.sh"
    found = re.search(r'(?m)^PULSAR_MEM=\$\{PULSAR_MEM:-"([^"]+)"\}', script.read_text() if script.is_file() else "")
    return f"upstream's heap ({found[1]})" if found else "upstream's heap"


def cached(name: str) -> Path:
    """Where something that is fetched once is kept; it comes there whole or not at all."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "magnetar" / name


@contextmanager
def fetching(what: str, kept: Path) -> Iterator[Path]:
    """A directory to fetch into, beside the one in which what is whole is kept."""
    if shutil.which("mvn") is None:
        raise Missing(f"{what} is fetched by Maven, which is not here")
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="fetch-", dir=kept.parent) as scratch:
            yield Path(scratch)
    except OSError as error:
        raise Missing(f"{what} cannot be fetched into {kept.parent}: {error}") from None


def keep(whole: Path, kept: Path) -> None:
    """Put what was fetched in its place; a broken one that lies there goes."""
    if kept.exists():
        shutil.rmtree(kept)
    whole.rename(kept)


def run_to_fetch(what: str, command: list[str], limit_s: float | None = None) -> None:
    """Run a step of fetching; `Missing`, with the end of what it said, when it fails or hangs."""
    limit_s = FETCH_LIMIT_S if limit_s is None else limit_s
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        said, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        # Its session: a script's child would hold on to the pipe.
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise Missing(f"{what} could not be fetched: {command[0]} ran for {limit_s:.0f} s without an end") from None
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    if process.returncode:
        words = " ".join(said[-300:].split())
        raise Missing(f"{what} could not be fetched: {command[0]} ended with {process.returncode}: {words}")


def is_whole(distribution: Path) -> bool:
    return all((distribution / name).is_file() for name in NEEDED) and _broker_jar(distribution) is not None


def _broker_jar(distribution: Path) -> Path | None:
    return next(iter(sorted((distribution / "lib").glob("org.apache.pulsar-pulsar-broker-[0-9]*.jar"))), None)


def home() -> Path:
    """The unpacked distribution; fetched when it is not there."""
    what = f"Apache Pulsar {VERSION}"
    java_for(what)
    named = os.environ.get("REFERENCE_PULSAR")
    if named:
        if not is_whole(Path(named)):
            raise Missing(f"REFERENCE_PULSAR names no whole, unpacked distribution of Apache Pulsar: {named}")
        return Path(named)
    unpacked = cached(f"apache-pulsar-{VERSION}")
    if is_whole(unpacked):
        return unpacked
    with fetching(what, unpacked) as scratch:
        artifact = f"org.apache.pulsar:pulsar-server-distribution:{VERSION}:tar.gz:bin"
        run_to_fetch(what, ["mvn", "-q", "-B", PLUGIN, f"-Dartifact={artifact}", f"-DoutputDirectory={scratch}"])
        for archive in scratch.glob("*.tar.gz"):
            run_to_fetch(what, ["tar", "-xzf", str(archive), "-C", str(scratch)])
        if not is_whole(scratch / unpacked.name):
            raise Missing(f"{what} could not be fetched: what came is not a whole distribution")
        keep(scratch / unpacked.name, unpacked)
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
        jar = _broker_jar(self.distribution)
        found = re.search(r"broker-(\d[\w.]*)\.jar", jar.name) if jar else None
        release = found[1] if found else VERSION
        heap = heap_of(self.distribution)
        return f"Apache Pulsar {release} standalone, {java_told()}, {heap}, journalSyncData=true"

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
