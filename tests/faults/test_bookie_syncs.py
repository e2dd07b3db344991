# SPDX-License-Identifier: Apache-2.0
"""A bookie, as a process, whose journal's sync fails once, takes seconds, or never returns."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from magnetar.errors import MagnetarError
from magnetar.ledger.ledgers import Ledgers
from magnetar.ledger.writer import LedgerWriter
from magnetar.wire.bookkeeper.codes import ReturnCode
from magnetar.wire.bookkeeper.digest import DigestType
from magnetar.wire.bookkeeper.entry import EntryPacker
from tests.cluster import Cluster, RoleProcess
from tests.faults.ledger_side import PASSWORD, Told, append, body_of, created, ledgers_of, recovered
from tests.faults.test_bookie_ends import another_bookie, listed
from tests.faults.test_storage_processes import UNREPAIRED, bookie_id

WAITING = 50
_STALL_MAX_MS = "3000"


class FailingBookie(RoleProcess):
    """Its journal's syncs go wrong once they are told to; in its next life they are what they were."""

    def launch(self) -> None:
        self._ready.unlink(missing_ok=True)
        self.orders.unlink(missing_ok=True)
        command = [sys.executable, "-m", "tests.faults.failing_sync", str(self.orders), *self.command()[3:]]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=self._environment)

    @property
    def orders(self) -> Path:
        return self.directory / "orders"

    def order(self, what: str) -> None:
        written = self.directory / "written"
        written.write_text(what)
        os.replace(written, self.orders)


class Codes:
    """What a bookie answered to adds, by entry."""

    def __init__(self) -> None:
        self.by_entry: dict[int, int] = {}
        self._news = asyncio.Event()

    def on_added(self, bookie: str, first: int, last: int, code: int) -> None:
        self.by_entry |= dict.fromkeys(range(first, last + 1), code)
        self._news.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(60):
            while len(self.by_entry) < count:
                self._news.clear()
                await self._news.wait()


def with_one_that_fails(directory: Path, **environment: str) -> tuple[Cluster, FailingBookie]:
    """Not started yet; three more bookies are sound."""
    cluster = Cluster(directory, bookies=3, broker=False, environment=UNREPAIRED)
    failing = another_bookie(cluster, directory / "failing", FailingBookie, MAGNETAR_PURE="1", **environment)
    assert isinstance(failing, FailingBookie)
    cluster.bookies.append(failing)
    return cluster, failing


async def created_on(ledgers: Ledgers, bookie: str, told: Told) -> LedgerWriter:
    while True:
        writer = await created(ledgers, told)
        if bookie in writer.known.record.last_segment.ensemble:
            return writer


@pytest.mark.parametrize("order", ["error", "hang"])
def test_a_bookie_whose_sync_goes_wrong_acknowledges_nothing_and_ends(tmp_path: Path, order: str) -> None:
    """F14, F18: of fifty adds that wait none is acknowledged, ledgers go on elsewhere, and what was is there again."""
    # The writer that hangs will not come back: it is not waited for.
    patience = {"MAGNETAR_BOOKIE_JOURNAL_STALL_MAX_MS": _STALL_MAX_MS, "brokerShutdownTimeoutMs": "1000"}
    cluster, failing = with_one_that_fails(tmp_path, **patience)
    victim = bookie_id(failing)

    async def main() -> None:
        async with ledgers_of(cluster) as ledgers:
            told = Told()
            writer = await created_on(ledgers, victim, told)
            await append(writer, told, 20)
            failing.order(order)
            packer = EntryPacker(10**6, DigestType.CRC32C, PASSWORD)
            codes = Codes()
            for entry_id in range(WAITING):
                entry = packer.pack(entry_id, entry_id - 1, 0, [body_of(entry_id)])
                ledgers.channels(victim).add(10**6, entry_id, entry, packer.master_key, codes)
            await append(writer, told, 200)
            await codes.until(WAITING)
            assert ReturnCode.OK not in codes.by_entry.values()
            assert await asyncio.to_thread(failing.wait) != 0
            await append(writer, told, 20)
            assert victim not in writer.known.record.last_segment.ensemble
            assert victim not in await listed(cluster)
            failing.start()
            assert await recovered(ledgers, writer.ledger_id) == 20 + 200 + 20 - 1
            for entry_id in range(20):
                held = await ledgers.channels(victim).read(writer.ledger_id, entry_id)
                assert bytes(held).endswith(body_of(entry_id))
            for entry_id in range(WAITING):
                try:
                    held = await ledgers.channels(victim).read(10**6, entry_id)
                except MagnetarError:
                    continue
                assert bytes(held).endswith(body_of(entry_id)), "whole, or not there"

    with cluster:
        asyncio.run(main())


def test_a_bookie_whose_syncs_take_seconds_is_replaced_once_and_goes_on(tmp_path: Path) -> None:
    """F17: no add waits for it; it stays listed, and the ledger does not come back to it."""
    cluster, failing = with_one_that_fails(tmp_path)
    victim = bookie_id(failing)

    async def main() -> None:
        async with ledgers_of(cluster) as ledgers:
            told = Told()
            writer = await created_on(ledgers, victim, told)
            await append(writer, told, 20)
            failing.order("slow")
            while victim in writer.known.record.last_segment.ensemble:
                await append(writer, told, 10)
            for _ in range(50):
                await append(writer, told, 10)
            assert len(writer.known.record.segments) == 2
            assert victim in await listed(cluster)
            assert failing.is_running
            last = writer.last_add_confirmed
            failing.orders.unlink()
            assert await recovered(ledgers, writer.ledger_id) == last

    with cluster:
        asyncio.run(main())
