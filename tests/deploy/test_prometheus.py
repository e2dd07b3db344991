# SPDX-License-Identifier: Apache-2.0
"""Prometheus's own tool reads what is shipped for it, and what broker, bookie and proxy give it to scrape."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.cluster import Cluster, ProxyRole
from tools.promtool import find
from tools.zookeeper import Missing

DEPLOY = Path(__file__).parents[2] / "deploy"
# promtool's exit codes of `check metrics`.
FINE, STYLE = 0, 3
# What the names of Apache Pulsar and BookKeeper, which dashboards ask for, do to its rules of style. Names of our own
# keep all of them.
THEIR_STYLE = (
    r'counter metrics should have "_total" suffix',
    r'non-counter metrics should not have "_total" suffix',
    r'non-histogram(?: and non-summary)? metrics should not have "_(?:count|sum|bucket)" suffix',
    r"use base unit",
    r"metric names should not contain abbreviated units",
    r"metric names should be written in 'snake_case' not 'camelCase'",
    r"label names should be written in 'snake_case' not 'camelCase'",
    r"no help text",
)
THEIRS = re.compile(rf"(?:pulsar|bookie|bookkeeper|replication_worker)_\S* (?:{'|'.join(THEIR_STYLE)})")


def promtool(*words: str, text: str | None = None) -> "subprocess.CompletedProcess[str]":
    try:
        tool = find()
    except Missing as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(f"NOT TESTED: {error}")
    return subprocess.run(
        [tool, *words], cwd=DEPLOY / "prometheus", input=text, capture_output=True, text=True, check=False
    )


def test_the_configuration_and_its_rules_are_good() -> None:
    ended = promtool("check", "config", "prometheus.yml")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "SUCCESS" in ended.stdout


def test_the_rules_fire_when_they_should() -> None:
    ended = promtool("test", "rules", "rules_test.yml")
    assert ended.returncode == 0, ended.stdout + ended.stderr


def expressions(board: dict[str, Any]) -> list[str]:
    """What the panels ask, with something in place of the board's variables."""
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    for each in board["templating"]["list"]:
        asked = [text.replace(f"${each['name']}", "any") for text in asked]
    return [text.replace("$__rate_interval", "5m") for text in asked]


@pytest.mark.feature("F-MET-13")
@pytest.mark.parametrize("board", sorted((DEPLOY / "grafana").glob("*.json")), ids=lambda path: path.stem)
def test_what_the_panels_of_a_board_ask_is_promql(board: Path, tmp_path: Path) -> None:
    asked = expressions(json.loads(board.read_text(encoding="utf-8")))
    assert asked
    rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(asked)]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": board.stem, "rules": rules}]}))
    ended = promtool("check", "rules", str(file))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{len(asked)} rules found" in ended.stdout
    file.write_text(file.read_text().replace("sum", "summ").replace("rate(", "rate(("))
    assert promtool("check", "rules", str(file)).returncode != 0, "what is no PromQL is not taken"


@pytest.mark.feature("F-MET-13")
def test_what_is_scraped_from_each_role_is_well_formed(tmp_path: Path) -> None:
    promtool("--version")
    with Cluster(tmp_path, bookies=1, environment={"exposeConsumerLevelMetricsInPrometheus": "true"}) as cluster:
        proxy = ProxyRole("proxy", tmp_path, cluster.metadata_url, {})
        cluster.others.append(proxy)
        proxy.start()
        for role in (*cluster.brokers, *cluster.bookies, proxy):
            text = httpx.get(f"{role.web_url}/metrics", timeout=30).text
            ended = promtool("check", "metrics", text=text)
            assert ended.returncode in (FINE, STYLE), f"{role.name}: {ended.stderr[:2000]}"
            said = [line for line in ended.stderr.splitlines() if not THEIRS.fullmatch(line)]
            assert not said, f"{role.name}: {said}"
