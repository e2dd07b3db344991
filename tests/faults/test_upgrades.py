# SPDX-License-Identifier: Apache-2.0
"""Files of former versions are read; files of later ones are refused, and nothing is changed.

tests/golden holds whole data directories as released versions wrote them. They are never edited.
"""

import hashlib
import os
import re
import tarfile
from functools import partial
from pathlib import Path
from struct import Struct

import google_crc32c
import httpx
import pulsar
import pytest

from tests.cluster import Cluster
from tests.processes import StandaloneProcess, launched

GOLDEN = Path(__file__).parents[1] / "golden"
ARCHIVES = sorted(GOLDEN.glob("standalone-*.tar.xz"))
CLUSTERS = sorted(GOLDEN.glob("cluster-*.tar.xz"))
ONE_COPY = {f"managedLedgerDefault{name}": "1" for name in ("EnsembleSize", "WriteQuorum", "AckQuorum")}
ask = partial(httpx.request, timeout=30)
QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)


def unpacked(archive: Path, directory: Path) -> StandaloneProcess:
    with tarfile.open(archive) as files:
        files.extractall(directory, filter="data")
    return StandaloneProcess(directory)


class Row(pulsar.schema.Record):  # type: ignore[misc]
    name = pulsar.schema.String()
    n = pulsar.schema.Integer()


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda archive: archive.name)
def test_what_a_former_version_stored_is_there(archive: Path, tmp_path: Path) -> None:
    with unpacked(archive, tmp_path) as running:
        client = pulsar.Client(running.service_url, logger=QUIET)
        try:
            _check_messages(client)
            _check_subscription(client)
        finally:
            client.close()
        rest = f"{running.web_url}/admin/v2"
        assert ask("GET", f"{rest}/tenants/acme").json()["adminRoles"] == ["boss"]
        assert ask("GET", f"{rest}/namespaces/acme/orders/retention").json()["retentionTimeInMinutes"] == -1
        assert ask("GET", f"{rest}/persistent/acme/orders/parts/partitions").json()["partitions"] == 2


def _check_messages(client: pulsar.Client) -> None:
    reader = client.create_reader("persistent://acme/orders/plain", pulsar.MessageId.earliest)
    for number in range(50):
        message = reader.read_next(timeout_millis=20_000)
        assert message.data() == b"message %d" % number
        assert message.partition_key() == f"key-{number % 5}"
        assert message.properties() == {"n": str(number)}
        assert message.event_timestamp() == 1_700_000_000_000 + number
    reader = client.create_reader("persistent://acme/orders/batched", pulsar.MessageId.earliest)
    assert [reader.read_next(timeout_millis=20_000).data() for _ in range(50)] == [b"batched %d" % n for n in range(50)]
    typed = client.create_reader(
        "persistent://acme/orders/typed", pulsar.MessageId.earliest, schema=pulsar.schema.AvroSchema(Row)
    )
    values = [typed.read_next(timeout_millis=20_000).value() for _ in range(5)]
    assert [(value.name, value.n) for value in values] == [(f"r{n}", n) for n in range(5)]


def _check_subscription(client: pulsar.Client) -> None:
    """What was acknowledged stays so: the first ten, and every other one of the third ten."""
    consumer = client.subscribe("persistent://acme/orders/plain", "holes", consumer_type=pulsar.ConsumerType.Shared)
    left = [n for n in range(50) if not (n < 10 or n in range(20, 30, 2))]
    assert sorted(int(consumer.receive(timeout_millis=20_000).data().split()[1]) for _ in left) == left
    with pytest.raises(pulsar.Timeout):
        consumer.receive(timeout_millis=200)


@pytest.mark.parametrize("archive", CLUSTERS, ids=lambda archive: archive.name)
def test_a_bookie_and_a_metadata_server_open_what_a_former_version_left(archive: Path, tmp_path: Path) -> None:
    """Killed, so that the journal is replayed: a metadata server's directory, and a bookie's with its RocksDB."""
    with tarfile.open(archive) as files:
        files.extractall(tmp_path, filter="data")
    cluster = Cluster(tmp_path, bookies=0, brokers=1, environment=ONE_COPY)
    cluster.add_bookie("bookie", "--bookie-id", "bookie-1")
    with cluster:
        client = pulsar.Client(cluster.service_url, operation_timeout_seconds=60, logger=QUIET)
        try:
            topic = "persistent://public/default/golden"
            reader = client.create_reader(topic, pulsar.MessageId.earliest)
            for number in range(50):
                message = reader.read_next(timeout_millis=20_000)
                assert message.data() == b"message %d" % number
                assert message.partition_key() == f"key-{number % 5}"
            consumer = client.subscribe(topic, "half")
            left = [consumer.receive(timeout_millis=20_000).data() for _ in range(25)]
            assert left == [b"message %d" % number for number in range(25, 50)]
            client.create_producer(topic).send(b"and on it goes")
        finally:
            client.close()


# --- later versions -------------------------------------------------------------------------------


def _raise_version(file: Path, offset: int, size: int, checksum_at: int | None) -> None:
    """The header of a later version: its version is larger, and its checksum is right."""
    data = bytearray(file.read_bytes())
    data[offset : offset + size] = (int.from_bytes(data[offset : offset + size], "big") + 1).to_bytes(size, "big")
    if checksum_at is not None:
        Struct(">I").pack_into(data, checksum_at, google_crc32c.value(bytes(data[:checksum_at])))
    file.write_bytes(data)


LATER: dict[str, tuple[str, str, int, int, int | None]] = {
    # what → (archive, file, offset and size of the version, offset of the header's checksum)
    "metadata log": ("killed", "metadata/log-*", 0, 1, None),
    "metadata snapshot": ("killed", "metadata/snapshot-*", 0, 1, None),
    "journal": ("killed", "journal/current/*.txn", 8, 2, 28),
    "last mark": ("killed", "journal/current/lastMark", 8, 4, 44),
    "entry log": ("stopped", "ledgers/current/*.log", 8, 2, 32),
}


def _digests(directory: Path, what: str) -> dict[str, str]:
    """Every file but locks, RocksDB's own, and metadata of our version, which begins a new log at each start."""
    own = "" if "metadata" in what else "|data/metadata/"
    return {
        str(file.relative_to(directory)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(directory.rglob("*"))
        if file.is_file() and not re.search(rf"(?i)lock$|/index/{own}", str(file))
    }


@pytest.mark.parametrize("what", LATER)
def test_what_a_later_version_wrote_is_refused_and_left_alone(what: str, tmp_path: Path) -> None:
    kind, pattern, offset, size, checksum_at = LATER[what]
    archive = next(each for each in ARCHIVES if kind in each.name)
    standalone = unpacked(archive, tmp_path)
    files = sorted((tmp_path / "data").glob(pattern))
    assert files
    for file in files:
        _raise_version(file, offset, size, checksum_at)
    before = _digests(tmp_path / "data", what)
    refusing = launched(standalone.command(), standalone.log_path, dict(os.environ))
    assert refusing.wait(60) == 2, standalone.log_tail()
    assert "newer version that wrote it; nothing was changed" in standalone.log_tail()
    assert "Traceback" not in standalone.log_tail()
    assert _digests(tmp_path / "data", what) == before
