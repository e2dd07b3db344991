# SPDX-License-Identifier: Apache-2.0
"""The compose file: read by docker-compose where that is there, and run, every service in a network of its own."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.deploy.checks import DEPLOY, check_command, check_settings, skip_or_fail

COMPOSE = DEPLOY / "compose" / "compose.yaml"


def test_the_compose_file_is_one() -> None:
    tool = shutil.which("docker-compose")
    if tool is None:
        skip_or_fail("no docker-compose: the compose file is read as YAML only")
    line = [tool, "--file", "-", "--project-name", "magnetar", "config", "--quiet"]
    # The Python tool is older than the key `name`.
    text = "\n".join(each for each in COMPOSE.read_text().splitlines() if not each.startswith("name:"))
    text = text.replace("context: ../..", f"context: {DEPLOY.parent}")
    done = subprocess.run(line, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.feature("F-DEP-03")
def test_compose_starts_three_stores_three_bookies_two_brokers_and_a_proxy() -> None:
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    roles = [re.sub(r"-\d+$", "", name) for name in services]
    assert {role: roles.count(role) for role in roles} == {
        "zookeeper": 3,
        "initialize": 1,
        "bookie": 3,
        "broker": 2,
        "proxy": 1,
    }
    for name, service in services.items():
        if name.startswith("zookeeper"):
            continue
        check_command(service["command"])
        check_settings(service["command"], service.get("environment", {}))
        assert all(other in services for other in service["depends_on"])
        assert name == "initialize" or "healthcheck" in service


@pytest.mark.feature("F-DEP-03")
@pytest.mark.timeout(900)
def test_what_compose_starts_becomes_healthy_and_carries_messages(tmp_path: Path) -> None:
    """Without a container engine: every service in a network of its own, with the file's commands and settings."""
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("ip") is None:
        skip_or_fail("networks of their own need root, unshare and ip")
    program = [sys.executable, "-m", "tests.deploy.compose_in_namespaces", str(tmp_path)]
    line = ["unshare", "--net", "--mount", "--fork", "--kill-child", *program]
    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd=DEPLOY.parent)
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert sorted(seen["healthy"]) == sorted(set(yaml.safe_load(COMPOSE.read_text())["services"]) - {"initialize"})
    assert seen["received"] == [str(number) for number in range(10)]
    assert "compose" in seen["clusters"]
    assert sorted(seen["brokers"]) == ["broker-1:8080", "broker-2:8080"]
    assert {seen["exit"][name] for name in ("bookie-1", "broker-1", "proxy", "initialize")} == {0}
