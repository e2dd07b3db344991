# SPDX-License-Identifier: Apache-2.0
"""Brokers that die, freeze or leave while official clients publish and consume: nothing acknowledged is lost, with
deduplication nothing comes twice, and the clients go on by themselves.
"""

import os
import signal
import time
from pathlib import Path
from uuid import uuid4

import pulsar
import pytest

from tests.brokers import (
    QUICK,
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
)
from tests.cluster import Cluster, RoleProcess
from tests.conformance.raw_client import RawClient
from tests.conftest import Eventually
from tests.contracts.zookeeper_server import zookeeper_server
from tests.faults.client_threads import ClientThread
from tests.faults.test_bookies import until_more
from tests.faults.test_kill_9 import Publishing, read_everything

LIMIT_S = 90.0
# `make cluster-faults` runs everything.
LONG = pytest.mark.skipif(os.environ.get("CLUSTER_FAULTS") != "all", reason="make cluster-faults runs it")


class Calmly(Publishing):
    """Some hundred messages a second: what is tested is the way through faults, not the speed."""

    def _pause(self) -> None:
        self._stop.wait(0.003)


class Receiving(ClientThread):
    """An official consumer in a thread of its own that acknowledges everything; knows what came, in order."""

    def __init__(self, client: pulsar.Client, topic: str) -> None:
        super().__init__(client)
        self.received: list[str] = []
        self._consumer = client.subscribe(topic, "reads-along")
        self.begin()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                message = self._consumer.receive(timeout_millis=200)
            except pulsar.Timeout:
                continue
            self.received.append(message.data().decode())
            self._consumer.acknowledge(message)


def everything_arrived(
    client: pulsar.Client, topic: str, publishing: Publishing, receiving: Receiving, eventually: Eventually
) -> None:
    """Every message got its receipt and is stored once, in order; a consumer may have seen some again."""
    assert publishing.acknowledged.keys() == set(publishing.sent)
    assert read_everything(client, topic) == publishing.sent
    eventually(lambda: len(set(receiving.received)) == len(publishing.sent))
    receiving.stop()
    assert list(dict.fromkeys(receiving.received)) == publishing.sent


def namespace_without_repetition(cluster: Cluster, name: str) -> str:
    namespace = make_namespace(cluster, name, bundles=1)
    done(
        cluster.brokers[0],
        "POST",
        f"/admin/v2/namespaces/{namespace}/deduplication",
        content="true",
        headers={"content-type": "application/json"},
    )
    return namespace


def alive(cluster: Cluster, dead: RoleProcess) -> RoleProcess:
    return next(role for role in cluster.brokers if role is not dead)


def is_served_by(asked: RoleProcess, topic: str) -> bool:
    answer = look_up(asked, topic)
    return answer.response == Answer.Connect and answer.brokerServiceUrl == asked.said["serviceUrl"]


@pytest.mark.feature("F-HA-01", "F-HA-02", "F-HA-05", "F-BND-07", "F-MD-17", "F-PLAT-08")
@pytest.mark.parametrize("kind", ["remote", pytest.param("zk", marks=LONG)])
def test_an_owner_is_killed_and_the_next_one_freezes(tmp_path: Path, eventually: Eventually, kind: str) -> None:
    metadata = None if kind == "remote" else f"zk:{zookeeper_server()}/{uuid4().hex}"
    with Cluster(tmp_path, bookies=2, brokers=2, metadata=metadata, environment=QUICK) as cluster:
        topic = f"persistent://{namespace_without_repetition(cluster, 'killed')}/t"
        client = client_of(cluster)
        client.subscribe(topic, "keeper").close()
        receiving = Receiving(client, topic)
        publishing = Calmly(client, topic)
        try:
            until_more(publishing, 200, eventually)
            bundle = bundle_of(cluster.brokers[0], topic).rpartition("/")[2]
            done(cluster.brokers[0], "PUT", f"/admin/v2/namespaces/public/killed/{bundle}/unload")
            until_more(publishing, 200, eventually)
            first = owner_of(cluster, topic)
            second = alive(cluster, first)
            first.kill()
            until_more(publishing, 200, eventually)
            assert is_served_by(second, topic)
            first.start()
            # Frozen for longer than its session lives: the other takes over and fences what this one still writes.
            second.signal(signal.SIGSTOP)
            try:
                eventually(lambda: is_served_by(first, topic))
                with RawClient(port_of(first.said["serviceUrl"])) as raw:
                    assert raw.open_producer(topic).type == Kind.PRODUCER_SUCCESS
            finally:
                second.signal(signal.SIGCONT)
            until_more(publishing, 200, eventually)
            assert is_served_by(first, topic)
            eventually(lambda: owner_of(cluster, topic, ask=second) is first)
        finally:
            publishing.stop()
            publishing.finish()
        everything_arrived(client, topic, publishing, receiving, eventually)
        client.close()


@LONG
@pytest.mark.feature("F-LB-01")
def test_the_leader_dies_and_another_leads(tmp_path: Path, eventually: Eventually) -> None:
    with Cluster(tmp_path, bookies=1, brokers=2, environment={**QUICK, **ONE_COPY}) as cluster:
        leader = by_id(cluster, done(cluster.brokers[0], "GET", "/admin/v2/brokers/leaderBroker")["brokerId"])
        other = alive(cluster, leader)
        topic = "persistent://public/default/t"
        before = owner_of(cluster, topic)
        leader.kill()

        def leads() -> bool:
            answer = admin(other, "GET", "/admin/v2/brokers/leaderBroker")
            return answer.status_code == 200 and answer.json()["brokerId"] == broker_id(other)

        eventually(leads)
        eventually(lambda: is_served_by(other, topic))
        eventually(lambda: done(other, "GET", "/admin/v2/brokers") == [broker_id(other)])
        assert record(cluster, f"/loadbalance/brokers/{broker_id(leader)}") is None
        assert before in cluster.brokers


ONE_COPY = {
    "managedLedgerDefaultEnsembleSize": "1",
    "managedLedgerDefaultWriteQuorum": "1",
    "managedLedgerDefaultAckQuorum": "1",
}


@LONG
@pytest.mark.feature("F-HA-01", "F-HA-05")
def test_brokers_restart_one_after_another_and_no_client_sees_an_error(tmp_path: Path, eventually: Eventually) -> None:
    with Cluster(tmp_path, bookies=2, brokers=2, environment=QUICK) as cluster:
        topic = f"persistent://{namespace_without_repetition(cluster, 'rolled')}/t"
        client = client_of(cluster)
        client.subscribe(topic, "keeper").close()
        receiving = Receiving(client, topic)
        publishing = Calmly(client, topic)
        try:
            for role in cluster.brokers * 2:
                until_more(publishing, 100, eventually)
                assert role.stop() == 0
                until_more(publishing, 100, eventually)
                role.start()
        finally:
            publishing.stop()
            publishing.finish()
        everything_arrived(client, topic, publishing, receiving, eventually)
        client.close()


@pytest.mark.feature("F-MD-16", "F-HA-08", "F-PRB-23")
@pytest.mark.timeout(300)
def test_the_metadata_store_is_away_and_open_topics_go_on(tmp_path: Path, eventually: Eventually) -> None:
    # The ledger is full soon, but not yet: it grows beyond its limit while no new one can be had. (In the middle of a
    # roll nothing could be told: what the next ledger has counts when that is on record.)
    full = 1_000
    small = {"managedLedgerMaxEntriesPerLedger": str(full), "managedLedgerMinLedgerRolloverTimeMinutes": "0"}
    with Cluster(tmp_path, bookies=2, brokers=2, environment={**QUICK, **small}) as cluster:
        namespace = make_namespace(cluster, "cut-off", bundles=1)
        fresh = make_namespace(cluster, "unborn", bundles=1)
        topic = f"persistent://{namespace}/t"
        client = client_of(cluster)
        client.subscribe(topic, "keeper").close()
        receiving = Receiving(client, topic)
        publishing = Calmly(client, topic)
        try:
            owner = owner_of(cluster, topic)
            until_more(publishing, 100, eventually)
            assert cluster.metadata is not None
            cluster.metadata.kill()
            until = time.monotonic() + 3
            until_more(publishing, full, eventually)
            eventually(lambda: time.monotonic() > until)
            until_more(publishing, 150, eventually)
            # What is owned is found; what is not waits for better times.
            assert is_served_by(owner, topic)
            refused = look_up(owner, f"persistent://{fresh}/t")
            assert refused.response == Answer.Failed
            cluster.metadata.start()
            until_more(publishing, 150, eventually)
            client.create_producer(f"persistent://{fresh}/t").send(b"born")
        finally:
            publishing.stop()
            publishing.finish()
        assert publishing.acknowledged.keys() == set(publishing.sent)
        assert list(dict.fromkeys(read_everything(client, topic))) == publishing.sent
        eventually(lambda: len(set(receiving.received)) == len(publishing.sent))
        receiving.stop()
        client.close()
        # Who stops does not wait for a store that is gone: 3 would say that the time for an orderly stop ran out.
        cluster.metadata.kill()
        assert [role.stop() for role in (*cluster.brokers, *cluster.bookies)] == [0, 0, 0, 0]


@LONG
def test_a_second_broker_at_the_same_address_is_refused(tmp_path: Path) -> None:
    with Cluster(tmp_path, bookies=1, brokers=1, environment={**QUICK, **ONE_COPY}) as cluster:
        port = broker_id(cluster.brokers[0]).rpartition(":")[2]
        twin = RoleProcess(
            "twin",
            tmp_path / "twin",
            *("broker", "--metadata", cluster.metadata_url, "--port", "0", "--http-port", port, "--bind", "127.0.0.2"),
            environment={**QUICK, **ONE_COPY, "advertisedAddress": "127.0.0.1"},
        )
        twin.launch()
        assert twin.wait(LIMIT_S) == 2
        assert "Another broker of this cluster is registered as" in twin.log_tail()
        assert is_served_by(cluster.brokers[0], "persistent://public/default/t")
