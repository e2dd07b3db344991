# SPDX-License-Identifier: Apache-2.0
"""Every method and path that Apache Pulsar has, walked against a real broker: served, or 501 with what is missing."""

from collections.abc import Iterator

import httpx
import pytest

from magnetar.admin.app import all_routes
from magnetar.admin.coverage import sample_of, served_paths
from magnetar.admin.known_paths import known_paths, unserved_feature
from tests.processes import StandaloneProcess
from tools.admin_page import PAGE, page


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with (
        StandaloneProcess(tmp_path_factory.mktemp("admin")) as standalone,
        httpx.Client(base_url=standalone.web_url, timeout=30) as client,
    ):
        yield client


@pytest.mark.feature("F-ADM-12")
def test_no_known_path_is_answered_as_if_it_were_unknown(http: httpx.Client) -> None:
    wrong = []
    for method, path, is_served in served_paths(all_routes()):
        answer = http.request(method, sample_of(path), json=None)
        plain = answer.status_code == 405 or '"Not Found"' in answer.text or "There is no policy" in answer.text
        if plain or answer.status_code == 500 or (answer.status_code == 501) is is_served:
            wrong.append(f"{method} {path}: {answer.status_code} {answer.text[:80]}")
    assert not wrong, "\n".join(wrong)


def test_what_is_not_served_is_named() -> None:
    assert unserved_feature("PUT", "/admin/v2/persistent/t/n/topic/offload") == "Offloading"
    assert unserved_feature("GET", "/admin/v3/functions/t/n") == "Functions"
    assert unserved_feature("GET", "/admin/v2/nonsense") is None


def test_a_path_of_nobody_is_404(http: httpx.Client) -> None:
    assert http.get("/admin/v2/nonsense").status_code == 404
    assert http.patch("/admin/v2/clusters").status_code == 405


def test_most_of_administration_is_served() -> None:
    """The number may only rise."""
    assert sum(is_served for _, _, is_served in served_paths(all_routes())) >= 300
    assert len(known_paths()) > 450


def test_the_page_is_in_step() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tools.admin_page"


def test_it_describes_itself(http: httpx.Client) -> None:
    assert "/admin/v2/clusters" in http.get("/openapi.json").json()["paths"]
    assert http.get("/docs").status_code == 200


@pytest.mark.feature("F-ADM-02")
def test_brokers_name_themselves_by_their_http_address(http: httpx.Client) -> None:
    name = http.base_url.netloc.decode()
    assert http.get("/admin/v2/brokers/standalone").json() == [name]
    assert http.get("/admin/v2/brokers/leaderBroker").json()["brokerId"] == name
    assert http.get("/admin/v2/brokers/configuration/runtime").json()["clusterName"] == "standalone"
    assert http.post("/admin/v2/brokers/configuration/anything/1").status_code == 412


@pytest.mark.feature("F-ADM-06", "F-ISO-02")
def test_a_bookie_has_one_rack(http: httpx.Client) -> None:
    path = "/admin/v2/bookies/racks-info"
    info = {"rack": "/r1", "hostname": "h"}
    assert http.post(f"{path}/127.0.0.1:3181?group=g", json=info).status_code == 204
    assert http.post(f"{path}/127.0.0.1:3181?group=other", json=info).status_code == 204
    assert http.get(path).json() == {"other": {"127.0.0.1:3181": info}}
    assert http.get(f"{path}/127.0.0.1:3181").json() == info
    assert http.delete(f"{path}/127.0.0.1:3181").status_code == 204
    assert http.get(path).json() == {}
    assert http.delete(f"{path}/127.0.0.1:3181").status_code == 404


@pytest.mark.feature("B-07")
def test_a_resource_group_that_is_used_stays(http: httpx.Client) -> None:
    group = "/admin/v2/resourcegroups/g"
    namespace = "/admin/v2/namespaces/public/default/resourcegroup"
    assert http.post(f"{namespace}/g").status_code == 412
    assert http.put(group, json={"publishRateInMsgs": 1}).status_code == 204
    assert http.post(f"{namespace}/g").status_code == 204
    assert http.delete(group).status_code == 412
    assert http.delete(namespace).status_code == 204
    assert http.delete(group).status_code == 204
    assert http.get(group).status_code == 404


@pytest.mark.feature("B-26")
def test_the_records_of_a_topic_are_shown(http: httpx.Client) -> None:
    path = "/admin/v2/persistent/public/default/written-down"
    assert http.put(path).status_code == 204
    assert http.put(f"{path}/subscription/s").status_code == 204
    info = http.get(f"{path}/internal-info").json()
    assert [ledger["isOffloaded"] for ledger in info["ledgers"]] == [False]
    assert list(info["cursors"]) == ["s"]
    assert http.get(f"{path}/backlog").json()["cursorDetails"]["s"]["cursorBacklog"] == 0
    assert http.get("/admin/v2/persistent/public/default/nowhere/internal-info").status_code == 404
    for word in ("destinations", "topics"):
        assert "public/default" in http.get(f"/admin/v2/broker-stats/{word}").json()
    by_namespace = http.get("/admin/v2/broker-stats/metrics").json()[1:]
    assert [each["dimensions"]["namespace"] for each in by_namespace] == ["public/default"]


def test_namespaces_of_an_anti_affinity_group_are_found(http: httpx.Client) -> None:
    for name in ("apart-1", "apart-2", "together"):
        assert http.put(f"/admin/v2/namespaces/public/{name}").status_code == 204
        if name != "together":
            assert http.post(f"/admin/v2/namespaces/public/{name}/antiAffinity", content="g").status_code == 204
    group = "/admin/v2/namespaces/standalone/antiAffinity/g"
    assert http.get(f"{group}?property=public").json() == ["public/apart-1", "public/apart-2"]
    assert http.get(group).status_code == 400


@pytest.mark.feature("B-20")
def test_permissions_on_many_topics_at_once(http: httpx.Client) -> None:
    topics = [f"persistent://public/default/granted-{index}" for index in range(3)]
    options = [{"topic": topic, "role": "r", "actions": ["produce"]} for topic in topics]
    assert http.post("/admin/v2/namespaces/grantPermissionsOnTopics", json=options).status_code == 204
    path = "/admin/v2/persistent/public/default/granted-2/permissions"
    assert http.get(path).json() == {"r": ["produce"]}
    assert http.post("/admin/v2/namespaces/revokePermissionsOnTopics", json=options[1:]).status_code == 204
    assert http.get(path).json() == {}
    assert http.post("/admin/v2/namespaces/grantPermissionsOnTopics", json=[]).status_code == 400


def test_whose_policies_isolate_a_broker(http: httpx.Client) -> None:
    path = "/admin/v2/clusters/standalone/namespaceIsolationPolicies"
    broker = http.get("/admin/v2/brokers").json()[0]
    assert http.get(f"{path}/brokers/{broker}").status_code == 404
    policy = {"namespaces": ["public/apart.*"], "primary": [".*"], "secondary": []}
    assert http.post(f"{path}/p", json=policy).status_code == 204
    shown = http.get(f"{path}/brokers/{broker}").json()
    assert (shown["namespaceRegex"], shown["primary"]) == (["public/apart.*"], True)
    assert http.delete(f"{path}/p").status_code == 204
