# SPDX-License-Identifier: Apache-2.0
"""Packages of the system: whoever asks for one at the same time as others waits, and finds it there."""

import os
import threading
from pathlib import Path

import pytest

from tools import apt

# Refuses to run beside another of its kind, as dpkg does; what it installs is a file.
FAKE = """#!/bin/sh
mkdir "{here}/running" || {{ echo "Could not get lock" >&2; exit 100; }}
echo "$*" >> "{here}/calls"
sleep 0.05
case "$*" in *install*) [ -e "{here}/refuses" ] && code=100 || touch "{here}/installed";; esac
rmdir "{here}/running"
[ -z "$code" ] || echo "no such package" >&2
exit ${{code:-0}}
"""


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "apt-get"
    program.write_text(FAKE.format(here=tmp_path))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_of_many_who_miss_a_package_one_installs_it(system: Path) -> None:
    """A first run on a fresh machine: two workers of one suite wanted etcd, and one of them got dpkg's refusal."""
    troubles: list[str] = []

    def want() -> None:
        troubles.append(apt.install("etcd-server", (system / "installed").exists))

    wanting = [threading.Thread(target=want) for _ in range(4)]
    for each in wanting:
        each.start()
    for each in wanting:
        each.join()
    assert troubles == [""] * 4
    calls = (system / "calls").read_text().splitlines()
    assert len(calls) == 2
    assert calls[0].endswith("update")
    assert calls[1].endswith("install -y --no-install-recommends etcd-server")


def test_what_apt_says_is_passed_on(system: Path) -> None:
    (system / "refuses").touch()
    assert apt.install("nothing-like-it", lambda: False) == "no such package\n"


def test_who_is_not_root_is_told(system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert not apt.may_install()
    assert "not for this user" in apt.install("etcd-server", lambda: False)
    assert not (system / "calls").exists()
