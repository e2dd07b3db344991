# SPDX-License-Identifier: Apache-2.0
"""Ledgers on bookies that are real processes: killed, stopped, emptied, rolled back, filled up."""

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pulsar
import pytest

from magnetar.config.ledger import LedgerSettings
from magnetar.errors import BookieUnavailable, EntryUnknown, MagnetarError, NoSuchEntry, NoSuchLedger
from magnetar.ledger.ledgers import Ledgers
from magnetar.ledger.paths import AVAILABLE, COOKIES
from magnetar.metadata.remote import RemoteStore
from magnetar.wire.bookkeeper.codes import ReturnCode
from magnetar.wire.bookkeeper.digest import DigestType
from magnetar.wire.bookkeeper.entry import EntryPacker
from tests.cluster import Cluster, RoleProcess
from tests.conftest import Eventually
from tests.faults.ledger_side import PASSWORD, Told, append, body_of, created, ledgers_of, recovered
from tests.faults.test_kill_9 import QUIET, Publishing, read_everything

# Lost copies stay lost, so that a test sees what is left.
UNREPAIRED = {"autoRecoveryDaemonEnabled": "false", "dataIntegrityChecking": "false"}


def bookie_id(bookie: RoleProcess) -> str:
    port = bookie.command()[bookie.command().index("--port") + 1]
    return f"127.0.0.1:{port}"


def named(cluster: Cluster, bookie: str) -> RoleProcess:
    return next(each for each in cluster.bookies if bookie_id(each) == bookie)


async def is_denied(ledgers: Ledgers, bookie: str, ledger_id: int, entry_id: int) -> bool:
    """Whether the bookie claims that there is no such entry; waits until it answers at all."""
    async with asyncio.timeout(60):
        while True:
            try:
                await ledgers.channels(bookie).read(ledger_id, entry_id)
                return False
            except (NoSuchEntry, NoSuchLedger):
                return True
            except EntryUnknown:
                return False
            except BookieUnavailable:
                await asyncio.sleep(0.1)


async def code_of_add(ledgers: Ledgers, bookie: str, ledger_id: int, entry_id: int) -> int:
    """What an ordinary add of the ledger's writer is answered with."""
    answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    class Answers:
        def on_added(self, bookie: str, first: int, last: int, code: int) -> None:
            answer.set_result(code)

    packer = EntryPacker(ledger_id, DigestType.CRC32C, PASSWORD)
    entry = packer.pack(entry_id, entry_id - 1, 0, [body_of(entry_id)])
    ledgers.channels(bookie).add(ledger_id, entry_id, entry, packer.master_key, Answers())
    return await answer


@pytest.mark.feature("F-REC-12")
def test_a_fence_survives_kill_9_of_every_bookie(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        async with ledgers_of(cluster) as ledgers, ledgers_of(cluster) as others:
            told = Told()
            writer = await created(ledgers, told)
            await append(writer, told, 5)
            assert await recovered(others, writer.ledger_id) == 4
            for bookie in cluster.bookies:
                bookie.kill()
            for bookie in cluster.bookies:
                bookie.start()
            # The writer of before, on connections of before: nothing of it is confirmed.
            writer.append([body_of(5)])
            await told.until(5)
            assert told.error is not None
            assert told.confirmed == 4
        async with ledgers_of(cluster) as ledgers:
            for bookie in cluster.bookies:
                # It has forgotten everything but what is on its disk.
                assert await code_of_add(ledgers, bookie_id(bookie), writer.ledger_id, 5) == ReturnCode.FENCED
            assert await recovered(ledgers, writer.ledger_id) == 4

    with Cluster(tmp_path, broker=False, environment=UNREPAIRED) as cluster:
        asyncio.run(main(cluster))


async def emptied(cluster: Cluster, victim: RoleProcess) -> None:
    """Its disks are gone; it refuses to start until an operator forgets its cookie."""
    victim.kill()
    shutil.rmtree(victim.data_directory)
    victim.launch()
    assert victim.wait() == 2
    assert "carries no cookie" in victim.log_tail()
    host, port = cluster.metadata_url.removeprefix("remote:").rsplit(":", 1)
    store = await RemoteStore.open(host, int(port))
    await store.delete(f"{COOKIES}/{bookie_id(victim)}")
    await store.close()
    victim.start()


@pytest.mark.feature("F-REC-13", "F-PRB-19")
def test_recovery_with_an_emptied_bookie_keeps_the_last_entry(tmp_path: Path) -> None:
    """One denial would be enough to cut the ledger: the emptied bookie must not utter it."""

    async def main(cluster: Cluster) -> None:
        async with ledgers_of(cluster) as ledgers:
            told = Told()
            writer = await created(ledgers, told, size=2, write=2, ack=2)
            await append(writer, told, 8)
            ensemble = writer.known.record.last_segment.ensemble
            victim, witness = named(cluster, ensemble[0]), named(cluster, ensemble[1])
            await emptied(cluster, victim)
            for entry_id in (7, 8):
                assert not await is_denied(ledgers, ensemble[0], writer.ledger_id, entry_id)
            # Who could say where the ledger ends is away: nobody may guess.
            witness.signal(signal.SIGSTOP)
            with pytest.raises(MagnetarError):
                await ledgers.open(writer.ledger_id, password=PASSWORD)
            witness.signal(signal.SIGCONT)
            assert await recovered(ledgers, writer.ledger_id) == 7

    with Cluster(tmp_path, broker=False, environment=UNREPAIRED) as cluster:
        asyncio.run(main(cluster))


@pytest.mark.feature("F-REC-13")
def test_a_bookie_that_was_rolled_back_does_not_deny_what_it_took_since(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        async with ledgers_of(cluster) as ledgers:
            told = Told()
            writer = await created(ledgers, told)
            await append(writer, told, 3)
            victim = cluster.bookies[0]
            assert victim.stop() == 0
            shutil.copytree(victim.data_directory, tmp_path / "earlier")
            victim.start()
        async with ledgers_of(cluster) as ledgers:
            second = Told()
            later = await created(ledgers, second)
            await append(later, second, 6)
            victim.kill()
            shutil.rmtree(victim.data_directory)
            shutil.copytree(tmp_path / "earlier", victim.data_directory)
            victim.start()
            assert "rolled back" in victim.log_tail()
            for entry_id in range(6):
                assert not await is_denied(ledgers, bookie_id(victim), later.ledger_id, entry_id)
            assert await recovered(ledgers, later.ledger_id) == 5
            assert await recovered(ledgers, writer.ledger_id) == 2

    with Cluster(tmp_path, broker=False, environment=UNREPAIRED) as cluster:
        asyncio.run(main(cluster))


@pytest.mark.feature("F-HA-10")
def test_reads_and_writes_go_on_with_one_slow_and_one_dead_bookie(tmp_path: Path) -> None:
    settings = LedgerSettings(add_timeout_ms=1_000, read_timeout_ms=10_000, speculative_read_timeout_ms=100)

    async def main(cluster: Cluster) -> None:
        async with ledgers_of(cluster, settings) as ledgers:
            told = Told()
            writer = await created(ledgers, told)
            await append(writer, told, 5)
            before = writer.known.record.last_segment.ensemble
            slow, dead = named(cluster, before[0]), named(cluster, before[1])
            slow.signal(signal.SIGSTOP)
            dead.kill()
            try:
                await append(writer, told, 20)
                ensemble = writer.known.record.last_segment.ensemble
                assert bookie_id(dead) not in ensemble, "the dead one is replaced"
                assert len(set(ensemble)) == 3
                await writer.close()
                reader = await ledgers.open(writer.ledger_id, password=PASSWORD)
                bodies = [bytes(body) for body in await reader.read(0, 24, bytes_max=1 << 20)]
                while len(bodies) < 25:
                    bodies += map(bytes, await reader.read(len(bodies), 24, bytes_max=1 << 20))
                assert bodies == [body_of(entry_id) for entry_id in range(25)]
            finally:
                slow.signal(signal.SIGCONT)

    with Cluster(tmp_path, bookies=5, broker=False, environment=UNREPAIRED) as cluster:
        asyncio.run(main(cluster))


@pytest.mark.feature("F-PLAT-09")
def test_what_was_acknowledged_is_on_an_ack_quorum_when_the_others_and_the_broker_die(
    tmp_path: Path, eventually: Eventually
) -> None:
    """Write quorum 3, ack quorum 2: any one bookie may be gone for good, with the broker that knew more."""
    topic = "persistent://public/default/quorum"
    quorums = {
        "managedLedgerDefaultEnsembleSize": "3",
        "managedLedgerDefaultWriteQuorum": "3",
        "managedLedgerDefaultAckQuorum": "2",
        "bookkeeperClientTimeoutInSeconds": "2",
    }
    with Cluster(tmp_path, environment={**quorums, **UNREPAIRED}) as cluster:
        assert cluster.broker is not None
        client = pulsar.Client(cluster.service_url, operation_timeout_seconds=60, logger=QUIET)
        client.subscribe(topic, "keeper").close()
        publishing = Publishing(client, topic)
        try:
            eventually(lambda: len(publishing.acknowledged) >= 500)
            for role in (cluster.broker, cluster.bookies[1]):
                role.signal(signal.SIGKILL)
            for role in (cluster.broker, cluster.bookies[1]):
                role.wait()
            acknowledged = list(publishing.acknowledged)
            # Two bookies are left and stay so: nothing new can be written on three.
            cluster.broker.start()
            assert set(acknowledged) <= set(read_everything(client, topic))
            cluster.bookies[1].start()
            eventually(lambda: len(publishing.acknowledged) >= len(acknowledged) + 50)
        finally:
            publishing.stop()
        publishing.finish()
        assert list(dict.fromkeys(read_everything(client, topic))) == publishing.sent
        client.close()


@contextmanager
def small_file_system(directory: Path, size: str) -> Iterator[None]:
    directory.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        assert "CI" not in os.environ, "CI mounts a small file system as root"
        pytest.skip("mounting a small file system needs root")
    try:
        yield
    finally:
        subprocess.run(["umount", str(directory)], check=True)


def filled_to_the_last_byte(directory: Path) -> Path:
    filler = directory / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 16, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
    return filler


@pytest.mark.feature("F-BKS-30")
def test_a_bookie_killed_on_a_disk_without_a_free_byte_starts_read_only_and_gives_what_it_had(tmp_path: Path) -> None:
    """F20: what it acknowledged is in its journal alone; its reserve is the room to write it out."""
    small = {
        **UNREPAIRED,
        "journalMaxSizeMB": "2",
        "journalPreAllocSizeMB": "1",
        "diskCheckInterval": "200",
        "dbStorage_writeCacheMaxSizeMb": "4",
        "MAGNETAR_BOOKIE_DISK_RESERVE_BYTES": str(4 << 20),
    }

    async def main(cluster: Cluster, victim: RoleProcess) -> None:
        async with ledgers_of(cluster) as ledgers:
            told = Told()
            writer = await created(ledgers, told, size=1, write=1, ack=1)
            await append(writer, told, 200)
            filler = filled_to_the_last_byte(victim.data_directory)
        victim.kill()
        victim.start()
        assert "its reserve is given up" in victim.log_tail()
        async with ledgers_of(cluster) as ledgers:
            channel = ledgers.channels(bookie_id(victim))
            for entry_id in range(200):
                entry = await channel.read(writer.ledger_id, entry_id)
                assert entry.endswith(body_of(entry_id))
            assert await code_of_add(ledgers, bookie_id(victim), writer.ledger_id + 1, 0) == ReturnCode.READ_ONLY
            filler.unlink()
            async with asyncio.timeout(60):
                while await code_of_add(ledgers, bookie_id(victim), writer.ledger_id + 1, 0):  # noqa: ASYNC110 - its disk
                    await asyncio.sleep(0.1)
            assert await recovered(ledgers, writer.ledger_id) == 199

    with (
        small_file_system(tmp_path / "bookie-0" / "data", "32m"),
        Cluster(tmp_path, bookies=1, broker=False, environment=small) as cluster,
    ):
        asyncio.run(main(cluster, cluster.bookies[0]))
        assert cluster.bookies[0].stop() == 0


def test_a_bookie_whose_disk_is_full_is_replaced_and_comes_back_when_there_is_room(
    tmp_path: Path, eventually: Eventually
) -> None:
    """It ends up read-only, or its role ends at a journal that cannot grow; either way nothing confirmed is lost."""
    small = {**UNREPAIRED, "journalMaxSizeMB": "2", "journalPreAllocSizeMB": "1", "diskCheckInterval": "200"}

    async def main(cluster: Cluster, victim: RoleProcess) -> None:
        async with ledgers_of(cluster) as ledgers:
            told = Told()
            writer = await created(ledgers, told)
            await append(writer, told, 20)
            filler = victim.data_directory / "filler"
            with filler.open("wb") as file:
                try:
                    while True:
                        file.write(bytes(1 << 16))
                        file.flush()
                except OSError:
                    pass
            for _ in range(20):
                await append(writer, told, 50)
            filler.unlink()
            if not victim.is_running:
                victim.start()
            for _ in range(5):
                await append(writer, told, 50)
            assert await recovered(ledgers, writer.ledger_id) == 20 + 25 * 50 - 1

    with (
        small_file_system(tmp_path / "bookie-0" / "data", "48m"),
        Cluster(tmp_path, bookies=4, broker=False, environment=small) as cluster,
    ):
        asyncio.run(main(cluster, cluster.bookies[0]))
        victim = cluster.bookies[0]
        eventually(lambda: victim.is_running)
        assert victim.stop() == 0


def test_a_bookie_whose_journal_cannot_be_opened_ends_and_was_never_listed(tmp_path: Path) -> None:
    """F39: its exit code says it, and so does a sentence; nobody was told that it is there."""

    async def main(cluster: Cluster) -> None:
        (bookie,) = cluster.bookies
        host, port = cluster.metadata_url.removeprefix("remote:").rsplit(":", 1)
        store = await RemoteStore.open(host, int(port))
        try:
            assert bookie_id(bookie) in await store.children(AVAILABLE)
            assert bookie.stop() == 0
            assert bookie_id(bookie) not in await store.children(AVAILABLE)
            listed: list[str] = []
            store.watch(AVAILABLE, lambda change: listed.append(change.path))
            for journal in bookie.data_directory.rglob("*.txn"):
                journal.unlink()
                journal.mkdir()
            bookie.launch()
            assert bookie.wait() == 2
            assert "Is a directory" in bookie.log_tail()
            assert bookie_id(bookie) not in await store.children(AVAILABLE)
            assert listed == []
        finally:
            await store.close()

    with Cluster(tmp_path, bookies=1, broker=False, environment=UNREPAIRED) as cluster:
        asyncio.run(main(cluster))
