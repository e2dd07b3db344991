# SPDX-License-Identifier: Apache-2.0
"""A bookie that dies under load, a region that is lost, and workers of a cluster; `make cluster-faults` runs them."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import quantiles

import pulsar
import pytest

from magnetar.ledger.paths import ledger_path
from magnetar.ledger.record_format import decode_record
from tests.brokers import QUICK, QUIET, client_of, done, owner_of, record
from tests.cluster import Cluster, RoleProcess
from tests.conftest import Eventually
from tests.faults.test_bookies import until_more
from tests.faults.test_cluster import Calmly, Receiving, namespace_without_repetition
from tests.faults.test_kill_9 import read_everything
from tests.processes import free_port

pytestmark = pytest.mark.skipif(os.environ.get("CLUSTER_FAULTS") != "all", reason="make cluster-faults runs it")
TOPIC = "persistent://public/default/rows"


class Timed(Calmly):
    """Knows how long each receipt took."""

    def __init__(self, client: pulsar.Client, topic: str) -> None:
        self.sent_at: dict[str, float] = {}
        super().__init__(client, topic)

    def _send(self, name: str) -> None:
        self.sent_at[name] = time.monotonic()
        super()._send(name)

    def p99_s(self) -> float:
        latencies = [at - self.sent_at[name] for name, at in self.acknowledged.items()]
        return quantiles(latencies, n=100)[98]


def ensembles(cluster: Cluster, topic: str) -> Iterator[tuple[int, list[str]]]:
    """The bookies of every ledger of a topic, in their order."""
    path = topic.replace("://", "/")
    ledgers = [
        each["ledgerId"] for each in done(cluster.brokers[0], "GET", f"/admin/v2/{path}/internalStats")["ledgers"]
    ]
    for ledger_id in ledgers:
        found = record(cluster, ledger_path(ledger_id))
        assert found is not None
        yield ledger_id, [bookie for each in decode_record(ledger_id, found.value).segments for bookie in each.ensemble]


@pytest.mark.feature("F-HA-04")
def test_a_dead_bookie_is_replaced_at_once_and_clients_see_no_error(tmp_path: Path, eventually: Eventually) -> None:
    with Cluster(tmp_path, bookies=3, brokers=1, environment=QUICK) as cluster:
        client = client_of(cluster)
        client.subscribe(TOPIC, "keeper").close()
        receiving, publishing = Receiving(client, TOPIC), Timed(client, TOPIC)
        until_more(publishing, 300, eventually)
        (_, before), *_ = ensembles(cluster, TOPIC)
        dead = next(each for each in cluster.bookies if each.said["bookieId"] in before)
        dead.kill()
        until_more(publishing, 600, eventually)
        publishing.stop()
        publishing.finish()
        *_, (_, after) = ensembles(cluster, TOPIC)
        assert dead.said["bookieId"] not in after[-2:]
        assert publishing.acknowledged.keys() == set(publishing.sent)
        # Told, not asserted: how long it took is also the machine's affair.
        print(json.dumps({"p99_ms_around_a_dead_bookie": round(publishing.p99_s() * 1000)}))  # noqa: T201
        assert read_everything(client, TOPIC) == publishing.sent
        eventually(lambda: receiving.received == publishing.sent)
        receiving.stop()
        client.close()


# Every entry in both regions before it is acknowledged; with one region left, its own bookies have to do.
TWO_REGIONS = {
    **QUICK,
    "bookkeeperClientRegionawarePolicyEnabled": "true",
    "managedLedgerDefaultEnsembleSize": "2",
    "managedLedgerDefaultWriteQuorum": "2",
    "managedLedgerDefaultAckQuorum": "2",
}


@pytest.mark.feature("F-HA-11")
def test_a_region_is_lost_with_its_broker_and_bookies_and_the_other_goes_on(
    tmp_path: Path, eventually: Eventually
) -> None:
    with Cluster(tmp_path, bookies=4, brokers=2, environment=TWO_REGIONS) as cluster:
        regions = {"east": cluster.bookies[:2], "west": cluster.bookies[2:]}
        for region, bookies in regions.items():
            for number, bookie in enumerate(bookies):
                place = {"rack": f"/{region}/rack-{number}", "hostname": bookie.said["bookieId"]}
                path = f"/admin/v2/bookies/racks-info/{bookie.said['bookieId']}"
                done(cluster.brokers[0], "POST", path, params={"group": "default"}, json=place)
        topic = f"persistent://{namespace_without_repetition(cluster, 'stretched')}/t"
        lost = owner_of(cluster, topic)
        (left,) = (broker for broker in cluster.brokers if broker is not lost)
        client = client_of(cluster)
        client.subscribe(topic, "keeper").close()
        receiving, publishing = Receiving(client, topic), Calmly(client, topic)
        try:
            until_more(publishing, 300, eventually)
            east = {str(bookie.said["bookieId"]) for bookie in regions["east"]}
            for _, ensemble in ensembles(cluster, topic):
                assert 0 < len(east & set(ensemble)) < len(ensemble), "an entry has copies in one region only"
            for role in (lost, *regions["east"]):
                role.kill()
            until_more(publishing, 600, eventually)
        finally:
            publishing.stop()
            publishing.finish()
        assert owner_of(cluster, topic, ask=left) is left
        assert publishing.acknowledged.keys() == set(publishing.sent)
        assert read_everything(client, topic) == publishing.sent
        eventually(lambda: list(dict.fromkeys(receiving.received)) == publishing.sent)
        receiving.stop()
        client.close()


def test_workers_of_a_cluster_share_one_address(tmp_path: Path, eventually: Eventually) -> None:
    with Cluster(tmp_path, bookies=2, broker=False) as cluster:
        ports = ["--port", str(free_port()), "--http-port", str(free_port()), "--workers", "2"]
        parent = RoleProcess("parent", tmp_path / "parent", "broker", "--metadata", cluster.metadata_url, *ports)
        said = parent.start()
        try:
            client = pulsar.Client(said["serviceUrl"], logger=QUIET)
            for number in range(8):
                client.create_producer(f"{TOPIC}-{number}").send(b"spread")
            client.close()
        finally:
            assert parent.stop() == 0
