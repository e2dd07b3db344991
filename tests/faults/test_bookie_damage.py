# SPDX-License-Identifier: Apache-2.0
"""Files of a stopped bookie are damaged: nobody reads wrong bytes or a wrong no, and what was lost comes back."""

import asyncio
import shutil
from pathlib import Path

import pytest

from magnetar.errors import EntryUnknown, MagnetarError
from magnetar.ledger.ledgers import Ledgers
from magnetar.wire.bookkeeper.codes import ReturnCode
from tests.cluster import Cluster, RoleProcess
from tests.faults.ledger_side import Told, append, body_of, created, ledgers_of, recovered, until
from tests.faults.test_storage_processes import UNREPAIRED, code_of_add, named

ENTRIES = 30
DAMAGED = 7


async def stopped(bookie: RoleProcess) -> None:
    assert await asyncio.to_thread(bookie.stop) == 0


async def answered(ledgers: Ledgers, bookie: str, ledger_id: int, entry_id: int) -> bytes | None:
    """The entry as this bookie gives it; None where it gives none."""
    try:
        return bytes(await ledgers.channels(bookie).read(ledger_id, entry_id))
    except MagnetarError:
        return None


def test_a_flipped_bit_in_an_entry_log_is_never_read_and_its_entry_comes_back(tmp_path: Path) -> None:
    """F4: the other copies answer; the bookie that lost it says so, and fetches or is given what it lost."""
    settings = {"localScrubInterval": "1", "auditorPeriodicCheckInterval": "1", "MAGNETAR_REPAIR_RETRY_DELAY_MS": "200"}

    async def main(cluster: Cluster) -> None:
        async with ledgers_of(cluster) as ledgers:
            told = Told()
            writer = await created(ledgers, told)
            await append(writer, told, ENTRIES)
            await writer.close()
            victim = writer.known.record.last_segment.ensemble[0]
            bookie = named(cluster, victim)
            await stopped(bookie)
            assert flip(bookie.data_directory, body_of(DAMAGED))
            bookie.start()

            async def is_back() -> bool:
                entry = await answered(ledgers, victim, writer.ledger_id, DAMAGED)
                assert entry is None or entry.endswith(body_of(DAMAGED)), "wrong bytes are never given"
                assert await recovered(ledgers, writer.ledger_id) == ENTRIES - 1
                record = (await ledgers.catalog.load(writer.ledger_id)).record
                return victim not in record.bookies() or entry is not None

            assert await answered(ledgers, victim, writer.ledger_id, DAMAGED) is None
            await until(is_back)

    with Cluster(tmp_path, bookies=4, broker=False, environment=settings) as cluster:
        asyncio.run(main(cluster))


def flip(data: Path, body: bytes) -> bool:
    """One bit of an entry, in whichever entry log has it."""
    for log in (data / "ledgers" / "current").glob("*.log"):
        held = bytearray(log.read_bytes())
        at = held.find(body)
        if at >= 0:
            held[at] ^= 1
            log.write_bytes(held)
            return True
    return False


@pytest.mark.parametrize("how", ["deleted", "cut"])
def test_a_bookie_whose_index_is_gone_builds_it_anew_and_fences_everything(tmp_path: Path, how: str) -> None:
    """F8: found at the start; what it has it gives, and what it may have lost it does not deny."""

    async def main(cluster: Cluster) -> None:
        async with ledgers_of(cluster) as ledgers:
            told = Told()
            writers = []
            for _ in range(5):
                writers.append(await created(ledgers, told))
                await append(writers[-1], told, ENTRIES)
                told = Told()
            victim = writers[0].known.record.last_segment.ensemble[0]
            bookie = named(cluster, victim)
            await stopped(bookie)
            damage(bookie.data_directory / "ledgers" / "current" / "index", how)
            bookie.start()
            for writer in writers:
                for entry_id in range(ENTRIES):
                    entry = await ledgers.channels(victim).read(writer.ledger_id, entry_id)
                    assert bytes(entry).endswith(body_of(entry_id))
                assert await code_of_add(ledgers, victim, writer.ledger_id, ENTRIES) == ReturnCode.FENCED
                with pytest.raises(EntryUnknown):
                    await ledgers.channels(victim).read(writer.ledger_id, ENTRIES)
                assert await recovered(ledgers, writer.ledger_id) == ENTRIES - 1

    with Cluster(tmp_path, broker=False, environment=UNREPAIRED) as cluster:
        asyncio.run(main(cluster))


def damage(index: Path, how: str) -> None:
    assert index.is_dir()
    if how == "deleted":
        shutil.rmtree(index)
        return
    for path in index.rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
