# SPDX-License-Identifier: Apache-2.0
"""What `python -m benchmarks` does before it measures: it chooses loads, and looks at the disk."""

import os
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from benchmarks import __main__ as command
from benchmarks import publishing, servers
from benchmarks.__main__ import LOADS, chosen_loads, fitting, left_gb
from benchmarks.figures import Figure, Scale
from benchmarks.peers import Missing
from benchmarks.results import HOUSE, Run, Side
from benchmarks.servers import Disk, Magnetar, disk_of
from benchmarks.shared_servers import SharedServers


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


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("bench", (": half an hour;", "--quick four minutes,", "--full more than an hour")),
        ("bench-peers", (": an hour;", "--full hours.")),
    ],
)
def test_the_page_and_the_list_of_targets_agree_about_how_long_it_takes(target: str, words: tuple[str, ...]) -> None:
    told = [
        next(line for line in (HOUSE / name).read_text().splitlines() if line.startswith(begins))
        for name, begins in (("Makefile", f"{target}:"), ("docs/performance.md", f"make {target} "))
    ]
    assert [word for word in words for line in told if word not in line] == []


def test_a_directory_that_is_not_there_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks", "--directory", str(tmp_path / "nowhere")])
    with pytest.raises(SystemExit):
        command.main()
    assert "nowhere" in capsys.readouterr().err


def test_more_is_left_on_the_disk_at_larger_scales_and_beside_peers() -> None:
    (load,) = chosen_loads(["publish-raw"], peers=True)
    assert left_gb(load, Scale("quick"), 1) < left_gb(load, Scale("usual"), 1)
    assert left_gb(load, Scale("usual"), 2) == 2 * left_gb(load, Scale("usual"), 1)


def test_shared_servers_are_given_back_only_when_the_next_load_would_not_fit(tmp_path: Path) -> None:
    class Server:
        def __init__(self, directory: Path) -> None:
            self.directory = directory

        def __enter__(self) -> "Server":
            self.directory.mkdir()
            return self

        def __exit__(self, *ended: object) -> None:
            assert self.directory.exists()

    begun: list[Server] = []
    room_gb = 10.0
    with closing(SharedServers(tmp_path, lambda: room_gb)) as shared:
        assert not shared.make_room(11.0)
        first = shared.of("magnetar", Server, begun.append)
        assert shared.of("magnetar", Server, begun.append) is first
        room_gb = 4.0
        assert not shared.make_room(4.0)
        assert list(tmp_path.iterdir()) == [first.directory]
        assert shared.make_room(4.5)
        assert list(tmp_path.iterdir()) == []
        room_gb = 10.0
        second = shared.of("magnetar", Server, begun.append)
        assert begun == [first, second]
        assert not shared.make_room(10.0)
    assert list(tmp_path.iterdir()) == []


def test_loads_that_do_not_fit_are_left_out_aloud_and_a_disk_in_memory_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    remarks: list[str] = []
    loads = chosen_loads(["publish-perf", "shell"], peers=True)

    def found(disk: Disk) -> list[str]:
        return [load.name for load in fitting(loads, disk, Scale("usual"), 2, remarks)]

    assert found(Disk("ext4", "/dev/sda1", 50.0, 100.0)) == ["publish-perf", "shell"]
    assert remarks == []
    assert found(Disk("ext4", "/dev/sda1", 38.0, 40.0)) == ["shell"], "servers stop before it is full"
    assert remarks[0].startswith("SKIPPED publish-perf: it needs about 37 GB, but data on ext4 (/dev/sda1), 38 GB free")
    assert "of which servers use 36:" in remarks[0]
    assert found(Disk("tmpfs", "tmpfs", 50.0)) == ["publish-perf", "shell"]
    assert remarks[1].startswith("NO DISK: data on tmpfs (tmpfs), 50 GB free")
    assert all(remark in capsys.readouterr().err for remark in remarks[1:])


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


def test_new_servers_for_want_of_room_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Server:
        pid = os.getpid()

        def __init__(self, directory: Path) -> None:
            pass

        def __enter__(self) -> "Server":
            return self

        def __exit__(self, *ended: object) -> None:
            pass

    load = command.Load("group", "large", shared=lambda server, scale: [Figure("rate", 1.0, "msg/s")], rounds=2)
    load = load._replace(disk_gb=(3.0, 3.0, 3.0))
    run = Run("bench", "machine", "quick", [Side("magnetar", "")], tmp_path / "results")
    rooms_gb = iter([5.0, 2.0])
    with closing(SharedServers(tmp_path, lambda: next(rooms_gb))) as shared:
        shared.of("magnetar", Server, lambda server: None)
        bench = command._Bench([Magnetar()], None, tmp_path, Scale("quick"), None, shared, run)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(command, "until_settled", lambda pid: None)
            patched.setattr(Magnetar, "server", lambda self, directory: Server(directory))
            patched.setattr(publishing, "warm_up", lambda server, scale: None)
            bench.measure(load)
            assert run.remarks == []
            bench.measure(load)
    assert run.remarks == ["NEW SERVERS for large and what follows: with what was left by then, it would not fit"]
    assert run.remarks[0] in capsys.readouterr().err


def test_what_a_load_of_its_own_server_left_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fresh(peer: object, directory: Path, scale: Scale) -> list[Figure]:
        directory.mkdir()
        (directory / "data").touch()
        return [Figure("rate", 1.0, "msg/s")]

    load = command.Load("group", "load", fresh=fresh)
    run = Run("bench", "machine", "quick", [Side("magnetar", "")], tmp_path / "results")
    place = tmp_path / "data"
    place.mkdir()
    with closing(SharedServers(place, lambda: 10.0)) as shared:
        command._Bench([Magnetar()], None, place, Scale("quick"), None, shared, run).measure(load)
    assert [row["number"] for row in run.document()["rows"]] == [1.0]
    assert list(place.iterdir()) == []
