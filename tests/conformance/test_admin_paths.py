# SPDX-License-Identifier: Apache-2.0
"""Every method and path that Apache Pulsar has, walked against a real broker: served, or 501 with what is missing."""

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pulsar
import pytest

from magnetar.admin.app import all_routes
from magnetar.admin.coverage import sample_of, served_paths
from magnetar.admin.known_paths import known_paths, unserved_feature
from tests.processes import StandaloneProcess
from tools.admin_page import PAGE, page


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with StandaloneProcess(tmp_path_factory.mktemp("admin")) as process:
        yield process


@pytest.fixture(scope="module")
def http(standalone: StandaloneProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=standalone.web_url, timeout=30) as client:
        yield client


@pytest.mark.feature("F-ADM-12")
def test_no_known_path_is_answered_as_if_it_were_unknown(http: httpx.Client) -> None:
    wrong = []
    for method, path, is_served in served_paths(all_routes()):
        if path.endswith("/shutdown"):
            continue
        answer = http.request(method, sample_of(path), json=None)
        plain = answer.status_code == 405 or '"Not Found"' in answer.text or "There is no policy" in answer.text
        if plain or answer.status_code == 500 or (answer.status_code == 501) is is_served:
            wrong.append(f"{method} {path}: {answer.status_code} {answer.text[:80]}")
    assert not wrong, "\n".join(wrong)


def test_what_is_not_served_is_named() -> None:
    assert unserved_feature("PUT", "/admin/v2/persistent/t/n/topic/offload") == "offloading"
    assert unserved_feature("GET", "/admin/v3/functions/t/n") == "functions"
    assert unserved_feature("GET", "/admin/v2/nonsense") is None


def test_a_path_of_nobody_is_404(http: httpx.Client) -> None:
    assert http.get("/admin/v2/nonsense").status_code == 404
    assert http.patch("/admin/v2/clusters").status_code == 405


def test_most_of_administration_is_served() -> None:
    """The number may only rise."""
    assert sum(is_served for _, _, is_served in served_paths(all_routes())) >= 381
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
    operations = http.get("/admin/v2/broker-stats/bookieops").json()["public/default"]
    names = {
        f"{ledger}Ledger{word}Op" for ledger in ("data", "cursor") for word in ("Open", "Close", "Create", "Delete")
    }
    assert set(operations["persistent://public/default/written-down"]) == names
    assert http.get("/admin/v2/broker-stats/broker-resource-availability/public/default").status_code == 409
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


def stored(client: httpx.Client, path: str, count: int, service_url: str) -> list[str]:
    """Publish one by one; their ids."""
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    publisher = pulsar.Client(service_url, logger=quiet)
    try:
        topic = "persistent://" + path.removeprefix("/admin/v2/persistent/")
        producer = publisher.create_producer(topic, batching_enabled=False)
        for index in range(count):
            producer.send(f"m{index}".encode(), properties={"n": str(index)})
    finally:
        publisher.close()
    last = client.get(f"{path}/lastMessageId").json()
    return [f"{last['ledgerId']}:{index}" for index in range(count)]


@pytest.mark.feature("B-26")
def test_what_operators_do_to_a_topic_and_its_broker(tmp_path: Path, eventually: Callable[..., object]) -> None:
    path = "/admin/v2/persistent/public/default/operated"
    with StandaloneProcess(tmp_path) as standalone, httpx.Client(base_url=standalone.web_url, timeout=30) as http:
        for word in ("health", "ready"):
            assert http.get(f"/admin/v2/brokers/{word}").text == "ok"
        assert http.get("/admin/v2/brokers/configuration/runtime").json()["clusterName"] == "standalone"
        assert http.put(path).status_code == 204
        assert http.put(f"{path}/subscription/s").status_code == 204
        ids = stored(http, path, 6, standalone.service_url)
        ledger = int(ids[0].partition(":")[0])
        # Looked at without consuming.
        assert http.get(f"{path}/examinemessage?initialPosition=earliest&messagePosition=2").content == b"m1"
        assert http.get(f"{path}/subscription/s/position/3").content == b"m2"
        assert http.get(f"{path}/ledger/{ledger}/entry/4").content == b"m4"
        analysed = http.get(f"{path}/subscription/s/analyzeBacklog")
        analysed = analysed if analysed.status_code == 200 else http.post(f"{path}/subscription/s/analyzeBacklog")
        assert analysed.json()["messages"] == 6
        # Expired up to a message, which is kept.
        until = {"ledgerId": ledger, "entryId": 1, "partitionIndex": -1}
        assert http.post(f"{path}/subscription/s/expireMessages", json=until).status_code == 204
        eventually(lambda: http.get(f"{path}/stats").json()["subscriptions"]["s"]["msgBacklog"] in (4, 5))
        # Properties of topic, subscription and namespace.
        assert http.put(f"{path}/properties", json={"team": "a"}).status_code == 204
        assert http.get(f"{path}/properties").json() == {"team": "a"}
        assert http.put(f"{path}/subscription/s/properties", json={"k": "v"}).status_code == 204
        assert http.get(f"{path}/subscription/s/properties").json() == {"k": "v"}
        assert http.put("/admin/v2/namespaces/public/default/property/o/p").status_code == 204
        assert http.get("/admin/v2/namespaces/public/default/property/o").text.strip('"') == "p"
        # Truncated: nothing is left to consume; and trimmed.
        assert http.delete(f"{path}/truncate").status_code == 204
        assert http.post(f"{path}/trim").status_code == 204
        assert http.get(f"{path}/stats").json()["subscriptions"]["s"]["msgBacklog"] == 0
        # Partitions that are missing are made.
        parts = path + "-in-parts"
        assert http.put(f"{parts}/partitions", json=2).status_code == 204
        assert http.delete(f"{parts}-partition-1").status_code in (204, 404)
        assert http.post(f"{parts}/createMissedPartitions").status_code == 204
        listed = http.get("/admin/v2/persistent/public/default").json()
        assert "persistent://public/default/operated-in-parts-partition-1" in listed
        # And the broker is asked to go, in order.
        assert http.post("/admin/v2/brokers/shutdown").status_code == 204
        eventually(lambda: not Path(f"/proc/{standalone.pid}").exists() or is_gone(standalone.pid))


def is_gone(pid: int) -> bool:
    """A process that ended and whose parent has not asked yet."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.feature("B-36")
def test_a_namespace_is_cleared_and_unsubscribed_as_a_whole(http: httpx.Client, standalone: StandaloneProcess) -> None:
    assert http.put("/admin/v2/namespaces/public/cleared").status_code == 204
    root = "/admin/v2/persistent/public/cleared"
    for name in ("a", "b"):
        assert http.put(f"{root}/{name}").status_code == 204
        for subscription in ("s", "t"):
            assert http.put(f"{root}/{name}/subscription/{subscription}").status_code == 204
        stored(http, f"{root}/{name}", 3, standalone.service_url)

    def backlogs() -> dict[str, list[int]]:
        found = {}
        for name in ("a", "b"):
            subscriptions = http.get(f"{root}/{name}/stats").json()["subscriptions"]
            found[name] = [subscriptions[each]["msgBacklog"] for each in sorted(subscriptions)]
        return found

    assert backlogs() == {"a": [3, 3], "b": [3, 3]}
    namespace = "/admin/v2/namespaces/public/cleared"
    assert http.post(f"{namespace}/clearBacklog/s").status_code == 204
    assert backlogs() == {"a": [0, 3], "b": [0, 3]}
    assert http.post(f"{namespace}/unsubscribe/s").status_code == 204
    assert backlogs() == {"a": [3], "b": [3]}
    assert http.post(f"{namespace}/clearBacklog").status_code == 204
    assert backlogs() == {"a": [0], "b": [0]}


@pytest.mark.feature("B-36")
def test_a_subscription_is_marked_as_replicated_and_stays_so(http: httpx.Client) -> None:
    path = "/admin/v2/persistent/public/default/marked"
    assert http.put(f"{path}/partitions", json=2).status_code == 204
    status = f"{path}/subscription/s/replicatedSubscriptionStatus"
    assert http.get(status).status_code == 404
    assert http.put(f"{path}/subscription/s").status_code == 204
    names = [f"persistent://public/default/marked-partition-{index}" for index in range(2)]
    assert http.get(status).json() == dict.fromkeys(names, False)
    assert http.post(status, json="yes").status_code == 400
    assert http.post(status, json=True).status_code == 204
    # Loaded again, from what is stored.
    assert http.put(f"{path}/unload").status_code == 204
    assert http.get(status).json() == dict.fromkeys(names, True)
    stats = http.get(f"{path}-partition-1/stats").json()["subscriptions"]["s"]
    assert (stats["isReplicated"], stats["replicated"]) == (True, True)
    assert http.post(status, json=False).status_code == 204
    assert http.get(status).json() == dict.fromkeys(names, False)
    made = f"{path}-partition-0/subscription/from-the-start"
    assert http.put(f"{made}?replicated=true").status_code == 204
    assert http.get(f"{made}/replicatedSubscriptionStatus").json() == {names[0]: True}


def test_resource_quotas_of_bundles(http: httpx.Client) -> None:
    root = "/admin/v2/resource-quotas"
    bundle = f"{root}/public/default/0x00000000_0xffffffff"
    usual = http.get(root).json()
    assert (usual["msgRateIn"], usual["dynamic"]) == (40.0, True)
    assert http.get(bundle).json() == usual
    assert http.post(bundle, json={"msgRateIn": 7, "dynamic": False}).status_code == 204
    assert http.get(bundle).json() == {**usual, "msgRateIn": 7, "dynamic": False}
    assert http.delete(bundle).status_code == 204
    assert http.get(bundle).json() == usual
    wrong: list[object] = [{"speed": 1}, {"memory": -1}, {"memory": "much"}, {"dynamic": 1}, []]
    for body in wrong:
        assert http.post(root, json=body).status_code == 400
    assert http.get(f"{root}/public/default/0x00000000_0x00000001").status_code >= 400
