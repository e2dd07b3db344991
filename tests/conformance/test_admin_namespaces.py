# SPDX-License-Identifier: Apache-2.0
"""Clusters, tenants, namespaces and every policy of a namespace over HTTP, as pulsar-admin uses them."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from magnetar.admin.policy_table import NAMESPACE_POLICIES
from tests.processes import StandaloneProcess

_DISPATCH = {
    "dispatchThrottlingRateInMsg": 10,
    "dispatchThrottlingRateInByte": 20,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 1,
}
VALUES: dict[str, Any] = {
    "deduplication": True,
    "autoTopicCreation": {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3},
    "autoSubscriptionCreation": {"allowAutoSubscriptionCreation": False},
    "publishRate": {"publishThrottlingRateInMsg": 10, "publishThrottlingRateInByte": 20},
    "dispatchRate": _DISPATCH,
    "subscriptionDispatchRate": _DISPATCH,
    "replicatorDispatchRate": _DISPATCH,
    "subscribeRate": {"subscribeThrottlingRatePerConsumer": 10, "ratePeriodInSecond": 30},
    "retention": {"retentionTimeInMinutes": 10, "retentionSizeInMB": 20},
    "persistence": {
        "bookkeeperEnsemble": 1,
        "bookkeeperWriteQuorum": 1,
        "bookkeeperAckQuorum": 1,
        "managedLedgerMaxMarkDeleteRate": 1.0,
    },
    "subscriptionAuthMode": "Prefix",
    "encryptionRequired": True,
    "delayedDelivery": {"tickTime": 500, "active": True, "maxDeliveryDelayInMillis": 0},
    "inactiveTopicPolicies": {
        "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
        "maxInactiveDurationSeconds": 100,
        "deleteWhileInactive": True,
    },
    "offloadPolicies": {"managedLedgerOffloadDriver": "aws-s3", "s3ManagedLedgerOffloadBucket": "b"},
    "schemaAutoUpdateCompatibilityStrategy": "AutoUpdateDisabled",
    "schemaCompatibilityStrategy": "FORWARD",
    "isAllowAutoUpdateSchema": False,
    "schemaValidationEnforced": True,
    "subscriptionTypesEnabled": ["Shared"],
    "entryFilters": {"entryFilterNames": ""},
    "dispatcherPauseOnAckStatePersistent": True,
}


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with StandaloneProcess(tmp_path_factory.mktemp("admin")) as running:
        yield running


@pytest.fixture(scope="module")
def http(standalone: StandaloneProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{standalone.web_url}/admin/v2", timeout=30) as client:
        client.put("/tenants/t", json={"adminRoles": ["r"], "allowedClusters": ["standalone"]}).raise_for_status()
        client.put("/namespaces/t/policies").raise_for_status()
        yield client


def value_of(policy: str) -> Any:
    return VALUES.get(policy, 7)


@pytest.mark.feature("F-TOP-05", "F-ADM-04")
@pytest.mark.parametrize("policy", NAMESPACE_POLICIES)
def test_each_policy_is_read_as_it_was_set(http: httpx.Client, policy: str) -> None:
    row = NAMESPACE_POLICIES[policy]
    path = f"/namespaces/t/policies/{policy}"
    before = http.get(path)
    assert before.status_code == row.unset_status
    value = value_of(policy)
    answer = http.request(row.verb, path, json=value)
    assert answer.status_code == 204, answer.text
    assert http.get(path).json() == value
    if row.is_removable:
        assert http.delete(path).status_code == 204
        assert http.get(path).content == before.content


@pytest.mark.parametrize(
    ("policy", "value"),
    [
        ("messageTTL", -5),
        ("maxProducersPerTopic", -1),
        ("retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 1}),
        ("publishRate", 7),
    ],
)
def test_a_value_that_cannot_be_used_changes_nothing(http: httpx.Client, policy: str, value: Any) -> None:
    path = f"/namespaces/t/policies/{policy}"
    before = http.get(path).content
    answer = http.post(path, json=value)
    assert answer.status_code in (400, 412)
    assert answer.json()["reason"]
    assert http.get(path).content == before


@pytest.mark.feature("F-ADM-01")
def test_a_cluster_is_made_read_changed_and_deleted(http: httpx.Client) -> None:
    data = {"serviceUrl": "http://x:8080", "brokerServiceUrl": "pulsar://x:6650"}
    assert http.put("/clusters/c", json=data).status_code == 200
    assert http.put("/clusters/c", json=data).status_code == 409
    assert http.post("/clusters/c", json={"serviceUrl": "http://y:8080"}).status_code == 200
    read = http.get("/clusters/c").json()
    assert (read["serviceUrl"], read["brokerServiceUrl"]) == ("http://y:8080", "pulsar://x:6650")
    assert "c" in http.get("/clusters").json()
    assert http.delete("/clusters/c").status_code == 204
    assert http.get("/clusters/c").status_code == 404
    assert http.delete("/clusters/standalone").status_code == 412


@pytest.mark.feature("F-TOP-02", "F-ADM-03")
def test_a_tenant_needs_clusters_that_exist(http: httpx.Client) -> None:
    info = {"adminRoles": ["a"], "allowedClusters": ["standalone"]}
    assert http.put("/tenants/t2", json={"allowedClusters": ["nowhere"]}).status_code == 412
    assert http.put("/tenants/t2", json=info).status_code == 204
    assert http.put("/tenants/t2", json=info).status_code == 409
    assert http.get("/tenants/t2").json() == info
    assert http.put("/namespaces/t2/n").status_code == 204
    assert http.delete("/tenants/t2").status_code == 409
    assert http.delete("/namespaces/t2/n").status_code == 204
    assert http.delete("/tenants/t2").status_code == 204
    assert http.get("/tenants/t2").status_code == 404


@pytest.mark.feature("F-TOP-03")
def test_a_namespace_with_topics_is_not_deleted(http: httpx.Client) -> None:
    assert http.put("/namespaces/t/full", json={"bundles": {"numBundles": 2}}).status_code == 204
    assert http.put("/namespaces/t/full").status_code == 409
    assert http.get("/namespaces/t/full/bundles").json()["numBundles"] == 2
    assert http.put("/persistent/t/full/p/partitions", json=2).status_code == 204
    assert http.delete("/namespaces/t/full").status_code == 409
    assert http.delete("/persistent/t/full/p/partitions").status_code == 204
    assert http.delete("/namespaces/t/full").status_code == 204
    assert http.get("/namespaces/t/full").status_code == 404


@pytest.mark.feature("F-TOP-04")
def test_a_new_cluster_has_its_first_namespaces(http: httpx.Client) -> None:
    assert http.get("/namespaces/public").json() == ["public/default"]
    assert http.get("/namespaces/pulsar").json() == ["pulsar/system"]


def test_permissions_are_granted_and_revoked(http: httpx.Client) -> None:
    path = "/namespaces/t/policies/permissions"
    assert http.post(f"{path}/role", json=["produce", "consume"]).status_code == 204
    assert http.get(path).json() == {"role": ["consume", "produce"]}
    assert http.post(f"{path}/role", json=["everything"]).status_code == 400
    assert http.delete(f"{path}/role").status_code == 204
    assert http.get(path).json() == {}
    assert http.post(f"{path}/subscription/s", json=["a", "b"]).status_code == 204
    assert http.delete(f"{path}/s/a").status_code == 204
    assert http.get(f"{path}/subscription").json() == {"s": ["b"]}


def test_backlog_quotas_are_kept_by_type(http: httpx.Client) -> None:
    path = "/namespaces/t/policies/backlogQuota"
    quota = {"limitSize": 1000, "limitTime": -1, "policy": "producer_request_hold"}
    assert http.post(path, json=quota).status_code == 204
    assert http.post(f"{path}?backlogQuotaType=message_age", json={**quota, "limitTime": 9}).status_code == 204
    assert http.post(f"{path}?backlogQuotaType=other", json=quota).status_code == 400
    read = http.get(f"{path}Map").json()
    assert read["destination_storage"] == {"limit": 1000, **quota}
    assert read["message_age"]["limitTime"] == 9
    assert http.delete(path).status_code == 204
    assert list(http.get(f"{path}Map").json()) == ["message_age"]


@pytest.mark.parametrize("path", ["/namespaces/t/policies/nothing", "/namespaces/t/missing/retention"])
def test_what_is_not_there_is_404(http: httpx.Client, path: str) -> None:
    assert http.get(path).status_code == 404
