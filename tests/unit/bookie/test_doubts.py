# SPDX-License-Identifier: Apache-2.0
"""Ledgers in limbo leave it when everything that belongs here is here again, and not before."""

import asyncio

import pytest

from magnetar.bookie.ledger_questions import LedgerQuestions
from magnetar.bookie.storage import BookieStorage
from magnetar.errors import BookieUnavailable, EntryUnknown, NoSuchEntry, NoSuchLedger
from magnetar.runtime.simulated_disk import SimulatedDisk
from tests.unit.bookie.benches import BOOKIE, KEY, OK, ROOMY, add_all, bench, code_of_add, packed, run, turns_until
from tests.unit.bookie.test_losses import questions

FENCED, UNAUTHORIZED = 104, 102


async def _lost_an_index(disk: SimulatedDisk, ledgers: int) -> None:
    """Every ledger has three entries in the entry logs, and nobody knows their keys and fences any more."""
    async with bench(disk, ROOMY) as storage:
        for ledger_id in range(ledgers):
            await add_all(storage, ledger_id, range(3))
    await disk.remove_directory("ledgers/current/index")


@pytest.mark.feature("F-REC-13", "F-PRB-19")
def test_a_ledger_that_is_whole_again_leaves_limbo_for_good_and_its_fence_stays() -> None:
    async def first(disk: SimulatedDisk) -> None:
        async with bench(disk, ROOMY, questions=questions(0, 1, 7)) as storage:
            assert await storage.doubts.ledger_ids() == [0, 1, 7]

            async def complete(bookie: str, ledger_id: int) -> bytes | None:
                assert bookie == BOOKIE
                if ledger_id == 7:
                    assert await code_of_add(storage, packed(7, 0), recovery=True) == OK
                return KEY if ledger_id != 1 else None

            assert await storage.doubts.settle(complete) == 1
            assert storage.doubts.left == 1
            assert await storage.doubts.ledger_ids() == [1]
            await check(storage)

    async def second(disk: SimulatedDisk) -> None:
        async with bench(disk, ROOMY) as storage:
            assert await storage.doubts.ledger_ids() == [1]
            await check(storage)

    async def check(storage: BookieStorage) -> None:
        assert await storage.read(0, 2) == packed(0, 2)
        for ledger_id, entry_id in ((0, 3), (7, 1)):
            with pytest.raises(NoSuchEntry):
                await storage.read(ledger_id, entry_id)
        with pytest.raises(EntryUnknown):
            await storage.read(1, 3)
        assert await storage.entry_ids(7) == [0]
        assert await code_of_add(storage, packed(0, 3)) == FENCED
        assert await code_of_add(storage, packed(0, 3), key=b"another key of some") == UNAUTHORIZED

    disk = SimulatedDisk()
    run(_lost_an_index(disk, 2))
    run(first(disk))
    run(second(disk))


def test_a_walk_is_repeated_until_nobody_is_in_limbo() -> None:
    async def scenario(disk: SimulatedDisk) -> None:
        asked: list[int] = []

        async def complete(bookie: str, ledger_id: int) -> bytes | None:
            asked.append(ledger_id)
            if ledger_id == 2 and asked.count(2) < 3:
                raise BookieUnavailable("who has the other copy is away")
            if ledger_id == 1:
                raise NoSuchLedger("deleted meanwhile")
            return KEY

        async def list_them() -> list[int]:
            return existing

        async def exists(ledger_id: int) -> bool:
            return ledger_id in existing

        existing = [0, 1, 2]
        async with bench(disk, ROOMY, questions=LedgerQuestions(list_them, exists)) as storage:
            walking = asyncio.get_running_loop().create_task(storage.doubts.settle_all(complete, 1))
            await turns_until(lambda: asked.count(2) == 3 and asked.count(1) == 4)
            assert await storage.doubts.ledger_ids() == [1]
            assert asked.count(0) == 1, "who has left limbo is not asked for again"
            existing.remove(1)
            await storage.housekeeping.collect()
            async with asyncio.timeout(30):
                await walking

    disk = SimulatedDisk()
    run(_lost_an_index(disk, 3))
    run(scenario(disk))
