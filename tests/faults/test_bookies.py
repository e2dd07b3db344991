# SPDX-License-Identifier: Apache-2.0
"""Bookies, a broker and metadata as processes of their own, killed under load: nothing acknowledged is lost."""

import random
import shutil
import signal
from pathlib import Path
from uuid import uuid4

import pulsar
import pytest

from tests.cluster import Cluster
from tests.conftest import Eventually
from tests.contracts.zookeeper_server import zookeeper_server
from tests.faults.test_kill_9 import QUIET, Publishing, read_everything

TOPIC = "persistent://public/default/killed"
ROUNDS = 4
# So that a bookie that says nothing is replaced while the test still runs.
IMPATIENT = {"bookkeeperClientTimeoutInSeconds": "2"}


def connected(cluster: Cluster) -> pulsar.Client:
    """A client with a subscription that keeps every message: what nobody subscribes to may be trimmed."""
    client = pulsar.Client(cluster.service_url, operation_timeout_seconds=60, logger=QUIET)
    client.subscribe(TOPIC, "keeper").close()
    return client


def in_send_order(names: list[str]) -> list[str]:
    """What was read, without the repetitions of what was sent again after a lost answer."""
    return list(dict.fromkeys(names))


def check_nothing_is_lost(publishing: Publishing, client: pulsar.Client) -> None:
    publishing.finish()
    assert publishing.acknowledged.keys() == set(publishing.sent)
    assert in_send_order(read_everything(client, TOPIC)) == publishing.sent


def until_more(publishing: Publishing, count: int, eventually: Eventually) -> None:
    """Receipts for so many more; how soon is the machine's affair."""
    wanted = len(publishing.acknowledged) + count
    eventually(lambda: len(publishing.acknowledged) >= wanted, limit_s=90)


@pytest.mark.feature("F-BKS-03", "F-BKS-17")
@pytest.mark.parametrize("kind", ["remote", "zk"])
def test_bookies_and_broker_are_killed_in_turn_under_load(tmp_path: Path, eventually: Eventually, kind: str) -> None:
    chance = random.Random(11)
    metadata = None if kind == "remote" else f"zk:{zookeeper_server()}/{uuid4().hex}"
    with Cluster(tmp_path, metadata=metadata, environment=IMPATIENT) as cluster:
        client = connected(cluster)
        publishing = Publishing(client, TOPIC)
        assert cluster.broker is not None
        try:
            for _ in range(ROUNDS):
                until_more(publishing, chance.randint(50, 500), eventually)
                bookie = chance.choice(cluster.bookies)
                bookie.kill()
                until_more(publishing, 50, eventually)
                bookie.start()
            cluster.broker.kill()
            cluster.broker.start()
            until_more(publishing, 50, eventually)
        finally:
            publishing.stop()
        check_nothing_is_lost(publishing, client)
        client.close()


@pytest.mark.feature("F-BKS-03")
def test_everything_is_killed_at_once(tmp_path: Path, eventually: Eventually) -> None:
    with Cluster(tmp_path, environment=IMPATIENT) as cluster:
        client = connected(cluster)
        publishing = Publishing(client, TOPIC)
        try:
            until_more(publishing, 300, eventually)
            for role in cluster.processes():
                role.signal(signal.SIGKILL)
            for role in cluster.processes():
                role.wait()
            cluster.start()
            until_more(publishing, 50, eventually)
        finally:
            publishing.stop()
        check_nothing_is_lost(publishing, client)
        client.close()


def test_a_paused_bookie_is_replaced_and_comes_back(tmp_path: Path, eventually: Eventually) -> None:
    with Cluster(tmp_path, environment=IMPATIENT) as cluster:
        client = connected(cluster)
        publishing = Publishing(client, TOPIC)
        try:
            for bookie in cluster.bookies[:2]:
                until_more(publishing, 50, eventually)
                bookie.signal(signal.SIGSTOP)
                until_more(publishing, 50, eventually)
                bookie.signal(signal.SIGCONT)
        finally:
            publishing.stop()
        check_nothing_is_lost(publishing, client)
        client.close()


@pytest.mark.feature("F-BKS-29", "F-HA-13")
def test_a_bookie_whose_disk_was_wiped_does_not_start(tmp_path: Path) -> None:
    with Cluster(tmp_path, bookies=1, broker=False) as cluster:
        bookie = cluster.bookies[0]
        assert bookie.stop() == 0
        shutil.rmtree(bookie.data_directory)
        bookie.launch()
        assert bookie.wait() == 2
        assert "carries no cookie" in bookie.log_tail()
