# SPDX-License-Identifier: Apache-2.0
"""What is shipped for containers, Compose, Kubernetes and systemd: read by the tools that will read it, where those are
there. Nothing here starts a container; see docs/operating/deployment.md for what that leaves open.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pulsar
import pytest
import yaml
from typer.main import get_command

from magnetar.cli.main import app
from magnetar.cli.role_commands import COMMANDS
from magnetar.config.keys import KEYS
from magnetar.config.known_keys import KNOWN_KEYS
from tests.processes import StandaloneProcess
from tools import helm
from tools.zookeeper import Missing

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "helm" / "magnetar"
COMPOSE = DEPLOY / "compose" / "compose.yaml"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
SETTINGS = {key.name for key in KEYS} | KNOWN_KEYS


def skip_or_fail(reason: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(f"NOT TESTED: {reason}")


def check_command(words: list[str]) -> None:
    """Every word is one that `magnetar` knows, whatever its values."""
    verbs: Any = get_command(app)
    verb = verbs.commands[words[0]]
    known = {name for parameter in verb.params for name in parameter.opts}
    if words[0] in COMMANDS:
        known = {name for each in COMMANDS[words[0]].flags for name in each.names}
    for word in words[1:]:
        if word.startswith("--") and verb.name not in ("metadata",):
            assert word.partition("=")[0] in known, f"magnetar {words[0]} has no {word}"


# --- Helm -----------------------------------------------------------------------------------------


def rendered(**values: str) -> dict[tuple[str, str], Any]:
    try:
        text = helm.template(CHART, **values)
    except Missing as error:
        skip_or_fail(str(error))
    found = [each for each in yaml.safe_load_all(text) if each]
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


@pytest.mark.feature("F-DEP-04")
def test_the_chart_lints_and_templates() -> None:
    try:
        helm.lint(CHART)
    except Missing as error:
        skip_or_fail(str(error))
    found = rendered()
    assert {name for kind, name in found if kind in ("StatefulSet", "Deployment")} == {
        "test-zookeeper",
        "test-bookie",
        "test-broker",
        "test-proxy",
    }
    assert ("Job", "test-initialize") in found
    for (kind, _), manifest in found.items():
        if kind not in ("StatefulSet", "Deployment", "Job"):
            continue
        spec = manifest["spec"]["template"]["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        for container in spec["containers"]:
            if "args" in container:
                check_command(container["args"])
            names = [each["name"] for each in container.get("env", ())]
            assert len(names) == len(set(names))
            for name in names:
                assert name.startswith(("POD_", "ZOO_")) or name.removeprefix("PULSAR_PREFIX_") in SETTINGS, name


@pytest.mark.feature("F-DEP-04")
def test_values_of_the_chart_are_honoured() -> None:
    found = rendered(
        **{
            "initialize": "false",
            "broker.replicaCount": "5",
            "bookie.replicaCount": "7",
            "proxy.enabled": "false",
            "image.repository": "somewhere/magnetar",
            "image.tag": "9.9",
            "metadata.url": "etcd:http://etcd:2379",
            "broker.config.brokerDeduplicationEnabled": "true",
        }
    )
    assert {kind for kind, _ in found} == {"Service", "StatefulSet", "PodDisruptionBudget"}
    assert ("StatefulSet", "test-zookeeper") not in found
    assert found["StatefulSet", "test-broker"]["spec"]["replicas"] == 5
    assert found["StatefulSet", "test-bookie"]["spec"]["replicas"] == 7
    container = found["StatefulSet", "test-broker"]["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "somewhere/magnetar:9.9"
    assert "--metadata=etcd:http://etcd:2379" in container["args"]
    assert {"name": "PULSAR_PREFIX_brokerDeduplicationEnabled", "value": "true"} in container["env"]


def test_a_bookie_of_the_chart_is_named_by_its_pod_and_not_by_its_address() -> None:
    spec = rendered()["StatefulSet", "test-bookie"]["spec"]
    container = spec["template"]["spec"]["containers"][0]
    assert "--bookie-id=$(POD_NAME)" in container["args"]
    assert {each["metadata"]["name"] for each in spec["volumeClaimTemplates"]} == {"journal", "data"}


# --- Compose --------------------------------------------------------------------------------------


def test_the_compose_file_is_one() -> None:
    tool = shutil.which("docker-compose")
    if tool is None:
        skip_or_fail("no docker-compose: the compose file is read as YAML only")
    line = [str(tool), "--file", str(COMPOSE), "--project-name", "magnetar", "config", "--quiet"]
    # The Python tool is older than the key `name`.
    text = "\n".join(each for each in COMPOSE.read_text().splitlines() if not each.startswith("name:"))
    text = text.replace("context: ../..", f"context: {DEPLOY.parent}")
    line[2] = "-"
    done = subprocess.run(line, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


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
        assert set(service.get("environment", {})) <= SETTINGS
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


# --- containers -----------------------------------------------------------------------------------


def test_the_container_file_copies_what_is_there_and_runs_as_nobody() -> None:
    text = (DEPLOY / "container" / "Containerfile").read_text()
    for line in re.findall(r"(?m)^COPY (?!--from)(.+)$", text):
        *sources, _ = line.split()
        for source in sources:
            assert (DEPLOY.parent / source).exists(), source
    assert re.findall(r"(?m)^USER (.+)$", text) == ["10000:10000"]
    assert "--require-hashes" in text
    command = re.findall(r"(?m)^CMD (.+)$", text)[-1]
    check_command(yaml.safe_load(command))


@pytest.mark.feature("F-DEP-02")
def test_the_containers_command_takes_its_settings_from_the_environment(tmp_path: Path) -> None:
    """As the image does, outside of one: settings by Pulsar's names, and another advertised address."""
    environment = {
        "advertisedAddress": "localhost",
        "clusterName": "boxed",
        "PULSAR_PREFIX_maxTopicsPerNamespace": "77",
        "MAGNETAR_DEFAULT_NUM_PARTITIONS": "3",
    }
    with StandaloneProcess(tmp_path, environment=environment) as running:
        shown = httpx.get(f"{running.web_url}/admin/v2/brokers/configuration/runtime", timeout=30).json()
        assert shown["clusterName"] == "boxed"
        assert shown["maxTopicsPerNamespace"] == "77"
        assert shown["defaultNumPartitions"] == "3"
        client = pulsar.Client(running.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        client.create_producer("t").send(b"through another name")
        client.close()
        found = httpx.get(f"{running.web_url}/lookup/v2/topic/persistent/public/default/t", timeout=30).json()
        assert found["brokerUrl"] == f"pulsar://localhost:{running.port}"


# --- systemd --------------------------------------------------------------------------------------


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
