# SPDX-License-Identifier: Apache-2.0
"""The storage shell, fsck and inspect with real bookies."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from magnetar.cli.bookkeeper_shell import Confirmations, Shell, run_shell
from magnetar.cli.main import app
from magnetar.errors import MagnetarError
from magnetar.wire.bookkeeper.digest import DigestType
from tests.cluster import Cluster

ENTRIES = 60
# Lost copies stay lost until the command under test restores them.
UNREPAIRED = {"autoRecoveryDaemonEnabled": "false", "dataIntegrityChecking": "false"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("shell"), broker=False) as running:
        yield running


class Said(NamedTuple):
    code: int
    out: str
    err: str


def magnetar(*arguments: str, stdin: str = "") -> Said:
    """The command, in this process: what it prints and how it ends."""
    result = CliRunner().invoke(app, list(arguments), input=stdin)
    if isinstance(result.exception, MagnetarError):
        return Said(1, result.output, str(result.exception))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return Said(result.exit_code, result.output, "")


def shell(cluster: Cluster, command: str, *arguments: str, stdin: str = "") -> Said:
    return magnetar("bookkeeper", command, "--metadata", cluster.metadata_url, *arguments, stdin=stdin)


def names(cluster: Cluster) -> list[str]:
    return [str(bookie.until_ready()["bookieId"]) for bookie in cluster.bookies]


def written(metadata: str) -> tuple[int, tuple[str, ...]]:
    made: list[tuple[int, tuple[str, ...]]] = []

    async def command(shell: Shell) -> None:
        confirmations = Confirmations()
        writer = await shell.client.ledgers.create(
            ensemble_size=2,
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
        await writer.close()
        made.append((writer.ledger_id, writer.known.record.last_segment.ensemble))

    assert run_shell(metadata, command, print) == 0
    return made[0]


@pytest.mark.feature("F-ADM-09")
def test_bookies_are_listed(cluster: Cluster) -> None:
    said = shell(cluster, "listbookies", "-rw")
    assert said.out.splitlines()[1:] == [f"BookieID:{name}" for name in sorted(names(cluster))]
    assert shell(cluster, "listbookies", "-ro").out == "Readonly Bookies :\n"
    assert names(cluster)[0] in shell(cluster, "cookie_get", names(cluster)[0]).out


@pytest.mark.feature("F-ADM-09")
def test_a_test_ledger_is_written_read_and_gone(cluster: Cluster) -> None:
    assert "100 entries written" in shell(cluster, "simpletest", "-numEntries", "100").out
    assert "10 entries written" in shell(cluster, "bookiesanity", "--bookieid", names(cluster)[1]).out
    assert shell(cluster, "bookiesanity", "--bookieid", "127.0.0.1:1").code == 1
    assert shell(cluster, "simpletest", "-e", "9", "-w", "9", "-a", "9").code == 1


@pytest.mark.feature("F-ADM-09")
def test_ledgers_are_listed_and_read(cluster: Cluster) -> None:
    ledger_id, ensemble = written(cluster.metadata_url)
    assert str(ledger_id) in shell(cluster, "listledgers").out.split()
    said = shell(cluster, "ledgermetadata", "-l", str(ledger_id))
    assert '"state": "CLOSED"' in said.out
    assert ensemble[0] in said.out
    said = shell(cluster, "readledger", "-l", str(ledger_id), "-fe", str(ENTRIES - 2), "-m")
    assert f"Entry: {ENTRIES - 1}, Bytes: 8" in said.out
    assert (b"entry %d" % (ENTRIES - 1)).hex(" ") in said.out
    said = shell(cluster, "ledgermetadata", "-l", "123456")
    assert (said.code, said.out) == (1, "")
    assert "There is no ledger 123456" in said.err


@pytest.mark.feature("F-ADM-09")
def test_repairs_are_steered(cluster: Cluster) -> None:
    assert shell(cluster, "lostbookierecoverydelay", "-s", "7").out.endswith(": 7\n")
    assert shell(cluster, "lostbookierecoverydelay", "-g").out.endswith(": 7\n")
    assert shell(cluster, "autorecovery", "--disable").out == "Autorecovery is disabled.\n"
    assert shell(cluster, "autorecovery", "--enable").out == "Autorecovery is enabled.\n"
    assert shell(cluster, "healthcheck", "--disable").out == "Health checks of bookies are disabled.\n"
    assert shell(cluster, "healthcheck").out == "Health checks of bookies are disabled.\n"
    assert shell(cluster, "healthcheck", "-e").out == "Health checks of bookies are enabled.\n"
    assert shell(cluster, "whoisauditor").out.removeprefix("Auditor: ").strip() in names(cluster)
    assert shell(cluster, "listunderreplicated").code == 0


def test_formatting_asks_first(cluster: Cluster) -> None:
    ledger_id, _ = written(cluster.metadata_url)
    assert shell(cluster, "metaformat", stdin="n\n").code == 1
    assert shell(cluster, "ledgermetadata", "-l", str(ledger_id)).code == 0


@pytest.mark.feature("F-AR-12", "F-ADM-09")
def test_fsck_finds_a_lost_copy_and_repairs_it(tmp_path: Path) -> None:
    with Cluster(tmp_path, broker=False, environment=UNREPAIRED) as cluster:
        ledger_id, ensemble = written(cluster.metadata_url)
        said = magnetar("fsck", "--metadata", cluster.metadata_url, "--deep")
        assert (said.code, " 0 missing" in said.out) == (0, True)
        victim = cluster.bookies[names(cluster).index(ensemble[0])]
        assert victim.stop() == 0
        look_into(victim.data_directory, ledger_id)
        said = magnetar("fsck", "--metadata", cluster.metadata_url)
        assert (said.code, f"{ensemble[0]} does not say what it holds" in said.out) == (1, True)

        shutil.rmtree(victim.data_directory)
        assert shell(cluster, "cookie_delete", ensemble[0], "-f").code == 0
        victim.start()
        said = magnetar("fsck", "--metadata", cluster.metadata_url, "--repair")
        assert f"{ensemble[0]} lacks {ENTRIES} entries" in said.out
        assert f"ledger {ledger_id}: repaired" in said.out
        assert magnetar("fsck", "--metadata", cluster.metadata_url, "--deep").code == 0

        assert shell(cluster, "decommissionbookie", "--bookieid", ensemble[0]).code == 1, "it runs"
        other = written(cluster.metadata_url)[0]
        assert victim.stop() == 0
        index = magnetar("bookkeeper", "rebuild-db-ledgers-index", "--data-dir", str(victim.data_directory))
        assert " entries are in the new index" in index.out
        check = magnetar("bookkeeper", "localconsistencycheck", "--data-dir", str(victim.data_directory))
        assert "check passed" in check.out
        assert shell(cluster, "recover", ensemble[0]).code == 0
        assert ensemble[0] not in shell(cluster, "ledgermetadata", "-l", str(other)).out
        assert "its cookie is deleted" in shell(cluster, "decommissionbookie", "--bookieid", ensemble[0]).out
        assert magnetar("fsck", "--metadata", cluster.metadata_url, "--deep").code == 0
        assert ensemble[0] not in shell(cluster, "ledgermetadata", "-l", str(ledger_id)).out


def look_into(data: Path, ledger_id: int) -> None:
    """Inspect every kind of file of a bookie that has stopped."""
    last = f"ledger {ledger_id} entry {ENTRIES - 1},"
    journals = sorted((data / "journal" / "current").glob("*.txn"))
    assert any(last in magnetar("inspect", "journal", str(journal)).out for journal in journals)
    logs = (data / "ledgers" / "current").glob("*.log")
    assert any(last in magnetar("inspect", "entrylog", str(log)).out for log in logs)
    index = magnetar("inspect", "index", str(data / "ledgers" / "current" / "index")).out
    assert f"ledger {ledger_id}\n    entry 0 in log " in index
    assert magnetar("inspect", "entrylog", str(data / "nothing.log")).code == 1
    assert magnetar("inspect", "index", str(data)).code == 1
