# SPDX-License-Identifier: Apache-2.0
"""Apache's Java client and shell with our bookies, and our ledger client with Apache's bookie, over one ZooKeeper."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from magnetar.cli.bookkeeper_shell import Confirmations, Shell, run_shell
from magnetar.wire.bookkeeper.digest import DigestType
from tests.cluster import Cluster
from tests.interop.apache import ApacheBookie, configuration, distribution, shell

ENTRIES = 50


@pytest.fixture(scope="module")
def cluster(zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, str, Path]]:
    distribution()
    directory = tmp_path_factory.mktemp("interop")
    chroot = f"/{uuid4().hex}"
    with Cluster(directory, metadata=f"zk:{zookeeper}{chroot}", broker=False) as running:
        conf = configuration(directory / "shell", zookeeper, zkLedgersRootPath=f"{chroot}/ledgers")
        yield running, zookeeper, conf


def magnetar(*arguments: str) -> str:
    line = [sys.executable, "-m", "magnetar.cli.entry", *arguments]
    done = subprocess.run(line, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_apaches_client_writes_and_reads_with_our_bookies(cluster: tuple[Cluster, str, Path]) -> None:
    running, _, conf = cluster
    names = [bookie.until_ready()["bookieId"] for bookie in running.bookies]
    listed = shell(conf, "listbookies", "-rw")
    assert all(f"BookieID:{name}" in listed for name in names)
    said = shell(conf, "simpletest", "-ensemble", "3", "-writeQuorum", "3", "-ackQuorum", "2", "-numEntries", "200")
    assert "200 entries written to ledger" in said
    assert "Free disk space info" in shell(conf, "bookieinfo")


def test_apaches_client_reads_what_ours_wrote(cluster: tuple[Cluster, str, Path]) -> None:
    running, _, conf = cluster
    ledger_id = written(running.metadata_url, close=True)
    said = shell(conf, "readledger", "-l", str(ledger_id), "-m", "-fe", "0", "-le", str(ENTRIES - 1))
    assert f"Entry Id: {ENTRIES - 1}" in said.replace("EntryId", "Entry Id") or str(ENTRIES - 1) in said
    metadata = shell(conf, "ledgermetadata", "-l", str(ledger_id))
    assert "state=CLOSED" in metadata
    assert f"lastEntryId={ENTRIES - 1}" in metadata


def test_apaches_shell_asks_one_of_our_bookies(cluster: tuple[Cluster, str, Path], tmp_path: Path) -> None:
    running, address, conf = cluster
    ledger_id = written(running.metadata_url, close=True)
    names = [str(bookie.until_ready()["bookieId"]) for bookie in running.bookies]
    host, port = names[0].rsplit(":", 1)
    root = running.metadata_url.partition(address)[2] + "/ledgers"
    own = configuration(tmp_path, address, zkLedgersRootPath=root, advertisedAddress=host, bookiePort=port)
    assert "Bookie sanity test succeeded" in shell(own, "bookiesanity", "-entries", "20")
    # Straight from one bookie, past the client: of three, each has two thirds of the entries.
    span = ("-fe", "0", "-le", str(ENTRIES))
    held = shell(conf, "readledger", "-l", str(ledger_id), "-b", names[0], *span).count("Eid=")
    assert held in (ENTRIES * 2 // 3, ENTRIES * 2 // 3 + 1)
    assert str(ledger_id) in shell(conf, "listledgers", "-bookieid", names[0])
    auditor = shell(conf, "whoisauditor")
    assert any(f"Auditor: {name}" in auditor for name in names)


def test_our_client_with_apaches_bookie(cluster: tuple[Cluster, str, Path], tmp_path: Path) -> None:
    running, address, _ = cluster
    root = running.metadata_url.partition(address)[2] + "/ledgers"
    with ApacheBookie(tmp_path, address, zkLedgersRootPath=root) as theirs:
        magnetar("bookkeeper", "bookiesanity", "--metadata", running.metadata_url, "--bookieid", theirs.bookie_id)
        # Four bookies, three of them in each ledger: after some ledgers theirs was among them, closed and recovered.
        held = 0
        while held < 2:
            ledger_id = written(running.metadata_url, close=False)
            record = recovered(running.metadata_url, ledger_id)
            assert record["lastEntryId"] == ENTRIES - 1
            held += theirs.bookie_id in record["ensembles"]["0"]


def written(metadata: str, *, close: bool) -> int:
    """A ledger of ours; without close its writer is abandoned."""
    made: list[int] = []

    async def command(shell: Shell) -> None:
        confirmations = Confirmations()
        writer = await shell.client.ledgers.create(
            ensemble_size=3,
            write_quorum=2,
            ack_quorum=2,
            digest=DigestType.CRC32C,
            password=b"",
            custom_metadata={},
            listener=confirmations,
        )
        for i in range(ENTRIES):
            writer.append([b"entry %d" % i])
        await confirmations.until(ENTRIES - 1)
        if close:
            await writer.close()
        made.append(writer.ledger_id)

    assert run_shell(metadata, command, print) == 0
    return made[0]


def recovered(metadata: str, ledger_id: int) -> dict[str, Any]:
    """Fence, find the end, close; every entry is read back."""

    async def command(shell: Shell) -> None:
        reader = await shell.client.ledgers.open(ledger_id, password=b"")
        read: list[bytes] = []
        while len(read) < ENTRIES:
            read += [bytes(body) for body in await reader.read(len(read), ENTRIES - 1, bytes_max=1 << 20)]
        assert read == [b"entry %d" % i for i in range(ENTRIES)]

    assert run_shell(metadata, command, print) == 0
    said = magnetar("bookkeeper", "ledgermetadata", "--metadata", metadata, "-l", str(ledger_id))
    record: dict[str, Any] = json.loads(said.splitlines()[1])
    return record
