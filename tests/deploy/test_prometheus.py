# SPDX-License-Identifier: Apache-2.0
"""Prometheus's own tool reads what is shipped for it: the configuration, the rules, and a test of the rules."""

import os
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.processes import StandaloneProcess

DEPLOY = Path(__file__).parents[2] / "deploy" / "prometheus"


def promtool(*words: str, text: str | None = None) -> str:
    tool = os.environ.get("PROMTOOL") or shutil.which("promtool")
    if tool is None:
        reason = "promtool is missing: install Debian's package `prometheus`, or name it by PROMTOOL"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(f"NOT TESTED: {reason}")
    ended = subprocess.run([tool, *words], cwd=DEPLOY, input=text, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def test_the_configuration_and_its_rules_are_good() -> None:
    assert "SUCCESS" in promtool("check", "config", "prometheus.yml")


def test_the_rules_fire_when_they_should() -> None:
    assert "SUCCESS" in promtool("test", "rules", "rules_test.yml")


def test_the_text_of_a_scrape_is_well_formed(tmp_path: Path) -> None:
    """promtool also reports style (names, help); what counts is that it can parse every line."""
    with StandaloneProcess(tmp_path) as standalone:
        text = httpx.get(f"{standalone.web_url}/metrics", timeout=30).text
    tool = os.environ.get("PROMTOOL") or shutil.which("promtool")
    if tool is None:
        promtool("--version")
    assert tool is not None
    ended = subprocess.run([tool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert "error while linting" not in ended.stderr, ended.stderr[:2000]
