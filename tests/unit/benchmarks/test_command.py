# SPDX-License-Identifier: Apache-2.0
"""What `python -m benchmarks` does before it measures: it chooses loads, and looks at the disk."""

from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from benchmarks import __main__ as command
from benchmarks import servers
from benchmarks.__main__ import LOADS, chosen_loads, needed_gb, unfit
from benchmarks.figures import Figure, Scale
from benchmarks.peers import Missing
from benchmarks.results import Run, Side
from benchmarks.servers import Disk, Magnetar, disk_of


def test_a_word_that_chooses_nothing_is_an_error_before_a_peer_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks", "--peers", "--only", "latency", "nosuchload"])
    monkeypatch.setattr(command, "ApachePulsar", lambda: pytest.fail("looked for a peer"))
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "no load is named 'nosuchload'" in said
    assert all(load.name in said for load in LOADS)


def test_a_load_of_peers_alone_is_not_chosen_without_them() -> None:
    assert [load.name for load in chosen_loads(["publish-perf"], peers=True)] == ["publish-perf"]
    with pytest.raises(ValueError, match="no load without --peers is named 'publish-perf'"):
        chosen_loads(["publish-perf"], peers=False)
    assert len(chosen_loads([], peers=True)) == len(LOADS)


def test_a_load_whose_generator_is_missing_is_skipped_aloud_and_nothing_is_not_a_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> None:
        raise Missing("none here")

    monkeypatch.setattr("sys.argv", ["benchmarks", "--peers", "--quick", "--only", "publish-perf"])
    monkeypatch.setattr(command, "ApachePulsar", missing)
    monkeypatch.setattr(command, "KafkaBrokers", missing)
    assert command.main() == 2
    assert capsys.readouterr().err.splitlines() == [
        "SKIPPED pulsar: none here",
        "SKIPPED kafka: none here",
        "SKIPPED publish-perf: its generator is Apache Pulsar's",
    ]


def test_a_directory_that_is_not_there_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks", "--directory", str(tmp_path / "nowhere")])
    with pytest.raises(SystemExit):
        command.main()
    assert "nowhere" in capsys.readouterr().err


def test_more_is_needed_of_the_disk_at_larger_scales_beside_peers_and_for_more_loads() -> None:
    def needs(scale: str, sides: int, *words: str) -> float:
        return needed_gb(chosen_loads(list(words), peers=sides > 1), Scale(scale), sides, None)

    assert needs("quick", 1) < needs("usual", 1) < needs("full", 1)
    assert needs("usual", 1) < needs("usual", 2)
    assert needs("usual", 2, "latency") < needs("usual", 2)


def test_a_disk_that_is_too_full_is_refused_and_one_in_memory_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    remarks: list[str] = []
    refused = unfit(Disk("ext4", "/dev/sda1", 4.0), 20.0, remarks)
    assert refused is not None
    assert "need about 20 GB, but data on ext4 (/dev/sda1), 4 GB free" in refused
    assert unfit(Disk("ext4", "/dev/sda1", 40.0), 20.0, remarks) is None
    assert remarks == []
    assert unfit(Disk("tmpfs", "tmpfs", 40.0), 20.0, remarks) is None
    assert remarks[0].startswith("NO DISK: data on tmpfs (tmpfs), 40 GB free")
    assert remarks[0] in capsys.readouterr().err


def test_the_disk_is_that_of_the_innermost_and_uppermost_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def mounted(device: str, place: str, kind: str) -> SimpleNamespace:
        return SimpleNamespace(device=device, mountpoint=place, fstype=kind)

    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "inner-beside").mkdir()
    found = [
        mounted("/dev/a", "/", "ext4"),
        mounted("/dev/b", str(inner), "xfs"),
        mounted("tmpfs", str(inner), "tmpfs"),
    ]
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: found)
    assert disk_of(inner)[:2] == ("tmpfs", "tmpfs")
    assert disk_of(tmp_path / "inner-beside")[:2] == ("ext4", "/dev/a")
    assert "data on ext4 (/dev/a), " in servers.machine_words(tmp_path)


def test_what_a_load_of_its_own_server_left_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fresh(peer: object, directory: Path, scale: Scale) -> list[Figure]:
        directory.mkdir()
        (directory / "data").touch()
        return [Figure("rate", 1.0, "msg/s")]

    load = command.Load("group", "load", fresh=fresh)
    run = Run("bench", "machine", "quick", [Side("magnetar", "")], tmp_path / "results")
    place = tmp_path / "data"
    place.mkdir()
    with ExitStack() as stack:
        command._Bench([Magnetar()], None, place, Scale("quick"), None, stack, run).measure(load)
    assert [row["number"] for row in run.document()["rows"]] == [1.0]
    assert list(place.iterdir()) == []
