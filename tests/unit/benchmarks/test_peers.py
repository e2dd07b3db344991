# SPDX-License-Identifier: Apache-2.0
"""A peer that cannot be had is one line that says why, and is not taken for one later."""

import contextlib
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from benchmarks import peers
from benchmarks.__main__ import had
from benchmarks.kafka_peer import BROKER_VERSION, KafkaBrokers
from benchmarks.peers import NEEDED, ApachePulsar, Missing, run_to_fetch
from benchmarks.servers import Magnetar
from tests.conftest import Eventually

JAR = "lib/org.apache.pulsar-pulsar-broker-4.0.8.jar"
MVN = """#!/bin/sh
for word; do case $word in -DoutputDirectory=*) out=${word#*=};; esac; done
mkdir -p "$out"
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache on a machine with Java and with a Maven that fetches nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.delenv("REFERENCE_PULSAR", raising=False)
    monkeypatch.setattr(peers, "find_java", lambda: "java")
    maven(tmp_path, "")
    return tmp_path / "cache" / "magnetar"


def maven(directory: Path, does: str) -> None:
    path = directory / "bin" / "mvn"
    path.parent.mkdir(exist_ok=True)
    path.write_text(MVN + does)
    path.chmod(0o755)


def distribution(directory: Path, *without: str) -> Path:
    for name in (*NEEDED, JAR):
        if name not in without:
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).touch()
    return directory


def running_sessions() -> list[int]:
    """The session of every process that runs; one that has ended and that nobody has asked about runs no more."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, session = path.read_text().rpartition(")")[2].split()[:4]
            if state != "Z":
                found.append(int(session))
    return found


def skipped(capsys: pytest.CaptureFixture[str], kind: type[ApachePulsar] | type[KafkaBrokers] = ApachePulsar) -> str:
    remarks: list[str] = []
    assert had(kind.name, kind, remarks) is None
    (line,) = remarks
    assert capsys.readouterr().err == line + "\n"
    assert line.startswith(f"SKIPPED {kind.name}: ")
    return line


def test_one_that_is_cached_is_had(cache: Path) -> None:
    distribution(cache / f"apache-pulsar-{peers.VERSION}")
    assert "Apache Pulsar 4.0.8" in ApachePulsar().words()


def test_the_words_of_a_peer_name_its_heap_and_its_java(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = distribution(cache / f"apache-pulsar-{peers.VERSION}")
    (kept / "conf" / "pulsar_env.sh").write_text('# The heap\nPULSAR_MEM=${PULSAR_MEM:-"-Xms2g -Xmx2g"}\n')
    monkeypatch.setattr(peers, "java_words", lambda program: "17.0.15")
    monkeypatch.delenv("PULSAR_MEM", raising=False)
    said = "Apache Pulsar 4.0.8 standalone, Java 17.0.15, upstream's heap (-Xms2g -Xmx2g), journalSyncData=true"
    assert ApachePulsar().words() == said
    monkeypatch.setenv("PULSAR_MEM", "-Xmx512m")
    assert "Java 17.0.15, PULSAR_MEM=-Xmx512m," in ApachePulsar().words()
    for name in (f"kafka-{BROKER_VERSION}", f"kafka-tools-{BROKER_VERSION}"):
        (cache / name).mkdir()
        (cache / name / "one.jar").touch()
    assert f"Apache Kafka {BROKER_VERSION} (KRaft, Java 17.0.15, -Xms1G -Xmx1G " in KafkaBrokers().words()
    assert f"official client {version('pulsar-client')}, " in Magnetar().words()


@pytest.mark.parametrize("kind", [ApachePulsar, KafkaBrokers])
def test_one_that_is_cached_needs_java(
    cache: Path,
    kind: type[ApachePulsar] | type[KafkaBrokers],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    distribution(cache / f"apache-pulsar-{peers.VERSION}")
    monkeypatch.setattr(peers, "find_java", lambda: None)
    assert "needs a Java of 17 or newer" in skipped(capsys, kind)


def test_a_named_one_has_to_be_whole(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REFERENCE_PULSAR", str(tmp_path / "nowhere"))
    assert "REFERENCE_PULSAR names no whole" in skipped(capsys)
    monkeypatch.setenv("REFERENCE_PULSAR", str(distribution(tmp_path / "half", JAR)))
    assert "REFERENCE_PULSAR names no whole" in skipped(capsys)


@pytest.mark.parametrize("kind", [ApachePulsar, KafkaBrokers])
def test_the_cache_cannot_be_used(
    cache: Path, kind: type[ApachePulsar] | type[KafkaBrokers], capsys: pytest.CaptureFixture[str]
) -> None:
    cache.parent.parent.mkdir(exist_ok=True)
    cache.parent.touch()
    assert "cannot be fetched into" in skipped(capsys, kind)


@pytest.mark.parametrize("kind", [ApachePulsar, KafkaBrokers])
def test_maven_fails_or_brings_nothing(
    cache: Path, tmp_path: Path, kind: type[ApachePulsar] | type[KafkaBrokers], capsys: pytest.CaptureFixture[str]
) -> None:
    maven(tmp_path, "echo no such artifact; exit 1")
    assert "mvn ended with 1: no such artifact" in skipped(capsys, kind)
    maven(tmp_path, "rmdir $out")
    assert "fetched" in skipped(capsys, kind)
    assert list(cache.iterdir()) == []


def test_an_archive_that_cannot_be_unpacked_leaves_nothing(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = distribution(tmp_path / f"apache-pulsar-{peers.VERSION}")
    (whole / "lib" / "large").write_bytes(bytes(range(256)) * 4096)
    subprocess.run(["tar", "-czf", tmp_path / "whole.tar.gz", "-C", tmp_path, whole.name], check=True)
    maven(tmp_path, f"head -c 1000 {tmp_path}/whole.tar.gz > $out/pulsar.tar.gz")
    assert "tar ended with" in skipped(capsys)
    assert list(cache.iterdir()) == []
    # What somebody else unpacked by half does not count either, and goes when a whole one comes.
    distribution(cache / whole.name, "conf/standalone.conf")
    maven(tmp_path, f"cp {tmp_path}/whole.tar.gz $out/pulsar.tar.gz")
    assert (ApachePulsar().distribution / "conf" / "standalone.conf").exists()
    assert [each.name for each in cache.iterdir()] == [whole.name]


def test_a_fetch_that_hangs_is_given_up_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    sessions: list[int] = []

    class Noted(subprocess.Popen[str]):
        def communicate(self, input: str | None = None, timeout: float | None = None) -> tuple[str, str]:
            if timeout is not None:
                sessions.append(self.pid)
                # It hangs from the moment on at which its child is there.
                eventually((tmp_path / "child").exists)
            return super().communicate(input, timeout)

    monkeypatch.setattr(subprocess, "Popen", Noted)
    maven(tmp_path, f"(sleep 20; touch {tmp_path}/waited-for) & touch {tmp_path}/child; wait")
    with pytest.raises(Missing, match="ran for 0 s without an end"):
        run_to_fetch("It", [str(tmp_path / "bin" / "mvn"), f"-DoutputDirectory={tmp_path}"], 0.2)
    eventually(lambda: not any(session in sessions for session in running_sessions()))
    assert not (tmp_path / "waited-for").exists()
