# SPDX-License-Identifier: Apache-2.0
"""Without a sync of the journal: a machine's end may have taken what was acknowledged, a process's end cannot."""

from dataclasses import replace
from random import Random

import pytest

from magnetar.bookie.ledger_questions import LedgerQuestions
from magnetar.errors import EntryUnknown, NoSuchEntry, NoSuchLedger
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.wire.bookkeeper.codes import ReturnCode
from tests.unit.bookie.benches import KEY, OK, ROOMY, add_all, bench, code_of_add, opened, packed, run
from tests.unit.bookie.test_losses import questions

UNSYNCED = replace(ROOMY, journal_sync=False)
SEEDS = range(12)
# Acknowledged by the first life: entries of a ledger, and the fence of another one.
TAKEN, FENCED = 1, 2
MARK = "journal/current/unsynced"


async def never(bookie: str, ledger_id: int) -> bytes | None:
    """Others have copies; here they are not asked for them."""
    return None


def among_others(*existing: int) -> LedgerQuestions:
    return questions(*existing)._replace(complete=never)


async def first_life(disk: SimulatedDisk) -> None:
    """Everything in it is acknowledged, and nothing but the journal holds it when it ends."""
    storage = await opened(disk, UNSYNCED, questions=among_others())
    assert (await add_all(storage, TAKEN, range(3))).codes == dict.fromkeys(range(3), OK)
    await storage.fence(FENCED, KEY)


@pytest.mark.feature("F-REC-13")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("syncs_now", [False, True])
def test_what_a_machines_end_may_have_taken_is_fenced_and_never_denied(seed: int, syncs_now: bool) -> None:
    """F30: acknowledged without a sync, lost with the power: a fence that may be gone holds, an entry is unknown."""
    kept: list[bool] = []

    async def next_life(disk: SimulatedDisk) -> None:
        settings = replace(UNSYNCED, journal_sync=syncs_now)
        async with bench(disk, settings, questions=among_others(TAKEN, FENCED)) as storage:
            assert any("journal_sync is off" in sentence for sentence in storage.damage)
            assert await storage.doubts.ledger_ids() == [TAKEN, FENCED]
            for entry_id in range(4):
                try:
                    assert await storage.read(TAKEN, entry_id) == packed(TAKEN, entry_id)
                    kept.append(True)
                except EntryUnknown:
                    kept.append(False)
            # The writer of either goes on as if nothing had happened; he must not.
            assert await code_of_add(storage, packed(TAKEN, 3)) == ReturnCode.FENCED
            assert await code_of_add(storage, packed(FENCED, 0)) == ReturnCode.FENCED
            # A ledger that is new is nobody's doubt.
            with pytest.raises(NoSuchLedger):
                await storage.read(3, 0)
            assert await code_of_add(storage, packed(3, 0)) == OK

    async def last_life(disk: SimulatedDisk) -> None:
        """After a clean stop there is no new loss; the doubts of before are still there."""
        async with bench(disk, ROOMY, questions=among_others()) as storage:
            assert storage.damage == ()
            assert await storage.doubts.ledger_ids() == [TAKEN, FENCED]
            assert await storage.read(3, 0) == packed(3, 0)

    disk = SimulatedDisk(Random(seed))
    run(first_life(disk))
    disk.kernel.lose_power()
    run(next_life(disk))
    disk.kernel.lose_power()
    run(last_life(disk))
    assert not kept[3], "was never added"


def test_the_power_does_take_acknowledged_entries() -> None:
    """Without it nothing here proves anything."""

    async def entries_left(disk: SimulatedDisk) -> int:
        left = 0
        async with bench(disk, UNSYNCED, questions=among_others(TAKEN, FENCED)) as storage:
            for entry_id in range(3):
                try:
                    await storage.read(TAKEN, entry_id)
                    left += 1
                except EntryUnknown:
                    pass
        return left

    found = []
    for seed in SEEDS:
        disk = SimulatedDisk(Random(seed))
        run(first_life(disk))
        disk.kernel.lose_power()
        found.append(run(entries_left(disk)))
    assert min(found) < 3
    assert max(found) > 0


@pytest.mark.feature("F-BKS-08")
def test_a_killed_process_loses_nothing_and_doubts_nothing() -> None:
    async def next_life(disk: SimulatedDisk) -> None:
        async with bench(disk, UNSYNCED, questions=among_others(TAKEN, FENCED)) as storage:
            assert storage.damage == ()
            assert [await storage.read(TAKEN, entry_id) for entry_id in range(3)] == [
                packed(TAKEN, entry_id) for entry_id in range(3)
            ]
            with pytest.raises(NoSuchEntry):
                await storage.read(TAKEN, 3)
            assert await code_of_add(storage, packed(TAKEN, 3)) == OK
            assert await code_of_add(storage, packed(FENCED, 0)) == ReturnCode.FENCED

    disk = SimulatedDisk()
    run(first_life(disk))
    disk.kernel.kill()
    run(next_life(disk))


def test_who_is_killed_and_syncs_from_then_on_has_nothing_left_to_lose() -> None:
    async def next_life(disk: SimulatedDisk) -> None:
        storage = await opened(disk, ROOMY, questions=among_others(TAKEN, FENCED))
        assert storage.damage == ()
        assert not await disk.exists(MARK)

    async def last_life(disk: SimulatedDisk) -> None:
        async with bench(disk, ROOMY, questions=among_others(TAKEN, FENCED)) as storage:
            assert storage.damage == ()
            assert await storage.entry_ids(TAKEN) == [0, 1, 2]

    disk = SimulatedDisk()
    run(first_life(disk))
    disk.kernel.kill()
    run(next_life(disk))
    disk.kernel.lose_power()
    run(last_life(disk))


def test_a_stop_that_could_not_write_everything_out_is_not_clean() -> None:
    async def first(disk: SimulatedDisk) -> None:
        async with bench(disk, UNSYNCED, questions=among_others()) as storage:
            await add_all(storage, TAKEN, range(3))
            disk.kernel.capacity_bytes = 0

    async def is_marked(disk: SimulatedDisk) -> bool:
        return await disk.exists(MARK)

    disk = SimulatedDisk()
    run(first(disk))
    assert run(is_marked(disk))


def test_who_stands_alone_says_it_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody has another copy: a doubt would last for ever, and nothing would be served any more."""

    async def next_life(disk: SimulatedDisk) -> None:
        async with bench(disk, UNSYNCED, questions=questions(TAKEN, FENCED)) as storage:
            assert await storage.doubts.ledger_ids() == []
            with pytest.raises((NoSuchEntry, NoSuchLedger)):
                await storage.read(TAKEN, 3)

    disk = SimulatedDisk(Random(3))
    run(first_life(disk))
    disk.kernel.lose_power()
    run(next_life(disk))
    assert "may be lost, and no other bookie has it" in caplog.text
