# SPDX-License-Identifier: Apache-2.0
"""What bookies say over HTTP, the rest of the storage shell, orphans that fsck finds, repairs in their own process."""

import asyncio
import json
import os
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from magnetar.cli import fsck
from magnetar.cli.bookkeeper_shell import Confirmations, Shell, run_shell
from magnetar.cli.exits import INTERRUPTED
from magnetar.ledger.paths import ledger_path
from magnetar.wire.bookkeeper.digest import DigestType
from tests.cluster import Cluster, RoleProcess
from tests.conformance.test_bookkeeper_shell import ENTRIES, magnetar, names, shell, written
from tests.processes import free_port


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("inventory")
    with Cluster(directory, broker=False, environment={"autoRecoveryDaemonEnabled": "false"}) as running:
        yield running


def asked(address: str, path: str, method: str = "GET", body: dict[str, Any] | None = None) -> tuple[int, str]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{address}{path}", method=method, data=data)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read().decode()


def value(address: str, path: str, method: str = "GET", body: dict[str, Any] | None = None) -> Any:
    status, text = asked(address, path, method, body)
    assert status == 200, text
    return json.loads(text)


def http_of(cluster: Cluster, which: int = 0) -> str:
    return str(cluster.bookies[which].until_ready()["httpserver"])


@pytest.mark.feature("F-MET-15")
def test_the_inventory_says_what_the_shell_says(cluster: Cluster) -> None:
    ledger_id, ensemble = written(cluster.metadata_url)
    address = http_of(cluster)
    assert asked(address, "/heartbeat") == (200, "OK\n")
    assert set(value(address, "/api/v1/bookie/list_bookies?type=rw")) == set(names(cluster))
    assert value(address, "/api/v1/bookie/list_bookies?type=ro") == {}
    info = value(address, "/api/v1/bookie/info")
    assert 0 < info["freeSpace"] <= info["totalSpace"]
    assert str(ledger_id) in value(address, "/api/v1/ledger/list")
    record = value(address, f"/api/v1/ledger/metadata?ledger_id={ledger_id}")[str(ledger_id)]
    said = json.loads(shell(cluster, "ledgermetadata", "-l", str(ledger_id)).out.splitlines()[1])
    assert record == said
    assert (record["ensembleSize"], record["writeQuorumSize"], record["ackQuorumSize"]) == (2, 2, 2)
    assert record["ensembles"]["0"] == list(ensemble)
    page = value(address, f"/api/v1/ledger/read?ledger_id={ledger_id}&start_entry_id=1&end_entry_id=2")
    assert page == {"1": "entry 1", "2": "entry 2"}
    held = value(http_of(cluster, names(cluster).index(ensemble[0])), "/api/v1/bookie/ledgers")["ledgers"]
    assert held[str(ledger_id)] == ENTRIES
    state = value(address, "/api/v1/bookie/cluster_info")
    assert (state["totalBookiesCount"], state["writableBookiesCount"]) == (3, 3)
    assert asked(address, "/api/v1/ledger/metadata?ledger_id=99999999")[0] == 404
    assert asked(address, "/api/v1/ledger/metadata?ledger_id=x")[0] == 400
    assert asked(address, "/api/v1/bookie/state", "DELETE")[0] == 405
    assert asked(address, "/api/v1/nothing")[0] == 404
    for path in ("state", "state/readonly", "last_log_mark", "list_disk_file", "gc_details", "gc", "list_bookie_info"):
        assert value(address, f"/api/v1/bookie/{path}")
    assert "bookie.journal_sync" in value(address, "/api/v1/config/server_config")


def test_bookies_are_asked_for_space_and_the_auditor_to_look(cluster: Cluster) -> None:
    said = shell(cluster, "bookieinfo").out
    assert all(name in said for name in names(cluster))
    assert "Total free disk space in the cluster" in said
    assert shell(cluster, "triggeraudit").code == 0
    assert asked(http_of(cluster), "/api/v1/autorecovery/trigger_audit", "PUT")[0] == 200


def test_repairs_are_steered_over_http(cluster: Cluster) -> None:
    address = http_of(cluster)
    path = "/api/v1/autorecovery"
    assert value(address, f"{path}/status") == {"enabled": True}
    assert value(address, f"{path}/status?enabled=false", "PUT") == {"enabled": False}
    assert value(address, f"{path}/status?enabled=true", "PUT") == {"enabled": True}
    assert asked(address, f"{path}/status?enabled=maybe", "PUT")[0] == 400
    assert asked(address, f"{path}/lost_bookie_recovery_delay", "PUT", {"delay_seconds": 0})[0] == 200
    assert asked(address, f"{path}/lost_bookie_recovery_delay")[1].endswith(" 0\n")
    assert asked(address, f"{path}/list_under_replicated_ledger") == (404, "No under replicated ledgers found\n")


def test_a_cookie_goes_from_a_file_to_the_metadata(cluster: Cluster, tmp_path: Path) -> None:
    file = str(tmp_path / "cookie")
    stranger = "127.0.0.1:9"
    assert shell(cluster, "cookie_generate", stranger, "-j", "/j", "-l", "/a,/b", "-o", file).code == 0
    assert shell(cluster, "cookie_update", stranger, "-cf", file).code == 1, "there is none to update"
    assert shell(cluster, "cookie_create", stranger, "-cf", file).code == 0
    assert shell(cluster, "cookie_create", stranger, "-cf", file).code == 1, "it is there"
    assert shell(cluster, "cookie_update", stranger, "-cf", file).code == 0
    said = shell(cluster, "cookie_get", stranger).out
    assert "/b" in said
    assert stranger in said
    (tmp_path / "bad").write_text("this is no cookie")
    assert shell(cluster, "cookie_update", stranger, "-cf", str(tmp_path / "bad")).code == 1
    assert shell(cluster, "cookie_delete", stranger, "-f").code == 0


def forget(metadata: str, ledger_id: int) -> None:
    async def command(shell: Shell) -> None:
        await shell.store.delete(ledger_path(ledger_id))

    assert run_shell(metadata, command, print) == 0


def test_fsck_finds_orphans_and_has_them_collected(cluster: Cluster) -> None:
    magnetar("fsck", "--metadata", cluster.metadata_url, "--repair")
    ledger_id, ensemble = written(cluster.metadata_url)
    assert magnetar("fsck", "--metadata", cluster.metadata_url).code == 0
    forget(cluster.metadata_url, ledger_id)
    said = magnetar("fsck", "--metadata", cluster.metadata_url)
    assert said.code == 1
    for bookie in ensemble:
        assert f"{bookie}: ledger {ledger_id} is not on record" in said.out
    said = magnetar("fsck", "--metadata", cluster.metadata_url, "--repair")
    assert (said.code, " 2 ledgers held for nobody, 2 collected" in said.out) == (0, True), said.out
    assert magnetar("fsck", "--metadata", cluster.metadata_url, "--deep").code == 0
    held = value(http_of(cluster, names(cluster).index(ensemble[0])), "/api/v1/bookie/ledgers")["ledgers"]
    assert str(ledger_id) not in held


@pytest.mark.feature("F-PRB-18")
def test_fsck_names_ledgers_that_their_topic_does_not_know(cluster: Cluster) -> None:
    made: list[int] = []

    async def leave_behind(shell: Shell) -> None:
        """As an owner does that dies between making a ledger and putting it on record."""
        about = {"component": b"managed-ledger", "pulsar/managed-ledger": b"public/default/persistent/gone"}
        writer = await shell.client.ledgers.create(
            ensemble_size=1,
            write_quorum=1,
            ack_quorum=1,
            digest=DigestType.CRC32C,
            password=b"",
            custom_metadata=about,
            listener=Confirmations(),
        )
        await writer.close()
        made.append(writer.ledger_id)

    assert run_shell(cluster.metadata_url, leave_behind, print) == 0
    said = magnetar("fsck", "--metadata", cluster.metadata_url)
    assert f"ledger {made[0]} was made for public/default/persistent/gone, which does not know it" in said.out
    assert "1 ledgers that their owners do not know" in said.out
    forget(cluster.metadata_url, made[0])
    assert "0 ledgers that their owners do not know" in magnetar("fsck", "--metadata", cluster.metadata_url).out


@pytest.mark.feature("F-AR-15")
def test_repairs_run_in_a_process_of_their_own(
    cluster: Cluster, tmp_path: Path, eventually: Callable[[Callable[[], bool]], None]
) -> None:
    """Bookies do not repair; one process that is no bookie audits and copies."""
    assert shell(cluster, "whoisauditor").out == "No auditor elected\n"
    arguments = ["autorecovery", "--metadata", cluster.metadata_url, "--http-port", str(free_port())]
    role = RoleProcess("autorecovery", tmp_path / "role", *arguments, environment={"lostBookieRecoveryDelay": "0"})
    owner = role.start()["owner"]
    victim = None
    try:
        eventually(lambda: shell(cluster, "whoisauditor").out == f"Auditor: {owner}\n")
        assert asked(owner, "/heartbeat") == (200, "OK\n")
        assert owner not in shell(cluster, "listbookies", "-a").out
        ledger_id, ensemble = written(cluster.metadata_url)
        victim = cluster.bookies[names(cluster).index(ensemble[0])]
        lost = ensemble[0]
        assert victim.stop() == 0
        eventually(lambda: lost not in shell(cluster, "ledgermetadata", "-l", str(ledger_id)).out)
        assert "replication_worker_REREPLICATE_LEDGERS" in asked(owner, "/metrics")[1]
    finally:
        if role.is_running:
            assert role.stop() == 0
        if victim is not None:
            victim.start()
    # It came back with a copy that others hold now: found, and collected after a proof.
    said = magnetar("fsck", "--metadata", cluster.metadata_url)
    assert f"{lost}: ledger {ledger_id} is asked of other bookies" in said.out, said.out
    said = magnetar("fsck", "--metadata", cluster.metadata_url, "--repair")
    assert said.code == 0, said.out
    assert magnetar("fsck", "--metadata", cluster.metadata_url, "--deep").code == 0


def test_a_reader_who_has_enough_is_no_failure(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "stdout", sys.stdout)

    def cut(line: str) -> None:
        raise BrokenPipeError

    async def command(shell: Shell) -> None:
        shell.say("a ledger")

    assert run_shell(cluster.metadata_url, command, cut) == 0
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


def test_a_command_that_is_interrupted_ends_where_it_is(cluster: Cluster) -> None:
    async def command(shell: Shell) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()

    assert run_shell(cluster.metadata_url, command, print) == INTERRUPTED


@pytest.mark.feature("F-MET-15", "F-BKC-28")
def test_an_operator_makes_a_bookie_read_only_and_writable_again(
    cluster: Cluster, eventually: Callable[[Callable[[], bool]], None]
) -> None:
    address, path, listed = http_of(cluster), "/api/v1/bookie/state/readonly", "/api/v1/bookie/list_bookies?type=ro"
    assert asked(address, path, "PUT", {"readOnly": "yes"})[0] == 400
    assert value(address, path, "PUT", {"readOnly": True}) == {"readOnly": True}
    eventually(lambda: len(value(http_of(cluster, 1), listed)) == 1)
    assert value(address, path, "PUT", {"readOnly": False}) == {"readOnly": False}
    eventually(lambda: not value(http_of(cluster, 1), listed))


@pytest.mark.feature("F-PLAT-09", "F-ADM-09")
def test_fsck_misses_copies_of_a_ledger_that_is_still_written(cluster: Cluster) -> None:
    said: list[str] = []

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
        for i in range(3):
            writer.append([b"entry"])
            await confirmations.until(i)
        ensemble = writer.known.record.last_segment.ensemble
        assert (await fsck.check(shell, deep=False, repair=False)).missing == 0, said
        (stranger,) = {*shell.client.bookies.writable} - {*ensemble}
        catalog = shell.client.ledgers.catalog
        lied = await catalog.replace(writer.known, writer.known.record.with_replacements(0, {0: stranger}))
        assert (await fsck.check(shell, deep=False, repair=False)).missing == 2, said
        assert f"{stranger} lacks 2 confirmed entries" in said[-2], "the last one is not confirmed to readers yet"
        await catalog.replace(lied, writer.known.record)
        await shell.client.ledgers.delete(writer.ledger_id)

    assert run_shell(cluster.metadata_url, command, said.append) == 0


def test_the_index_of_a_stopped_bookie_is_rebuilt(cluster: Cluster) -> None:
    ledger_id, ensemble = written(cluster.metadata_url)
    bookie = cluster.bookies[names(cluster).index(ensemble[0])]
    data = str(bookie.data_directory)
    refused = magnetar("bookkeeper", "localconsistencycheck", "--data-dir", data)
    assert refused.code == 1, "it runs"
    assert bookie.stop() == 0
    said = magnetar("bookkeeper", "localconsistencycheck", "--data-dir", data)
    assert (said.code, "check passed" in said.out) == (0, True), said.out
    said = magnetar("bookkeeper", "rebuild-db-ledgers-index", "--data-dir", data)
    assert "entries are in the new index" in said.out
    bookie.start()
    assert shell(cluster, "readledger", "-l", str(ledger_id)).out.count("Entry: ") == ENTRIES
    held = value(http_of(cluster, names(cluster).index(ensemble[0])), "/api/v1/bookie/ledgers")["ledgers"]
    assert held[str(ledger_id)] == ENTRIES
    bookie.stop()
    for log in (bookie.data_directory / "ledgers" / "current").glob("*.log"):
        bytes_held = bytearray(log.read_bytes())
        at = bytes_held.find(b"entry 7")
        if at >= 0:
            bytes_held[at] ^= 1
            log.write_bytes(bytes_held)
    said = magnetar("bookkeeper", "localconsistencycheck", "--data-dir", data)
    assert said.code == 1
    assert "is damaged" in said.out
    bookie.start()


def test_rebuilding_nothing_is_refused(tmp_path: Path) -> None:
    assert magnetar("bookkeeper", "rebuild-db-ledgers-index", "--data-dir", str(tmp_path)).code == 1
