# SPDX-License-Identifier: Apache-2.0
"""A cluster is upgraded under load, goes back, and is upgraded again, server by server: no client sees an error, and
nothing is lost. Nobody writes what another member cannot read. An old version is the present code that was told to
read no more than that one could.
"""

import hashlib
from pathlib import Path
from typing import Any

import pulsar
import pytest

from tests.brokers import QUICK, QUIET, broker_id, client_of, done, record
from tests.cluster import Cluster, ProxyRole, RoleProcess
from tests.conftest import Eventually
from tests.faults.test_bookies import until_more
from tests.faults.test_cluster import Calmly, Receiving, everything_arrived, namespace_without_repetition

LEVEL_MAX = "MAGNETAR_METADATA_FORMAT_LEVEL_MAX"
COMPRESSED = b"\x47\x78"
# All would compress, and the level rises as soon as it may.
EAGER = {
    **QUICK,
    LEVEL_MAX: "1",
    "MAGNETAR_BALANCE_FORMAT_LEVEL_DELAY_MS": "0",
    "managedLedgerInfoCompressionType": "ZSTD",
    "managedLedgerInfoCompressionThresholdInBytes": "0",
    # Records of some size, soon.
    "managedLedgerMaxEntriesPerLedger": "50",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "defaultRetentionTimeInMinutes": "-1",
    "defaultRetentionSizeInMB": "-1",
}


def restart(role: RoleProcess, level_max: int) -> None:
    """In order, as an upgrade or the way back does it."""
    assert role.stop() == 0
    role.configure(**{LEVEL_MAX: str(level_max)})
    role.start()


def level(role: RoleProcess) -> dict[str, Any]:
    found: dict[str, Any] = done(role, "GET", "/admin/v2/brokers/format-level")
    return found


def stored_record(cluster: Cluster) -> bytes:
    found = record(cluster, "/managed-ledgers/public/mixed/persistent/t")
    assert found is not None
    return found.value


def digests(directory: Path) -> dict[str, str]:
    return {
        str(file): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(directory.rglob("*"))
        if file.is_file() and not file.name.lower().endswith("lock")
    }


@pytest.mark.feature("F-DEP-12", "F-HA-05")
@pytest.mark.timeout(600)
def test_a_cluster_is_upgraded_goes_back_and_is_upgraded_again(tmp_path: Path, eventually: Eventually) -> None:
    with Cluster(tmp_path, bookies=3, brokers=2, environment=EAGER) as cluster:
        topic = f"persistent://{namespace_without_repetition(cluster, 'mixed')}/t"
        client = client_of(cluster)
        client.subscribe(topic, "keeper").close()
        proxy = add_proxy(cluster, tmp_path)
        through = pulsar.Client(proxy.said["serviceUrl"], operation_timeout_seconds=60, logger=QUIET)
        receiving, publishing = Receiving(through, topic), Calmly(client, topic)
        first, second = cluster.brokers
        assert first is not None
        assert second is not None
        try:
            # Half of it is new: the level waits, and nothing new is written.
            for role in (cluster.bookies[0], first):
                until_more(publishing, 50, eventually)
                restart(role, 2)
            until_more(publishing, 200, eventually)
            said = level(first)
            assert said["level"] == 1
            assert f"broker {broker_id(second)}" in said["heldBackBy"]
            assert not stored_record(cluster).startswith(COMPRESSED)
            # It was a bad idea: back.
            for role in (first, cluster.bookies[0]):
                restart(role, 1)
                until_more(publishing, 50, eventually)
            # It was a good idea after all.
            assert cluster.metadata is not None
            for role in (cluster.metadata, *cluster.bookies, first, second, proxy):
                restart(role, 2)
                until_more(publishing, 50, eventually)
            eventually(lambda: level(first)["level"] == 2)
            eventually(lambda: stored_record(cluster).startswith(COMPRESSED))
            refuse_the_old(cluster.bookies[0])
            refuse_the_old(second)
            until_more(publishing, 100, eventually)
        finally:
            publishing.stop()
            publishing.finish()
        everything_arrived(client, topic, publishing, receiving, eventually)
        through.close()
        client.close()


def add_proxy(cluster: Cluster, directory: Path) -> RoleProcess:
    """One that ends with the cluster."""
    proxy = ProxyRole("proxy", directory, cluster.metadata_url, EAGER)
    cluster.others.append(proxy)
    proxy.start()
    return proxy


def refuse_the_old(role: RoleProcess) -> None:
    """The way back is closed: the old version says so in one sentence and has touched nothing."""
    assert role.stop() == 0
    before = digests(role.data_directory)
    role.configure(**{LEVEL_MAX: "1"})
    role.launch()
    assert role.wait() == 2
    assert "reads up to 1: start the newer version" in role.log_tail()
    assert digests(role.data_directory) == before
    role.configure(**{LEVEL_MAX: "2"})
    role.start()
