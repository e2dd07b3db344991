# SPDX-License-Identifier: Apache-2.0
"""Processes that are cut off from the metadata server alone: bookies and clients still reach them."""

from pathlib import Path

import pytest

from tests.brokers import QUICK, Kind, admin, broker_id, client_of, make_namespace, owner_of, port_of, record
from tests.cluster import Cluster, RoleProcess
from tests.conformance.raw_client import RawClient
from tests.conftest import Eventually
from tests.faults.test_bookies import until_more
from tests.faults.test_cluster import Calmly, Receiving, is_served_by
from tests.faults.test_kill_9 import read_everything
from tests.processes import free_port
from tests.relay import Relay

IMPATIENT = {"managedLedgerAddEntryTimeoutSeconds": "5"}


def behind(relay: Relay, directory: Path, verb: str, more: dict[str, str] | None = None) -> RoleProcess:
    """A process that reaches the metadata through the relay."""
    ports = ["--port", str(free_port()), "--http-port", str(free_port())]
    words = [verb, "--metadata", f"remote:127.0.0.1:{relay.port}", *ports]
    environment = {**QUICK, **(more or {})}
    return RoleProcess(f"{verb}-behind", directory / f"{verb}-behind", *words, environment=environment)


@pytest.mark.feature("F-HA-07")
def test_a_broker_cut_off_from_metadata_is_fenced_by_its_successor(tmp_path: Path, eventually: Eventually) -> None:
    with (
        Cluster(tmp_path, bookies=2, brokers=1, environment=QUICK) as cluster,
        Relay(port_of(cluster.metadata_url)) as relay,
    ):
        # What it cannot store any more it refuses after this time; until then it tries to get another ledger.
        lonely, successor = behind(relay, tmp_path, "broker", IMPATIENT), cluster.brokers[0]
        assert successor is not None
        lonely.start()
        cluster.brokers.append(lonely)
        try:
            cluster.service_url += "," + lonely.said["serviceUrl"].removeprefix("pulsar://")
            namespace = make_namespace(cluster, "cut-off", bundles=1)
            topic = f"persistent://{namespace}/t"
            client = client_of(cluster)
            client.subscribe(topic, "keeper").close()
            move(cluster, namespace, lonely, topic, eventually)
            receiving = Receiving(client, topic)
            publishing = Calmly(client, topic)
            with RawClient(port_of(lonely.said["serviceUrl"])) as old:
                assert old.open_producer(topic).type == Kind.PRODUCER_SUCCESS
                until_more(publishing, 200, eventually)
                relay.cut()
                # It serves on as long as nobody has come after it.
                until_more(publishing, 100, eventually)
                old.send(sequence_id=1)
                assert old.expect(Kind.SEND_RECEIPT).send_receipt.sequence_id == 1
                eventually(lambda: is_served_by(successor, topic))
                with RawClient(port_of(successor.said["serviceUrl"])) as new:
                    assert new.open_producer(topic).type == Kind.PRODUCER_SUCCESS
                # The ledger is the successor's now: whatever the old one believes, it can acknowledge nothing.
                old.send(sequence_id=2)
                answer = old.next()
                assert answer is None or answer.type in (Kind.SEND_ERROR, Kind.CLOSE_PRODUCER), answer
            until_more(publishing, 200, eventually)
            assert owner_of(cluster, topic, ask=successor) is successor
            relay.mend()
            eventually(lambda: record(cluster, f"/loadbalance/brokers/{broker_id(lonely)}") is not None)
            eventually(lambda: owner_of(cluster, topic, ask=lonely) is successor)
            until_more(publishing, 100, eventually)
            publishing.stop()
            publishing.finish()
            assert publishing.acknowledged.keys() == set(publishing.sent)
            # One history for all: what is stored is in order, and whoever read along saw the same.
            stored = [name for name in read_everything(client, topic) if name.startswith("m-")]
            assert list(dict.fromkeys(stored)) == publishing.sent
            eventually(lambda: {name for name in receiving.received if name.startswith("m-")} == set(publishing.sent))
            receiving.stop()
            client.close()
        finally:
            lonely.kill()


def move(cluster: Cluster, namespace: str, target: RoleProcess, topic: str, eventually: Eventually) -> None:
    """Give the only bundle of a namespace to one broker."""
    owner_of(cluster, topic)
    path = f"/admin/v2/namespaces/{namespace}/0x00000000_0xffffffff/unload?destinationBroker={broker_id(target)}"
    answer = admin(cluster.brokers[0], "PUT", path)
    assert answer.status_code < 300, answer.text
    eventually(lambda: owner_of(cluster, topic) is target)
