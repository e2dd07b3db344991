# SPDX-License-Identifier: Apache-2.0
"""The Helm chart, by Helm itself: it lints and renders with several values, and what it renders fits together."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.checks import DEPLOY, check_command, check_settings, skip_or_fail
from tools import helm
from tools.zookeeper import Missing

CHART = DEPLOY / "helm" / "magnetar"
VALUES = [None, *sorted((CHART / "ci").glob("*-values.yaml"))]
WORKLOADS = ("StatefulSet", "Deployment")
# Given by the pod itself, or read by ZooKeeper's image.
FOREIGN = ("POD_", "ZOO_")

Manifests = dict[tuple[str, str], Any]


@pytest.fixture(scope="module", autouse=True)
def has_helm() -> None:
    try:
        helm.command()
    except Missing as error:
        skip_or_fail(str(error))


def rendered(values: dict[str, str] | None = None, file: Path | None = None) -> Manifests:
    text = helm.template(CHART, values, [file] if file is not None else [])
    found = [each for each in yaml.safe_load_all(text) if each]
    manifests = {(each["kind"], each["metadata"]["name"]): each for each in found}
    assert len(manifests) == len(found), "two manifests of one name"
    return manifests


def pods(found: Manifests) -> list[tuple[str, str, Any, Any]]:
    """Kind, name, labels and specification of everything that runs."""
    return [
        (kind, name, each["spec"]["template"]["metadata"]["labels"], each["spec"]["template"]["spec"])
        for (kind, name), each in found.items()
        if kind in (*WORKLOADS, "Job")
    ]


def chosen_by(selector: dict[str, str], labels: dict[str, str]) -> bool:
    return selector.items() <= labels.items()


def every(file: Path | None) -> str:
    return "defaults" if file is None else file.stem


@pytest.mark.feature("F-DEP-04")
@pytest.mark.parametrize("file", VALUES, ids=every)
def test_the_chart_lints_and_templates(file: Path | None) -> None:
    helm.lint(CHART, [file] if file is not None else [])
    found = rendered(file=file)
    assert {"test-bookie", "test-broker"} <= {name for kind, name in found if kind in WORKLOADS}
    assert ("Job", "test-initialize") in found
    for kind, name, labels, spec in pods(found):
        check_safety(name, spec)
        for container in spec["containers"]:
            check_words(container)
            check_mounts(found[kind, name]["spec"], spec, container)
            if kind != "Job":
                check_probes(name, container)
        if kind != "Job":
            budgets = [each for (k, _), each in found.items() if k == "PodDisruptionBudget"]
            assert [b for b in budgets if chosen_by(b["spec"]["selector"]["matchLabels"], labels)], name
            assert chosen_by(found[kind, name]["spec"]["selector"]["matchLabels"], labels), name
    check_services(found)


def check_safety(name: str, spec: Any) -> None:
    assert spec["securityContext"]["runAsNonRoot"] is True, name
    assert spec["securityContext"]["runAsUser"] > 0, name
    assert spec["automountServiceAccountToken"] is False, name
    for container in spec["containers"]:
        assert container["securityContext"]["allowPrivilegeEscalation"] is False, name
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}, name


def check_words(container: Any) -> None:
    names = [each["name"] for each in container.get("env", ())]
    assert len(names) == len(set(names)), names
    if "args" not in container:
        assert all(name.startswith(FOREIGN) for name in names), names
        return
    check_command(container["args"])
    own = {each["name"]: each["value"] for each in container.get("env", ()) if not each["name"].startswith(FOREIGN)}
    check_settings(container["args"], own)


def check_mounts(workload: Any, spec: Any, container: Any) -> None:
    there = {each["name"] for each in spec.get("volumes", ())}
    there |= {each["metadata"]["name"] for each in workload.get("volumeClaimTemplates", ())}
    assert {each["name"] for each in container.get("volumeMounts", ())} <= there, container["name"]


def check_probes(name: str, container: Any) -> None:
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    for kind in ("readinessProbe", "livenessProbe"):
        probe = container[kind]
        asked = probe.get("httpGet") or probe.get("tcpSocket")
        assert "exec" in probe or asked["port"] in ports, (name, kind)


def check_services(found: Manifests) -> None:
    """Every service leads to ports that somebody listens on, and every pod with a name of its own has a service."""
    running = pods(found)
    for (kind, name), service in found.items():
        if kind != "Service":
            continue
        behind = [spec for _, _, labels, spec in running if chosen_by(service["spec"]["selector"], labels)]
        assert len(behind) == 1, name
        opened = {port["containerPort"] for each in behind[0]["containers"] for port in each["ports"]}
        assert {port["port"] for port in service["spec"]["ports"]} <= opened, name
    for (kind, name), manifest in found.items():
        if kind == "StatefulSet":
            assert found["Service", manifest["spec"]["serviceName"]]["spec"]["clusterIP"] == "None", name


@pytest.mark.feature("F-DEP-04")
def test_values_of_the_chart_are_honoured() -> None:
    found = rendered(
        {
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


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"broker.replicaCount": "none"}, "replicaCount"),
        ({"brokers.replicaCount": "3"}, "brokers"),
        ({"bookie.replicaCount": "2"}, "bookie.replicaCount only 2"),
        ({"zookeeper.enabled": "false"}, "metadata.url"),
        ({"metadata.url": "localhost"}, "metadata"),
    ],
)
def test_values_that_cannot_work_are_refused(values: dict[str, str], said: str) -> None:
    with pytest.raises(helm.HelmFailed, match=said):
        rendered(values)


def test_a_bookie_of_the_chart_is_named_by_its_pod_and_not_by_its_address() -> None:
    spec = rendered()["StatefulSet", "test-bookie"]["spec"]
    container = spec["template"]["spec"]["containers"][0]
    assert "--bookie-id=$(POD_NAME)" in container["args"]
    assert {each["metadata"]["name"] for each in spec["volumeClaimTemplates"]} == {"journal", "data"}


def test_what_zookeeper_answered_outlives_its_pod() -> None:
    """Its image keeps snapshots and the log of changes in two directories."""
    spec = rendered()["StatefulSet", "test-zookeeper"]["spec"]
    kept = {each["metadata"]["name"] for each in spec["volumeClaimTemplates"]}
    mounts = spec["template"]["spec"]["containers"][0]["volumeMounts"]
    assert {each["mountPath"]: each["name"] in kept for each in mounts} == {"/data": True, "/datalog": True}
    assert len({each["subPath"] for each in mounts}) == 2
