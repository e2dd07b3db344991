# SPDX-License-Identifier: Apache-2.0
"""The units for systemd, by systemd itself."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.checks import DEPLOY, check_command, skip_or_fail

UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_units_are_verified_by_systemd(unit: Path, tmp_path: Path) -> None:
    text = unit.read_text()
    command = re.findall(r"(?m)^ExecStart=/usr/bin/magnetar (.+)$", text)[0].split()
    check_command(command)
    if shutil.which("systemd-analyze") is None:
        skip_or_fail("no systemd-analyze")
    copy = tmp_path / unit.name
    copy.write_text(text.replace("/usr/bin/magnetar", str(Path(sys.executable).parent / "magnetar")))
    done = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False)
    said = [line for line in done.stderr.splitlines() if unit.stem in line]
    assert done.returncode == 0 or not said, done.stderr
