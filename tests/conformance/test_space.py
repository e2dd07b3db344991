# SPDX-License-Identifier: Apache-2.0
"""Where messages are and when their space is free: what broker, shell and bookie each say of the same ledgers."""

import json
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pulsar
import pytest
from typer.testing import CliRunner

from magnetar.cli.main import app
from tests.cluster import Cluster

QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
# Two of them fill an entry log.
PAYLOAD = bytes(600_000)
Eventually = Callable[..., Any]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {
        "managedLedgerDefaultEnsembleSize": "1",
        "managedLedgerDefaultWriteQuorum": "1",
        "managedLedgerDefaultAckQuorum": "1",
        "managedLedgerMaxEntriesPerLedger": "6",
        "managedLedgerMinLedgerRolloverTimeMinutes": "0",
        "logSizeLimit": "1048576",
        # Nobody collects but the test.
        "gcWaitTime": "86400000",
        "flushInterval": "50",
    }
    with Cluster(tmp_path_factory.mktemp("space"), bookies=1, environment=settings) as running:
        yield running


@pytest.fixture
def client(cluster: Cluster) -> Iterator[pulsar.Client]:
    client = pulsar.Client(cluster.service_url, logger=QUIET)
    yield client
    client.close()


def _asked(url: str, verb: str = "GET", body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=verb)
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read()
    return json.loads(text) if text.startswith((b"{", b"[")) else text.decode()


def _topic(cluster: Cluster, name: str) -> str:
    assert cluster.broker is not None
    return f"{cluster.broker.said['webServiceUrl']}/admin/v2/persistent/public/default/{name}"


def _shell(cluster: Cluster, command: str, *arguments: str) -> str:
    result = CliRunner().invoke(app, ["bookkeeper", command, "--metadata", cluster.metadata_url, *arguments])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.feature("F-PLAT-03")
def test_broker_and_shell_name_the_same_ledgers_and_entries(
    cluster: Cluster, client: pulsar.Client, eventually: Eventually
) -> None:
    """Messages are in batches, a batch is an entry, entries are in ledgers; bookies know entries alone."""
    client.subscribe("levels", "s").close()
    producer = client.create_producer(
        "levels", batching_enabled=True, batching_max_messages=5, batching_max_publish_delay_ms=10_000
    )
    ids: list[Any] = []
    for _ in range(2):
        for number in range(25):
            producer.send_async(b"%d" % number, lambda _, message_id: ids.append(message_id))
        producer.flush()
        # The next owner writes to a ledger of its own.
        _asked(f"{_topic(cluster, 'levels')}/unload", "PUT")
    eventually(lambda: len(ids) == 50)
    assert len({(each.ledger_id(), each.entry_id(), each.batch_index()) for each in ids}) == 50
    entries = sorted({(each.ledger_id(), each.entry_id()) for each in ids})
    assert len(entries) == 10
    assert {each.batch_index() for each in ids} == set(range(5))
    producer.close()
    client.subscribe("levels", "s").close()
    said = _asked(f"{_topic(cluster, 'levels')}/internalStats")
    counts = {ledger["ledgerId"]: ledger["entries"] for ledger in said["ledgers"] if ledger["entries"]}
    assert sum(counts.values()) == 10
    assert len(counts) > 1
    assert entries == [(ledger, entry) for ledger in sorted(counts) for entry in range(counts[ledger])]
    listed = _shell(cluster, "listledgers").split()
    held = _asked(f"http://{cluster.bookies[0].said['httpserver']}/api/v1/bookie/ledgers")["ledgers"]
    for ledger, count in counts.items():
        assert str(ledger) in listed
        assert _shell(cluster, "readledger", "-l", str(ledger), "-m").count("Entry: ") == count
        assert held[str(ledger)] == count, "a bookie knows how many entries, not how many messages"


@pytest.mark.feature("F-RET-11", "F-RET-10")
def test_space_is_free_for_the_topic_at_once_and_on_disk_when_collected(
    cluster: Cluster, client: pulsar.Client, eventually: Eventually
) -> None:
    """With TTL and retention set over HTTP: expired messages stay while retention keeps them."""
    topic = _topic(cluster, "freed")
    client.subscribe("freed", "s").close()
    _asked(f"{topic}/retention", "POST", {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1})
    _asked(f"{topic}/messageTTL?messageTTL=1", "POST")
    assert _asked(f"{topic}/messageTTL") == "1"
    producer = client.create_producer("freed", batching_enabled=False)
    for _ in range(14):
        producer.send(PAYLOAD)
    producer.close()

    def stats() -> Any:
        return _asked(f"{topic}/stats")

    full = stats()["storageSize"]
    assert full >= 14 * len(PAYLOAD)

    def is_expired() -> bool:
        _asked(f"{topic}/all_subscription/expireMessages/1", "POST")
        return bool(stats()["subscriptions"]["s"]["msgBacklog"] == 0)

    eventually(is_expired, interval_s=0.3)
    assert stats()["storageSize"] == full, "consumed or not, retention keeps it"
    assert stats()["backlogSize"] == 0
    logs = cluster.bookies[0].data_directory

    def on_disk() -> int:
        return sum(path.stat().st_size for path in logs.rglob("*.log"))

    eventually(lambda: on_disk() >= 12 * len(PAYLOAD))
    before = on_disk()
    _asked(f"{topic}/retention", "POST", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
    eventually(lambda: stats()["storageSize"] <= full // 2)
    assert on_disk() >= before, "the topic is smaller, the bookie's disk is not"
    bookie = f"http://{cluster.bookies[0].said['httpserver']}"
    _asked(f"{bookie}/api/v1/bookie/gc", "PUT")
    eventually(lambda: on_disk() <= before - full // 4)
    assert stats()["storageSize"] <= full // 2
