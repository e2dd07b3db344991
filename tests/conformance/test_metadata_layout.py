# SPDX-License-Identifier: Apache-2.0
"""The tree as Pulsar lays it out, read raw from a real ZooKeeper beside a running cluster."""

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pulsar
import pytest
from kazoo.client import KazooClient

from magnetar.wire.proto import ml_formats_pb2
from tests.cluster import Cluster
from tests.contracts.zookeeper_server import zookeeper_server

QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
TENANT, NAMESPACE = "acme", "acme/orders"
TOPIC = f"persistent://{NAMESPACE}/t"


class Laid:
    """A running cluster, its tree and its HTTP."""

    def __init__(self, cluster: Cluster, tree: KazooClient, web_url: str) -> None:
        self.cluster = cluster
        self.tree = tree
        self.web_url = web_url

    def raw(self, path: str) -> bytes:
        value: bytes = self.tree.get(path)[0]
        return value

    def json(self, path: str) -> Any:
        return json.loads(self.raw(path))

    def names(self, path: str) -> set[str]:
        return set(self.tree.get_children(path))

    def rest(self, path: str) -> Any:
        answer = httpx.get(f"{self.web_url}/admin/v2/{path}", timeout=30)
        answer.raise_for_status()
        return answer.json()


@pytest.fixture(scope="module")
def laid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laid]:
    hosts = f"{zookeeper_server()}/{uuid.uuid4().hex}"
    with Cluster(tmp_path_factory.mktemp("layout"), bookies=2, metadata=f"zk:{hosts}") as cluster:
        assert cluster.broker is not None
        web_url = str(cluster.broker.until_ready()["webServiceUrl"])
        tree = KazooClient(hosts=hosts)
        tree.start()
        found = Laid(cluster, tree, web_url)
        made = {"adminRoles": ["boss"], "allowedClusters": ["standalone"]}
        for path, body in (
            (f"tenants/{TENANT}", made),
            (f"namespaces/{NAMESPACE}", {"bundles": {"numBundles": 8}}),
            (f"persistent/{NAMESPACE}/parts/partitions", 5),
        ):
            answer = httpx.put(f"{web_url}/admin/v2/{path}", json=body, timeout=30)
            assert answer.status_code == 204, answer.text
        client = pulsar.Client(cluster.service_url, logger=QUIET)
        try:
            client.subscribe(TOPIC, "audit")
            client.create_producer(TOPIC).send(b"one")
            yield found
        finally:
            client.close()
            tree.stop()
            tree.close()


@pytest.mark.feature("F-MD-06")
def test_tenants_namespaces_and_policies(laid: Laid) -> None:
    assert {TENANT, "public", "pulsar"} <= laid.names("/admin/policies")
    assert laid.json(f"/admin/policies/{TENANT}") == laid.rest(f"tenants/{TENANT}")
    assert laid.names(f"/admin/policies/{TENANT}") == {"orders"}
    httpx.post(f"{laid.web_url}/admin/v2/namespaces/{NAMESPACE}/messageTTL", json=77, timeout=30).raise_for_status()
    policies = laid.json(f"/admin/policies/{NAMESPACE}")
    assert policies["message_ttl_in_seconds"] == 77
    assert policies["replication_clusters"] == ["standalone"]


@pytest.mark.feature("F-MD-07")
def test_bundles(laid: Laid) -> None:
    kept = laid.json(f"/admin/local-policies/{NAMESPACE}")["bundles"]
    asked = laid.rest(f"namespaces/{NAMESPACE}/bundles")
    assert kept["boundaries"] == asked["boundaries"]
    assert kept["numBundles"] == asked["numBundles"] == 8
    assert (kept["boundaries"][0], kept["boundaries"][-1]) == ("0x00000000", "0xffffffff")


@pytest.mark.feature("F-MD-08", "D-18")
def test_owners_of_bundles(laid: Laid) -> None:
    (bundle,) = laid.names(f"/namespace/{NAMESPACE}")
    assert bundle == httpx.get(f"{laid.web_url}/lookup/v2/topic/persistent/{NAMESPACE}/t/bundle", timeout=30).text
    value, stat = laid.tree.get(f"/namespace/{NAMESPACE}/{bundle}")
    assert stat.ephemeralOwner != 0
    owner = json.loads(value)
    assert owner["nativeUrl"] == laid.cluster.service_url
    assert owner["httpUrl"] == laid.web_url


@pytest.mark.feature("F-MD-09")
def test_clusters_and_isolation(laid: Laid) -> None:
    assert laid.json("/admin/clusters/standalone") == {
        name: value for name, value in laid.rest("clusters/standalone").items() if value not in (None, False, [])
    }
    policy = {
        "namespaces": ["acme/.*"],
        "primary": ["127.*"],
        "secondary": [],
        "auto_failover_policy": {
            "policy_type": "min_available",
            "parameters": {"min_limit": "1", "usage_threshold": "80"},
        },
    }
    path = f"{laid.web_url}/admin/v2/clusters/standalone/namespaceIsolationPolicies/mine"
    answer = httpx.post(path, json=policy, timeout=30)
    assert answer.status_code == 204, answer.text
    kept = laid.json("/admin/clusters/standalone/namespaceIsolationPolicies")["mine"]
    assert {name: kept[name] for name in policy} == policy
    assert httpx.delete(path, timeout=30).status_code == 204


@pytest.mark.feature("F-MD-10")
def test_dynamic_settings(laid: Laid, eventually: Callable[..., Any]) -> None:
    changed = "loadBalancerSheddingEnabled"
    assert changed in laid.rest("brokers/configuration")
    assert laid.rest("brokers/configuration/runtime")[changed] == "True"
    answer = httpx.post(f"{laid.web_url}/admin/v2/brokers/configuration/{changed}/false", timeout=30)
    assert answer.status_code == 204, answer.text
    assert laid.json("/admin/configuration") == {changed: "false"}
    assert laid.rest("brokers/configuration/values") == {changed: "false"}
    eventually(lambda: laid.rest("brokers/configuration/runtime")[changed] == "False")


@pytest.mark.feature("F-MD-12")
def test_topics_ledgers_and_cursors(laid: Laid) -> None:
    root = f"/managed-ledgers/{NAMESPACE}/persistent"
    assert "t" in laid.names(root)
    internals = laid.rest(f"persistent/{NAMESPACE}/t/internalStats")
    kept = ml_formats_pb2.ManagedLedgerInfo.FromString(laid.raw(f"{root}/t"))
    assert [each.ledgerId for each in kept.ledgerInfo] == [each["ledgerId"] for each in internals["ledgers"]]
    assert laid.names(f"{root}/t") == set(internals["cursors"]) == {"audit"}
    cursor = ml_formats_pb2.ManagedCursorInfo.FromString(laid.raw(f"{root}/t/audit"))
    assert cursor.cursorsLedgerId == internals["cursors"]["audit"]["cursorLedger"]
    marked = f"{cursor.markDeleteLedgerId}:{cursor.markDeleteEntryId}"
    assert marked == internals["cursors"]["audit"]["markDeletePosition"]


@pytest.mark.feature("F-MD-13", "D-15")
def test_partition_counts(laid: Laid) -> None:
    assert laid.json(f"/admin/partitioned-topics/{NAMESPACE}/persistent/parts")["partitions"] == 5


@pytest.mark.feature("F-MD-15")
def test_what_bookies_leave(laid: Laid) -> None:
    assert {"available", "cookies", "underreplication", "LAYOUT", "INSTANCEID"} <= laid.names("/ledgers")
    bookies = laid.names("/ledgers/available") - {"readonly"}
    assert len(bookies) == 2
    assert laid.names("/ledgers/available/readonly") == set()
    assert laid.names("/ledgers/cookies") == bookies
    for bookie in bookies:
        assert laid.tree.exists(f"/ledgers/available/{bookie}").ephemeralOwner != 0
        text = laid.raw(f"/ledgers/cookies/{bookie}").decode()
        assert f'bookieHost: "{bookie}"' in text
        assert laid.raw("/ledgers/INSTANCEID").decode() in text
    assert laid.raw("/ledgers/LAYOUT").decode().splitlines()[1].endswith("HierarchicalLedgerManagerFactory:1")


@pytest.mark.feature("F-MD-11", "D-16")
def test_brokers_and_their_leader_vanish_with_them(laid: Laid) -> None:
    (name,) = laid.names("/loadbalance/brokers")
    assert laid.web_url == f"http://{name}"
    value, stat = laid.tree.get(f"/loadbalance/brokers/{name}")
    assert stat.ephemeralOwner != 0
    said = json.loads(value)
    assert (said["pulsarServiceUrl"], said["webServiceUrl"]) == (laid.cluster.service_url, laid.web_url)
    assert laid.json("/loadbalance/leader")["serviceUrl"] == laid.web_url
    assert laid.tree.exists("/loadbalance/leader").ephemeralOwner != 0
    assert laid.cluster.broker is not None
    laid.cluster.broker.stop()
    assert laid.names("/loadbalance/brokers") == set()
    assert laid.tree.exists("/loadbalance/leader") is None
    assert not laid.tree.exists(f"/namespace/{NAMESPACE}") or laid.names(f"/namespace/{NAMESPACE}") == set()
