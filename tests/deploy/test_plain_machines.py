# SPDX-License-Identifier: Apache-2.0
"""A cluster on plain machines, by the commands of docs/operating/deployment.md in their order."""

import subprocess
import sys
from pathlib import Path

import httpx
import pulsar
import pytest

from tests.brokers import QUIET, admin
from tests.cluster import Cluster, ProxyRole
from tests.faults.zookeeper_ensemble import ZooKeeperEnsemble
from tests.processes import free_port

COPIES = {
    "clusterName": "plain",
    "managedLedgerDefaultEnsembleSize": "3",
    "managedLedgerDefaultWriteQuorum": "3",
    "managedLedgerDefaultAckQuorum": "2",
}


def magnetar(*words: str) -> str:
    line = [sys.executable, "-m", "magnetar.cli.main", *words]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.feature("F-DEP-05")
@pytest.mark.timeout(600)
def test_three_stores_three_bookies_three_brokers_and_a_proxy_become_ready(tmp_path: Path) -> None:
    with ZooKeeperEnsemble(tmp_path / "zookeeper") as ensemble:
        url, door = f"{ensemble.url}/plain", free_port()
        magnetar(
            *("initialize-cluster-metadata", "--cluster", "plain", "--metadata-store", url),
            *("--configuration-metadata-store", url, "--web-service-url", f"http://localhost:{door}"),
            *("--broker-service-url", "pulsar://localhost:6650"),
        )
        with Cluster(tmp_path, bookies=3, brokers=3, metadata=url, environment=COPIES) as cluster:
            proxy = ProxyRole("proxy", tmp_path, url, {"clusterName": "plain"})
            cluster.others.append(proxy)
            said = proxy.start()
            for broker in cluster.brokers:
                assert admin(broker, "GET", "/admin/v2/brokers/ready").text == "ok"
            brokers = httpx.get(f"{said['webServiceUrl']}/admin/v2/brokers/plain", timeout=60).json()
            assert len(brokers) == 3
            described = httpx.get(f"{said['webServiceUrl']}/admin/v2/clusters/plain", timeout=60).json()
            assert described["serviceUrl"] == f"http://localhost:{door}"
            client = pulsar.Client(said["serviceUrl"], operation_timeout_seconds=120, logger=QUIET)
            consumer = client.subscribe("persistent://public/default/plain", "s")
            producer = client.create_producer("persistent://public/default/plain")
            for number in range(10):
                producer.send(b"%d" % number)
            received = []
            for _ in range(10):
                message = consumer.receive(timeout_millis=60_000)
                consumer.acknowledge(message)
                received.append(int(message.data()))
            assert received == list(range(10))
            client.close()
            for role in (proxy, *cluster.brokers, *cluster.bookies):
                assert role.stop() == 0, role.log_tail()
