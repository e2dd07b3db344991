# SPDX-License-Identifier: Apache-2.0
"""Two real brokers that share bundles: look-ups, ownership records, unloading, splitting, placement, administration."""

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from zlib import crc32

import pulsar
import pytest

from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.brokers import (
    QUICK,
    QUIET,
    Answer,
    Kind,
    admin,
    broker_id,
    bundle_of,
    by_id,
    client_of,
    done,
    look_up,
    make_namespace,
    owner_of,
    port_of,
    record,
    value,
)
from tests.cluster import Cluster, RoleProcess
from tests.conformance.raw_client import RawClient
from tests.conftest import Eventually
from tests.faults.test_kill_9 import Publishing


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    listeners = {"advertisedListeners": "outside:pulsar://127.0.0.1:7777,outside:pulsar+ssl://127.0.0.1:7778"}
    settings = {**QUICK, **listeners, "forceDeleteNamespaceAllowed": "true"}
    with Cluster(tmp_path_factory.mktemp("cluster"), bookies=2, brokers=2, environment=settings) as made:
        yield made


def leader_of(cluster: Cluster) -> RoleProcess:
    return by_id(cluster, done(cluster.brokers[0], "GET", "/admin/v2/brokers/leaderBroker")["brokerId"])


def other_than(cluster: Cluster, role: RoleProcess) -> RoleProcess:
    return next(each for each in cluster.brokers if each is not role)


# --- look-ups ---------------------------------------------------------------------------------------


@pytest.mark.feature("F-BND-09", "F-BND-10", "F-BND-11", "F-BND-12", "F-LB-01")
def test_the_leader_chooses_and_the_chosen_broker_claims(cluster: Cluster) -> None:
    namespace = make_namespace(cluster, "chosen", bundles=1)
    topic = f"persistent://{namespace}/t"
    leader = leader_of(cluster)
    follower = other_than(cluster, leader)
    bundle = f"{namespace}/0x00000000_0xffffffff"
    owned = f"/admin/v2/brokers/standalone/{broker_id(follower)}/ownedNamespaces"
    assert bundle not in done(follower, "GET", owned)
    asked = look_up(follower, topic)
    assert (asked.response, asked.authoritative) == (Answer.Redirect, False)
    assert asked.brokerServiceUrl == leader.said["serviceUrl"]
    assert record(cluster, f"/namespace/{bundle}") is None
    # Told that it shall own the topic, a broker asks nobody.
    told = look_up(follower, topic, authoritative=True)
    assert (told.response, told.brokerServiceUrl) == (Answer.Connect, follower.said["serviceUrl"])
    for role in cluster.brokers:
        assert owner_of(cluster, topic, ask=role) is follower
        over_http = done(role, "GET", f"/lookup/v2/topic/persistent/{namespace}/t")
        assert over_http["brokerUrl"] == follower.said["serviceUrl"]
    assert bundle in done(follower, "GET", owned)


@pytest.mark.feature("F-BND-06", "F-MD-08")
def test_the_owner_stands_in_the_metadata_as_pulsar_writes_it(cluster: Cluster) -> None:
    namespace = make_namespace(cluster, "recorded", bundles=1)
    owner = owner_of(cluster, f"persistent://{namespace}/t")
    path = f"/namespace/{namespace}/0x00000000_0xffffffff"
    found = record(cluster, path)
    assert found is not None
    assert found.ephemeral
    assert json.loads(found.value) == {
        "nativeUrl": owner.said["serviceUrl"],
        "httpUrl": owner.said["webServiceUrl"],
        "disabled": False,
        "advertisedListeners": {
            "outside": {
                "brokerServiceUrl": "pulsar://127.0.0.1:7777",
                "brokerServiceUrlTls": "pulsar+ssl://127.0.0.1:7778",
            }
        },
    }
    assert value(cluster, f"/admin/local-policies/{namespace}")["bundles"] == {
        "boundaries": ["0x00000000", "0xffffffff"],
        "numBundles": 1,
    }


def test_a_client_may_ask_for_a_listener(cluster: Cluster) -> None:
    topic = "persistent://public/default/listened"
    owner = owner_of(cluster, topic)
    assert look_up(owner, topic, listener="outside").brokerServiceUrl == "pulsar://127.0.0.1:7777"
    refused = look_up(owner, topic, listener="nowhere")
    assert (refused.response, refused.error) == (Answer.Failed, pb.ServiceNotReady)


def test_a_broker_refuses_topics_of_another(cluster: Cluster) -> None:
    topic = "persistent://public/default/elsewhere"
    stranger = other_than(cluster, owner_of(cluster, topic))
    with RawClient(port_of(stranger.said["serviceUrl"])) as client:
        refused = client.open_producer(topic)
        assert (refused.type, refused.error.error) == (Kind.ERROR, pb.ServiceNotReady)


@pytest.mark.feature("F-BND-02", "F-BND-03", "F-BND-14", "F-MD-07")
def test_bundles_divide_the_ring_and_spread_over_brokers(cluster: Cluster) -> None:
    namespace = make_namespace(cluster, "spread", bundles=8)
    bundles = done(cluster.brokers[1], "GET", f"/admin/v2/namespaces/{namespace}/bundles")
    bounds = [int(text, 16) for text in bundles["boundaries"]]
    assert (bounds[0], bounds[-1], bundles["numBundles"]) == (0, 0xFFFFFFFF, 8)
    owners: dict[str, RoleProcess] = {}
    for number in range(60):
        topic = f"persistent://{namespace}/t-{number}"
        low, high = (int(text, 16) for text in bundle_of(cluster.brokers[0], topic).split("_"))
        assert low <= crc32(topic.encode()) < high
        owners[f"{low}"] = owner_of(cluster, topic, ask=cluster.brokers[number % 2])
    counts = [sum(owner is role for owner in owners.values()) for role in cluster.brokers]
    assert sorted(counts) == [4, 4]
    assert value(cluster, f"/admin/local-policies/{namespace}")["bundles"] == bundles


@pytest.mark.feature("F-BND-21")
def test_ten_topics_do_not_all_fall_on_one_broker(cluster: Cluster) -> None:
    namespace = make_namespace(cluster, "ten")
    owners = {broker_id(owner_of(cluster, f"persistent://{namespace}/t-{number}")) for number in range(10)}
    assert len(owners) == 2


# --- moving -----------------------------------------------------------------------------------------


@pytest.mark.feature("F-BND-13", "F-HA-03")
def test_clients_go_on_while_their_bundle_goes_back_and_forth(cluster: Cluster, eventually: Eventually) -> None:
    namespace = make_namespace(cluster, "moved", bundles=1)
    topic = f"persistent://{namespace}/t"
    client = client_of(cluster)
    consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Exclusive)
    producer = client.create_producer(topic)
    sent = []
    for number in range(6):
        owner = owner_of(cluster, topic)
        target = other_than(cluster, owner)
        producer.send(f"{number}".encode())
        sent.append(f"{number}")
        path = f"/admin/v2/namespaces/{namespace}/0x00000000_0xffffffff/unload"
        # Any broker takes the request, and the owner carries it out.
        done(cluster.brokers[number % 2], "PUT", path, params={"destinationBroker": broker_id(target)})
        eventually(lambda target=target: owner_of(cluster, topic) is target)
    received = [consumer.receive(timeout_millis=30_000).data().decode() for _ in sent]
    assert list(dict.fromkeys(received)) == sent
    client.close()
    unknown = admin(cluster.brokers[0], "PUT", path, params={"destinationBroker": "nobody:1"})
    assert unknown.status_code == 412


@pytest.mark.feature("B-04")
def test_clients_of_a_transferred_bundle_are_told_the_next_owner(cluster: Cluster) -> None:
    namespace = make_namespace(cluster, "told", bundles=1)
    topic = f"persistent://{namespace}/t"
    owner = owner_of(cluster, topic)
    target = other_than(cluster, owner)
    with RawClient(port_of(owner.said["serviceUrl"])) as client:
        assert client.open_producer(topic).type == Kind.PRODUCER_SUCCESS
        assert client.subscribe(topic, "s").type == Kind.SUCCESS
        path = f"/admin/v2/namespaces/{namespace}/0x00000000_0xffffffff/unload"
        done(owner, "PUT", path, params={"destinationBroker": broker_id(target)})
        closed = [client.next(), client.next()]
        assert {each.type for each in closed if each is not None} == {Kind.CLOSE_PRODUCER, Kind.CLOSE_CONSUMER}
        for each in closed:
            assert each is not None
            told = each.close_producer if each.type == Kind.CLOSE_PRODUCER else each.close_consumer
            assert told.assignedBrokerServiceUrl == target.said["serviceUrl"]
    # Served there at once: nobody has looked anything up.
    with RawClient(port_of(target.said["serviceUrl"])) as client:
        assert client.open_producer(topic).type == Kind.PRODUCER_SUCCESS
        assert client.subscribe(topic, "s").type == Kind.SUCCESS


@pytest.mark.feature("F-BND-17", "F-BND-20")
def test_a_bundle_is_split_while_its_topics_are_served(cluster: Cluster) -> None:
    namespace = make_namespace(cluster, "cut", bundles=1)
    client = client_of(cluster)
    producers = {n: client.create_producer(f"persistent://{namespace}/t-{n}") for n in range(10)}
    owner = owner_of(cluster, f"persistent://{namespace}/t-0")
    path = f"/admin/v2/namespaces/{namespace}"
    done(other_than(cluster, owner), "PUT", f"{path}/0x00000000_0xffffffff/split")
    assert done(owner, "GET", f"{path}/bundles")["boundaries"] == ["0x00000000", "0x7fffffff", "0xffffffff"]
    # Who serves the topics has not changed.
    assert {broker_id(owner_of(cluster, f"persistent://{namespace}/t-{n}")) for n in producers} == {broker_id(owner)}
    low = [n for n in producers if crc32(f"persistent://{namespace}/t-{n}".encode()) < 0x7FFFFFFF]
    done(
        owner,
        "PUT",
        f"{path}/0x00000000_0x7fffffff/unload",
        params={"destinationBroker": broker_id(other_than(cluster, owner))},
    )
    moved = [n for n in producers if owner_of(cluster, f"persistent://{namespace}/t-{n}") is not owner]
    assert moved == low
    for number, producer in producers.items():
        producer.send(f"{number}".encode())
    upper = f"{path}/0x7fffffff_0xffffffff"
    done(owner, "PUT", f"{upper}/split", params={"splitAlgorithmName": "topic_count_equally_divide"})
    bounds = [int(text, 16) for text in done(owner, "GET", f"{path}/bundles")["boundaries"]]
    points = [crc32(f"persistent://{namespace}/t-{n}".encode()) for n in producers]
    halves = [sum(a <= point < b for point in points) for a, b in pairwise(bounds[1:])]
    assert abs(halves[0] - halves[1]) <= 1
    client.close()


@pytest.mark.feature("F-BND-18", "F-PRB-05")
def test_two_hot_topics_are_put_apart(cluster: Cluster) -> None:
    namespace = make_namespace(cluster, "hot", bundles=1)
    whole = f"/admin/v2/namespaces/{namespace}/0x00000000_0xffffffff"
    client = client_of(cluster)
    for name in ("hot-a", "hot-b"):
        client.create_producer(f"persistent://{namespace}/{name}").send(b"1")
    answer = done(cluster.brokers[0], "GET", f"{whole}/topicHashPositions")
    places = sorted(answer["topicHashPositions"].values())
    assert places == sorted(crc32(f"persistent://{namespace}/{name}".encode()) for name in ("hot-a", "hot-b"))
    cut = (places[0] + places[1]) // 2
    given = {"splitAlgorithmName": "specified_positions_divide"}
    assert admin(cluster.brokers[0], "PUT", f"{whole}/split", params=given, json=["here"]).status_code == 400
    done(cluster.brokers[0], "PUT", f"{whole}/split", params=given, json=[cut])
    apart = [bundle_of(cluster.brokers[1], f"persistent://{namespace}/{name}") for name in ("hot-a", "hot-b")]
    assert apart[0] != apart[1]
    refused = admin(cluster.brokers[0], "PUT", f"{whole}/split")
    assert refused.status_code == 412
    client.close()


# --- administration ---------------------------------------------------------------------------------


def test_a_request_about_a_topic_is_sent_to_its_owner(cluster: Cluster) -> None:
    namespace = make_namespace(cluster, "asked")
    client = client_of(cluster)
    client.create_producer(f"persistent://{namespace}/t").send(b"1")
    owner = owner_of(cluster, f"persistent://{namespace}/t")
    path = f"/admin/v2/persistent/{namespace}/t/stats"
    sent_on = admin(other_than(cluster, owner), "GET", path, follow=False)
    assert sent_on.status_code == 307
    assert sent_on.headers["location"].startswith(f"{owner.said['webServiceUrl']}{path}?")
    assert done(other_than(cluster, owner), "GET", path)["msgInCounter"] == 1
    client.close()


def test_partitions_on_many_brokers_answer_as_one_topic(cluster: Cluster) -> None:
    namespace = make_namespace(cluster, "parts", bundles=8)
    path = f"/admin/v2/persistent/{namespace}/t"
    done(cluster.brokers[0], "PUT", f"{path}/partitions", content="8", headers={"content-type": "application/json"})
    client = client_of(cluster)
    consumer = client.subscribe(f"persistent://{namespace}/t", "s")
    producer = client.create_producer(f"persistent://{namespace}/t")
    for number in range(40):
        producer.send(f"{number}".encode())
    assert sorted(int(consumer.receive(timeout_millis=20_000).data()) for _ in range(40)) == list(range(40))
    owners = {broker_id(owner_of(cluster, f"persistent://{namespace}/t-partition-{n}")) for n in range(8)}
    assert len(owners) == 2
    for role in cluster.brokers:
        stats = done(role, "GET", f"{path}/partitioned-stats")
        assert (stats["msgInCounter"], len(stats["partitions"])) == (40, 8)
        assert done(role, "GET", f"{path}/subscriptions") == ["s"]
    done(cluster.brokers[1], "PUT", f"{path}/unload")
    client.close()
    done(cluster.brokers[1], "DELETE", f"{path}/partitions", params={"force": "true"})
    assert done(cluster.brokers[0], "GET", f"/admin/v2/persistent/{namespace}") == []


@pytest.mark.feature("B-36")
def test_what_concerns_a_whole_namespace_reaches_every_broker(cluster: Cluster) -> None:
    namespace = make_namespace(cluster, "wide")
    client = client_of(cluster)
    names = [f"t-{number}" for number in range(6)]
    for name in names:
        client.subscribe(f"persistent://{namespace}/{name}", "s").close()
        client.create_producer(f"persistent://{namespace}/{name}").send(b"1")
    assert len({broker_id(owner_of(cluster, f"persistent://{namespace}/{name}")) for name in names}) == 2

    def backlogs() -> set[int]:
        stats = [done(cluster.brokers[0], "GET", f"/admin/v2/persistent/{namespace}/{name}/stats") for name in names]
        return {each["subscriptions"]["s"]["msgBacklog"] for each in stats}

    assert backlogs() == {1}
    done(cluster.brokers[1], "POST", f"/admin/v2/namespaces/{namespace}/clearBacklog")
    assert backlogs() == {0}
    done(cluster.brokers[1], "POST", f"/admin/v2/namespaces/{namespace}/unsubscribe/s")
    for name in names:
        assert done(cluster.brokers[0], "GET", f"/admin/v2/persistent/{namespace}/{name}/subscriptions") == []
    client.close()
    done(cluster.brokers[0], "PUT", f"/admin/v2/persistent/{namespace}/parts/partitions", json=4)
    done(cluster.brokers[0], "DELETE", f"/admin/v2/namespaces/{namespace}", params={"force": "true"})
    assert namespace not in done(cluster.brokers[1], "GET", f"/admin/v2/namespaces/{namespace.partition('/')[0]}")


@pytest.mark.feature("F-LB-02", "F-MD-11")
def test_brokers_are_registered_with_their_load(cluster: Cluster, eventually: Eventually) -> None:
    ids = sorted(broker_id(role) for role in cluster.brokers)
    namespace = make_namespace(cluster, "reported", bundles=16)
    owners = [owner_of(cluster, f"persistent://{namespace}/t-{number}") for number in range(16)]
    assert all(role in owners for role in cluster.brokers)
    for role in cluster.brokers:
        assert done(role, "GET", "/admin/v2/brokers/standalone") == ids
        assert done(role, "GET", "/admin/v2/brokers") == ids
        found = record(cluster, f"/loadbalance/brokers/{broker_id(role)}")
        assert found is not None
        assert found.ephemeral
        report = done(role, "GET", "/admin/v2/broker-stats/load-report")
        assert {"cpu", "memory", "directMemory", "bandwidthIn", "bandwidthOut", "bundles"} <= report.keys()
        assert report["memory"]["usage"] > 0
        reported = eventually(lambda role=role: value(cluster, f"/loadbalance/brokers/{broker_id(role)}")["bundles"])
        assert set(reported) & set(report["bundles"])
    leader = value(cluster, "/loadbalance/leader")
    assert leader["brokerId"] in ids
    assert leader["serviceUrl"] == f"http://{leader['brokerId']}"


@pytest.mark.feature("F-LB-13", "F-MD-10", "F-BND-16")
def test_a_setting_changes_on_every_broker_without_a_restart(cluster: Cluster, eventually: Eventually) -> None:
    key = "loadBalancerAutoBundleSplitEnabled"
    assert key in done(cluster.brokers[0], "GET", "/admin/v2/brokers/configuration")
    done(cluster.brokers[0], "POST", f"/admin/v2/brokers/configuration/{key}/false")
    for role in cluster.brokers:
        eventually(lambda role=role: done(role, "GET", "/admin/v2/brokers/configuration/runtime")[key] == "False")
    assert value(cluster, "/admin/configuration") == {key: "false"}
    assert done(cluster.brokers[1], "GET", "/admin/v2/brokers/configuration/values") == {key: "false"}
    assert admin(cluster.brokers[0], "POST", f"/admin/v2/brokers/configuration/{key}/perhaps").status_code == 412
    assert admin(cluster.brokers[0], "POST", "/admin/v2/brokers/configuration/clusterName/x").status_code == 412
    done(cluster.brokers[1], "DELETE", f"/admin/v2/brokers/configuration/{key}")
    for role in cluster.brokers:
        eventually(lambda role=role: done(role, "GET", "/admin/v2/brokers/configuration/runtime")[key] == "True")


@pytest.mark.feature("F-MD-21")
def test_administration_is_served_while_data_floods_in(cluster: Cluster) -> None:
    topic = f"persistent://{make_namespace(cluster, 'flooded', bundles=1)}/t"
    client = client_of(cluster)
    flood = Publishing(client, topic)
    try:
        owner, before = owner_of(cluster, topic), len(flood.acknowledged)
        for _ in range(20):
            assert done(owner, "GET", f"/admin/v2/{topic.replace('://', '/')}/stats")["publishers"]
            assert done(owner, "GET", "/admin/v2/brokers/leaderBroker")["brokerId"]
        assert len(flood.acknowledged) > before
    finally:
        flood.finish()
        client.close()


@pytest.mark.feature("F-ISO-04")
def test_namespaces_of_one_group_are_put_apart(cluster: Cluster) -> None:
    for name in ("apart-a", "apart-b"):
        make_namespace(cluster, name, bundles=1)
        path = f"/admin/v2/namespaces/public/{name}/antiAffinity"
        done(cluster.brokers[0], "POST", path, json="rivals")
    owners = [owner_of(cluster, f"persistent://public/{name}/t") for name in ("apart-a", "apart-b")]
    assert owners[0] is not owners[1]


def test_the_balancer_says_what_it_would_do(cluster: Cluster, eventually: Eventually) -> None:
    done(cluster.brokers[0], "POST", "/admin/v2/brokers/configuration/loadBalancerNamespaceBundleMaxTopics/3")
    namespace = make_namespace(cluster, "large", bundles=1)
    client = pulsar.Client(cluster.service_url, logger=QUIET)
    producers = [client.create_producer(f"persistent://{namespace}/t-{n}") for n in range(5)]
    leader = leader_of(cluster)

    def planned() -> bool:
        splits = done(leader, "GET", "/admin/v2/brokers/balance")["splits"]
        return any(split["bundle"].startswith(namespace) and "topics" in split["reason"] for split in splits)

    eventually(planned)
    done(leader, "POST", "/admin/v2/brokers/balance")
    assert done(leader, "GET", f"/admin/v2/namespaces/{namespace}/bundles")["numBundles"] == 2
    for producer in producers:
        producer.send(b"after the split")
    refused = admin(other_than(cluster, leader), "POST", "/admin/v2/brokers/balance")
    assert refused.status_code == 412
    client.close()
    done(cluster.brokers[0], "DELETE", "/admin/v2/brokers/configuration/loadBalancerNamespaceBundleMaxTopics")


@pytest.mark.feature("F-ISO-01")
def test_an_isolated_namespace_lives_on_its_primaries_alone(tmp_path: Path, eventually: Eventually) -> None:
    with Cluster(tmp_path, bookies=2, brokers=2, environment=QUICK) as cluster:
        primary, secondary = cluster.brokers
        policy = {
            "namespaces": ["public/secret.*"],
            "primary": [broker_id(primary)],
            "secondary": [broker_id(secondary)],
            "auto_failover_policy": {
                "policy_type": "min_available",
                "parameters": {"min_limit": "1", "usage_threshold": "100"},
            },
        }
        done(primary, "POST", "/admin/v2/clusters/standalone/namespaceIsolationPolicies/p", json=policy)
        namespace = make_namespace(cluster, "secret-1")
        topics = [f"persistent://{namespace}/t-{n}" for n in range(8)]
        assert {broker_id(owner_of(cluster, topic, ask=secondary)) for topic in topics} == {broker_id(primary)}
        # Everyone else keeps away from it.
        assert owner_of(cluster, "persistent://public/default/t") is secondary
        primary.kill()

        def served_by_the_secondary() -> bool:
            answer = look_up(secondary, topics[0])
            return answer.response == Answer.Connect and answer.brokerServiceUrl == secondary.said["serviceUrl"]

        eventually(served_by_the_secondary)
