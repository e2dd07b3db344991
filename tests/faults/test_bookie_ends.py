# SPDX-License-Identifier: Apache-2.0
"""Bookies, as processes, that must not go on: their journal's writer died, or another one has their name or disk."""

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from magnetar.ledger.paths import AVAILABLE
from magnetar.metadata.remote import RemoteStore
from magnetar.wire.bookkeeper.registry import decode_listing
from tests.cluster import Cluster, RoleProcess
from tests.faults.ledger_side import Told, append, created, ledgers_of, recovered
from tests.faults.test_storage_processes import UNREPAIRED, bookie_id
from tests.processes import free_port


def another_bookie(
    cluster: Cluster, directory: Path, kind: type[RoleProcess] = RoleProcess, **environment: str
) -> RoleProcess:
    """Not of the cluster yet, and not started."""
    ports = ["--port", str(free_port()), "--http-port", str(free_port())]
    words = ["bookie", "--metadata", cluster.metadata_url, *ports]
    return kind(directory.name, directory, *words, environment={**UNREPAIRED, **environment})


async def listed(cluster: Cluster) -> dict[str, set[int]]:
    """The ports at which clients are told to find each bookie."""
    host, port = cluster.metadata_url.removeprefix("remote:").rsplit(":", 1)
    store = await RemoteStore.open(host, int(port))
    try:
        found = {name: await store.get(f"{AVAILABLE}/{name}") for name in await store.children(AVAILABLE)}
        return {
            name: {each.port for each in decode_listing(record.value)}
            for name, record in found.items()
            if record is not None
        }
    finally:
        await store.close()


class DoomedBookie(RoleProcess):
    """Its journal's writer dies once it is told to."""

    def launch(self) -> None:
        command = [sys.executable, "-m", "tests.faults.dying_writer", str(self.directory / "die"), *self.command()[3:]]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=self._environment)

    def doom(self) -> None:
        (self.directory / "die").touch()


@pytest.mark.parametrize("writer", ["compiled", "plain"])
def test_a_bookie_whose_journal_writer_dies_ends_and_its_ledgers_go_on(tmp_path: Path, writer: str) -> None:
    """F40: its exit code and a sentence say why, it is listed no more, and every add has its outcome."""
    environment = {"journalPreAllocSizeMB": "1", **({"MAGNETAR_PURE": "1"} if writer == "plain" else {})}
    cluster = Cluster(tmp_path, bookies=3, broker=False, environment=UNREPAIRED)
    doomed = another_bookie(cluster, tmp_path / "doomed", DoomedBookie, **environment)
    assert isinstance(doomed, DoomedBookie)
    cluster.bookies.append(doomed)

    async def main() -> None:
        async with ledgers_of(cluster) as ledgers:
            told = Told()
            writer = await created(ledgers, told)
            while bookie_id(doomed) not in writer.known.record.last_segment.ensemble:
                writer = await created(ledgers, told)
            await append(writer, told, 20)
            doomed.doom()
            # Far more than its journal has room for before it grows.
            for _ in range(20):
                await append(writer, told, 500)
            assert await asyncio.to_thread(doomed.wait) == 4
            assert "the log's writer died: RuntimeError('a bug of the writer')" in doomed.log_tail()
            await append(writer, told, 20)
            assert bookie_id(doomed) not in await listed(cluster)
            assert await recovered(ledgers, writer.ledger_id) == 20 + 20 * 500 + 20 - 1

    with cluster:
        asyncio.run(main())


def test_a_second_process_on_a_bookies_directory_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    """F26: one directory has one writer."""

    async def main(cluster: Cluster) -> None:
        (first,) = cluster.bookies
        second = another_bookie(cluster, tmp_path / "second", bookieId=bookie_id(first))
        second.data_directory = first.data_directory
        async with ledgers_of(cluster) as ledgers:
            told = Told()
            writer = await created(ledgers, told, size=1, write=1, ack=1)
            await append(writer, told, 20)
            second.launch()
            assert await asyncio.to_thread(second.wait) == 2
            assert f"{first.data_directory}/journal is in use by the process {first.pid}" in second.log_tail()
            await append(writer, told, 20)
            assert await recovered(ledgers, writer.ledger_id) == 39
        assert first.is_running

    with Cluster(tmp_path, bookies=1, broker=False, environment=UNREPAIRED) as cluster:
        asyncio.run(main(cluster))


@pytest.mark.parametrize("disk", ["empty", "a copy"])
def test_a_second_bookie_with_the_id_of_one_that_serves_gets_nothing_of_its_ledgers(tmp_path: Path, disk: str) -> None:
    """F26: with an empty disk the cookie refuses it; with a copy of the other's it is listed by nobody."""

    async def main(cluster: Cluster) -> None:
        (first,) = cluster.bookies
        second = another_bookie(cluster, tmp_path / "second", bookieId=bookie_id(first))
        if disk == "empty":
            second.launch()
            assert await asyncio.to_thread(second.wait) == 2
            assert "carries no cookie" in second.log_tail()
        else:
            assert first.stop() == 0
            shutil.copytree(first.data_directory, second.data_directory)
            first.start()
            cluster.others.append(second)
            second.start()
            assert "is listed by another session" in second.log_tail()
        async with ledgers_of(cluster) as ledgers:
            told = Told()
            writer = await created(ledgers, told, size=1, write=1, ack=1)
            await append(writer, told, 200)
            assert await recovered(ledgers, writer.ledger_id) == 199
        ports = (await listed(cluster))[bookie_id(first)]
        assert first.told_port in ports
        assert second.told_port not in ports

    with Cluster(tmp_path, bookies=1, broker=False, environment=UNREPAIRED) as cluster:
        asyncio.run(main(cluster))
