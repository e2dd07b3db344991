# SPDX-License-Identifier: Apache-2.0
"""The processes of a cluster as later commands find them; directories that can hold none are refused in a sentence."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from magnetar.cli import cluster, cluster_plan
from magnetar.cli.cluster_members import ClusterDirectory, incarnation_of, is_paused
from magnetar.cli.cluster_plan import Plan
from magnetar.errors import BadSetting

pytestmark = pytest.mark.feature("F-DEP-05")


def test_a_process_that_was_stopped_by_a_signal_is_told_from_one_that_serves() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert incarnation_of(process.pid)
        assert not is_paused(process.pid)
        os.kill(process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        assert is_paused(process.pid)
        assert incarnation_of(process.pid), "it is still that process"
    finally:
        process.kill()
        process.communicate()


def test_a_file_in_the_place_of_a_directory_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    directory = ClusterDirectory(str(file))

    async def lock() -> None:
        async with directory.locked():
            raise AssertionError("there is nothing to lock")

    assert not directory.is_foreign()
    with pytest.raises(BadSetting, match=r"No cluster can be kept in .*/file: File exists"):
        asyncio.run(lock())
    assert file.read_text() == "mine"


def test_a_cluster_keeps_its_name(tmp_path: Path) -> None:
    asyncio.run(_kept(tmp_path))
    said = CliRunner().invoke(cluster.app, ["up", "--data-dir", str(tmp_path), "--cluster", "other"])
    assert isinstance(said.exception, BadSetting)
    assert "is called 'local'" in str(said.exception)


async def _kept(directory: Path) -> None:
    there = ClusterDirectory(str(directory))
    async with there.locked():
        there.keep(cluster_plan.decode(cluster_plan.encode(Plan("local", "remote:127.0.0.1:999")), "here"))
