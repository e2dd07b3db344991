# SPDX-License-Identifier: Apache-2.0
"""A metadata store that is connected and says nothing, for its servers stand still: open topics go on, what needs the
store is refused in time, and whoever stops does so in order.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from tests.brokers import QUICK, Answer, client_of, look_up, make_namespace, owner_of
from tests.cluster import Cluster
from tests.conftest import Eventually
from tests.contracts.etcd_server import EtcdServer
from tests.faults.test_bookies import until_more
from tests.faults.test_cluster import Calmly, is_served_by
from tests.faults.test_kill_9 import read_everything
from tests.faults.zookeeper_ensemble import ZooKeeperEnsemble

pytestmark = pytest.mark.skipif(os.environ.get("CLUSTER_FAULTS") != "all", reason="make cluster-faults runs it")

# Sessions outlive the silence: the connection stands, and nothing but the missing answers tells of it. Ledgers would be
# full soon.
_PATIENT = {
    **QUICK,
    "metadataStoreSessionTimeoutMillis": "60000",
    "managedLedgerMaxEntriesPerLedger": "50",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
}

Signal = Callable[[signal.Signals], None]


@contextmanager
def store_and_cluster(directory: Path, kind: str) -> Iterator[tuple[Signal, Cluster]]:
    if kind == "remote":
        with Cluster(directory, bookies=2, brokers=2, environment=_PATIENT) as cluster:
            assert cluster.metadata is not None
            yield cluster.metadata.signal, cluster
    elif kind == "zk":
        with ZooKeeperEnsemble(directory / "zookeeper", 1) as ensemble:
            url = f"{ensemble.url}/{uuid4().hex}"
            with Cluster(directory, bookies=2, brokers=2, metadata=url, environment=_PATIENT) as cluster:
                yield ensemble.servers[0].signal, cluster
    else:
        server = EtcdServer()
        server.start()
        try:
            url = f"etcd:{server.url}/{uuid4().hex}"
            with Cluster(directory, bookies=2, brokers=2, metadata=url, environment=_PATIENT) as cluster:
                yield server.signal, cluster
        finally:
            server.signal(signal.SIGCONT)
            server.remove()


@pytest.mark.feature("F-MD-16", "F-HA-08")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["remote", "zk", "etcd"])
def test_a_store_says_nothing_and_open_topics_go_on(tmp_path: Path, eventually: Eventually, kind: str) -> None:
    with store_and_cluster(tmp_path, kind) as (send_signal, cluster):
        namespace = make_namespace(cluster, "silent", bundles=1)
        unborn = make_namespace(cluster, "unborn", bundles=1)
        topic = f"persistent://{namespace}/t"
        client = client_of(cluster)
        client.subscribe(topic, "keeper").close()
        publishing = Calmly(client, topic)
        until_more(publishing, 100, eventually)
        owner = owner_of(cluster, topic)
        send_signal(signal.SIGSTOP)
        try:
            until_more(publishing, 300, eventually)
            assert is_served_by(owner, topic)
            refused = look_up(owner, f"persistent://{unborn}/t")
            assert refused.response == Answer.Failed
            until_more(publishing, 100, eventually)
        finally:
            send_signal(signal.SIGCONT)
        until_more(publishing, 100, eventually)
        client.create_producer(f"persistent://{unborn}/t").send(b"born")
        publishing.finish()
        assert publishing.acknowledged.keys() == set(publishing.sent)
        assert list(dict.fromkeys(read_everything(client, topic))) == publishing.sent
        client.close()
        send_signal(signal.SIGSTOP)
        try:
            # 3 would say that the time for an orderly stop ran out.
            assert [role.stop() for role in (*cluster.brokers, *cluster.bookies)] == [0, 0, 0, 0]
        finally:
            send_signal(signal.SIGCONT)
