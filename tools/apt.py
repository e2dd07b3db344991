# SPDX-License-Identifier: Apache-2.0
"""Packages of the system, installed where apt is there and may be used: one at a time, whoever else asks for one.

Test processes that run side by side find the same package missing in the same moment, and dpkg refuses the second.
Carries.
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

# How long apt waits for others of the system that hold its locks.
_OTHERS_WAIT_S: Final = 300


def may_install() -> bool:
    return shutil.which("apt-get") is not None and os.geteuid() == 0


def install(package: str, is_there: Callable[[], bool]) -> str:
    """Why it could not be installed; "" when it was, or when somebody else had done it by the time of our turn."""
    if not may_install():
        return "apt-get is not there, or not for this user"
    with _turn():
        if is_there():
            return ""
        _apt("update")
        done = _apt("install", "-y", "--no-install-recommends", package)
    return done.stderr[-300:] or f"exit code {done.returncode}" if done.returncode else ""


def renew_lists() -> None:
    """Learn of new packages; without success what was known stays."""
    if may_install():
        with _turn():
            _apt("update")


def _apt(*words: str) -> "subprocess.CompletedProcess[str]":
    line = ["apt-get", "-qq", "-o", f"DPkg::Lock::Timeout={_OTHERS_WAIT_S}", *words]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(line, capture_output=True, text=True, check=False, env=environment)


@contextmanager
def _turn() -> Iterator[None]:
    path = Path(tempfile.gettempdir()) / "magnetar-apt.lock"
    held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)
