# SPDX-License-Identifier: Apache-2.0
"""`magnetar standalone` as a person meets it: what it says, where it refuses, how it stops and starts again."""

import json
import os
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import pulsar
import pytest

from tests.processes import StandaloneProcess, free_port, launched

QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)


def run_to_the_end(standalone: StandaloneProcess) -> "subprocess.CompletedProcess[str]":
    """Whatever it says counts as said on stderr."""
    with tempfile.TemporaryDirectory() as directory:
        said = Path(directory, "said")
        code = launched(standalone.command(), said, dict(os.environ)).wait(60)
        return subprocess.CompletedProcess(standalone.command(), code, "", said.read_text())


@pytest.mark.feature("F-DEP-01")
def test_it_says_where_it_serves_and_how_to_stop_it(tmp_path: Path) -> None:
    with StandaloneProcess(tmp_path, cold=True) as standalone:
        banner = standalone.log_path.read_text()
        assert standalone.service_url in banner
        assert str(standalone.data_directory) in banner
        assert "cluster 'standalone'" in banner
        assert f"SIGTERM to process {standalone.pid}" in banner
        ready = json.loads((tmp_path / "ready.json").read_text())
        assert (ready["serviceUrl"], ready["pid"]) == (standalone.service_url, standalone.pid)


def test_port_0_picks_a_free_one(tmp_path: Path) -> None:
    standalone = StandaloneProcess(tmp_path)
    standalone.port = 0
    with standalone:
        url = json.loads((tmp_path / "ready.json").read_text())["serviceUrl"]
        client = pulsar.Client(url, logger=QUIET)
        client.create_producer("any").send(b"stored")
        client.close()


def test_a_port_in_use_is_one_sentence_that_names_the_flag(tmp_path: Path) -> None:
    standalone = StandaloneProcess(tmp_path)
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", standalone.port))
        holder.listen()
        ended = run_to_the_end(standalone)
    assert ended.returncode != 0
    assert ended.stderr.count("\n") == 1
    assert f"Port 127.0.0.1:{standalone.port} is in use" in ended.stderr
    assert "--port" in ended.stderr


def test_a_data_directory_in_use_is_one_sentence_and_the_holder_goes_on(tmp_path: Path) -> None:
    with StandaloneProcess(tmp_path) as first:
        second = StandaloneProcess(tmp_path)
        ended = run_to_the_end(second)
        assert ended.returncode != 0
        assert ended.stderr.count("\n") == 1
        assert str(first.data_directory) in ended.stderr
        assert "--data-dir" in ended.stderr
        client = pulsar.Client(first.service_url, logger=QUIET)
        client.create_producer("still-there").send(b"stored")
        client.close()


@pytest.mark.parametrize("blocked", ["a file", "below a file", "no permission"])
def test_a_data_directory_that_cannot_be_used_is_one_sentence(tmp_path: Path, blocked: str) -> None:
    standalone = StandaloneProcess(tmp_path)
    if blocked == "a file":
        standalone.data_directory.write_text("not a directory")
    elif blocked == "below a file":
        (tmp_path / "file").write_text("not a directory")
        standalone = StandaloneProcess(tmp_path / "file")
    else:
        standalone = StandaloneProcess(Path("/proc/1"))
    ended = run_to_the_end(standalone)
    assert ended.returncode != 0
    assert ended.stderr.count("\n") == 1, ended.stderr
    assert "--data-dir" in ended.stderr


def test_a_full_disk_at_the_start_is_one_sentence(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        assert "CI" not in os.environ, "CI mounts a small file system as root"
        pytest.skip("mounting a small file system needs root")
    try:
        (small / "filler").write_bytes(bytes(60 * 1024))
        ended = run_to_the_end(StandaloneProcess(small))
        assert ended.returncode != 0
        assert "space" in ended.stderr
        assert "--data-dir" in ended.stderr
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_bad_value_in_a_file_stops_the_start_with_key_value_and_what_is_allowed(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("# ours\nkeepAliveIntervalSeconds=soon\n")
    ended = run_to_the_end(StandaloneProcess(tmp_path, "--config", str(config)))
    assert ended.returncode != 0
    for word in ("keepAliveIntervalSeconds", "soon", str(config), "2"):
        assert word in ended.stderr


def test_an_unknown_key_is_a_warning_that_names_the_nearest_known_one(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("keepAliveIntervalSecond=45\n")
    with StandaloneProcess(tmp_path, "--config", str(config)) as standalone:
        said = standalone.log_path.read_text()
        assert "keepAliveIntervalSecond" in said
        assert "keepAliveIntervalSeconds" in said


@pytest.mark.feature("F-DEP-13")
def test_sigterm_drains_and_a_restart_has_everything(tmp_path: Path) -> None:
    with StandaloneProcess(tmp_path) as standalone:
        client = pulsar.Client(standalone.service_url, logger=QUIET)
        producer = client.create_producer("kept")
        sent = [producer.send(f"m-{index}".encode()) for index in range(20)]
        client.close()
        assert standalone.stop() == 0
        standalone.start()
        client = pulsar.Client(standalone.service_url, logger=QUIET)
        reader = client.create_reader("kept", pulsar.MessageId.earliest)
        read = [reader.read_next(timeout_millis=10_000) for _ in sent]
        assert [message.data() for message in read] == [f"m-{index}".encode() for index in range(20)]
        client.close()


def test_wipe_empties_a_directory_of_ours_and_refuses_any_other(tmp_path: Path) -> None:
    with StandaloneProcess(tmp_path) as standalone:
        client = pulsar.Client(standalone.service_url, logger=QUIET)
        client.create_producer("gone").send(b"stored")
        client.close()
        standalone.stop()
        wiping = StandaloneProcess(tmp_path, "--wipe")
        with wiping:
            client = pulsar.Client(wiping.service_url, logger=QUIET)
            reader = client.create_reader("gone", pulsar.MessageId.earliest)
            assert not reader.has_message_available()
            client.close()
    stranger = StandaloneProcess(tmp_path / "strange", "--wipe")
    stranger.data_directory.mkdir(parents=True)
    (stranger.data_directory / "precious").write_text("keep me")
    assert run_to_the_end(stranger).returncode != 0
    assert (stranger.data_directory / "precious").read_text() == "keep me"


def test_a_second_signal_stops_hard(tmp_path: Path) -> None:
    with StandaloneProcess(tmp_path) as standalone:
        os.kill(standalone.pid, signal.SIGTERM)
        os.kill(standalone.pid, signal.SIGTERM)
        assert standalone.wait() in (0, 128 + signal.SIGTERM)


def test_two_standalones_do_not_disturb_each_other(tmp_path: Path) -> None:
    assert free_port() != 0
    with StandaloneProcess(tmp_path / "a") as one, StandaloneProcess(tmp_path / "b") as two:
        for standalone, text in ((one, b"of one"), (two, b"of two")):
            client = pulsar.Client(standalone.service_url, logger=QUIET)
            client.create_producer("same-name").send(text)
            reader = client.create_reader("same-name", pulsar.MessageId.earliest)
            assert reader.read_next(timeout_millis=10_000).data() == text
            assert not reader.has_message_available()
            client.close()
