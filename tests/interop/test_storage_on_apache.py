# SPDX-License-Identifier: Apache-2.0
"""A broker of ours on a cluster of Apache BookKeeper: it stores and reads there, and our bookies join beside."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest
from kazoo.client import KazooClient

from magnetar.wire.bookkeeper import ledger_metadata
from tests.cluster import RoleProcess
from tests.interop.apache import ApacheBookie, configuration, distribution, shell
from tests.processes import free_port

QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)


@pytest.fixture(scope="module")
def apache(zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[ApacheBookie]]]:
    """ZooKeeper and two bookies of Apache's; Apache's own shell has formatted the metadata."""
    distribution()
    directory = tmp_path_factory.mktemp("apache")
    root = f"/{uuid.uuid4().hex}/ledgers"
    uri = f"zk+hierarchical://{zookeeper}{root}"
    tree = KazooClient(hosts=zookeeper)
    tree.start()
    tree.ensure_path(root.rpartition("/")[0])
    tree.stop()
    tree.close()
    shell(configuration(directory / "shell", zookeeper, zkLedgersRootPath=root), "initnewcluster")
    with (
        ApacheBookie(directory / "one", zookeeper, zkLedgersRootPath=root) as one,
        ApacheBookie(directory / "two", zookeeper, zkLedgersRootPath=root) as two,
    ):
        yield uri, [one, two]


def _role(verb: str, directory: Path, uri: str) -> RoleProcess:
    ports = ["--port", str(free_port()), "--http-port", str(free_port())]
    return RoleProcess(verb, directory, verb, *ports, environment={"metadataServiceUri": uri})


def _ensembles(uri: str) -> set[str]:
    """Every bookie that some ledger's record names."""
    hosts, _, path = uri.partition("://")[2].partition("/")
    tree = KazooClient(hosts=f"{hosts}/{path.removesuffix('/ledgers')}")
    tree.start()
    try:
        found: set[str] = set()
        for top in tree.get_children("/ledgers"):
            if not top.isdecimal():
                continue
            for middle in tree.get_children(f"/ledgers/{top}"):
                for name in tree.get_children(f"/ledgers/{top}/{middle}"):
                    metadata = ledger_metadata.decode(tree.get(f"/ledgers/{top}/{middle}/{name}")[0])
                    found |= {bookie for segment in metadata.segment for bookie in segment.ensembleMember}
        return found
    finally:
        tree.stop()
        tree.close()


def _send(url: str, topic: str, numbers: range) -> None:
    client = pulsar.Client(url, logger=QUIET)
    producer = client.create_producer(topic)
    for number in numbers:
        producer.send(b"%d" % number)
    client.close()


def _read(url: str, topic: str, count: int) -> list[int]:
    client = pulsar.Client(url, logger=QUIET)
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = [int(reader.read_next(timeout_millis=20_000).data()) for _ in range(count)]
    client.close()
    return found


def test_a_broker_stores_on_apaches_bookies_and_ours_join(
    apache: tuple[str, list[ApacheBookie]], tmp_path: Path
) -> None:
    uri, bookies = apache
    broker = _role("broker", tmp_path / "broker", uri)
    url = broker.start()["serviceUrl"]
    ours = _role("bookie", tmp_path / "bookie", uri)
    try:
        _send(url, "kept-by-apache", range(200))
        assert _ensembles(uri) == {bookie.bookie_id for bookie in bookies}
        assert _read(url, "kept-by-apache", 200) == list(range(200))
        broker.kill()
        url = broker.start()["serviceUrl"]
        # Recovery of what the killed broker left open, and of its cursors, is done with Apache's bookies.
        assert _read(url, "kept-by-apache", 200) == list(range(200))
        name = str(ours.start()["bookieId"])
        for topic in range(6):
            _send(url, f"kept-by-both-{topic}", range(20))
        assert name in _ensembles(uri)
        for topic in range(6):
            assert _read(url, f"kept-by-both-{topic}", 20) == list(range(20))
    finally:
        for role in (broker, ours):
            if role.is_running:
                role.kill()
