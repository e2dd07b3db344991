# SPDX-License-Identifier: Apache-2.0
"""Rot, lost indexes and lost journals: found at the start, answered as unknown, never as an absence."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest

from magnetar.bookie.journal_format import FILE_HEADER_BYTES, RECORD_OVERHEAD_BYTES
from magnetar.bookie.ledger_questions import LedgerQuestions
from magnetar.errors import EntryUnknown, NoSuchEntry, NoSuchLedger, StorageFailed
from magnetar.runtime.simulated_disk import SimulatedDisk
from tests.unit.bookie.benches import KEY, OK, ROOMY, SMALL, add_all, bench, code_of_add, opened, packed, run

FENCED, UNKNOWN_LEDGER_STATE = 104, 107
JOURNAL = "journal/current/1.txn"
NO_SEAL = replace(ROOMY, journal_seal_delay_ms=3_600_000, journal_preallocate_bytes=0)


def questions(*existing: int) -> LedgerQuestions:
    async def list_them() -> Iterable[int]:
        return existing

    async def exists(ledger_id: int) -> bool:
        return ledger_id in existing

    return LedgerQuestions(list_them, exists)


async def _write(disk: SimulatedDisk, groups: Iterable[range]) -> None:
    """Each range in a sync of its own; then the process is gone."""
    storage = await opened(disk, NO_SEAL)
    for group in groups:
        await add_all(storage, 1, group)
    await disk.sync_directory("journal/current")


def _offset_of(entry_id: int) -> int:
    """Where the journal has an entry's body: header, the ledger's key, then records of one size."""
    first = FILE_HEADER_BYTES + RECORD_OVERHEAD_BYTES + 8 + len(KEY)
    return first + entry_id * (RECORD_OVERHEAD_BYTES + len(packed(1, 0))) + RECORD_OVERHEAD_BYTES


def test_rot_behind_the_last_sync_is_a_torn_tail() -> None:
    """F3: record 95 of 100, nothing says that a sync reached it: what was never proven durable may go."""

    async def after(disk: SimulatedDisk) -> None:
        async with bench(disk, NO_SEAL) as storage:
            assert storage.damage == ()
            assert await storage.entry_ids(1) == list(range(95))
            with pytest.raises(NoSuchEntry):
                await storage.read(1, 95)

    disk = SimulatedDisk()
    run(_write(disk, [range(0, 90), range(90, 100)]))
    disk.kernel.kill()
    disk.kernel.flip_bit(JOURNAL, _offset_of(95), 0)
    run(after(disk))


def test_rot_before_the_last_sync_is_a_loss_and_the_ledger_is_in_limbo() -> None:
    """F3: record 40, and records behind it prove that it was durable: 41 to 99 are kept, 40 is unknown."""

    async def after(disk: SimulatedDisk) -> None:
        async with bench(disk, NO_SEAL) as storage:
            for entry_id in range(100):
                if entry_id == 40:
                    with pytest.raises(EntryUnknown):
                        await storage.read(1, entry_id)
                else:
                    assert await storage.read(1, entry_id) == packed(1, entry_id)
            with pytest.raises(EntryUnknown):
                await storage.read(1, 100)
            with pytest.raises(EntryUnknown):
                await storage.entry_ids(1)
            with pytest.raises(EntryUnknown):
                await storage.read(55, 0)
            assert await code_of_add(storage, packed(1, 100)) == FENCED
            assert await code_of_add(storage, packed(1, 40), recovery=True) == OK

    async def damaged(disk: SimulatedDisk) -> tuple[str, ...]:
        async with bench(disk, NO_SEAL) as storage:
            return storage.damage

    disk = SimulatedDisk()
    run(_write(disk, [range(0, 90), range(90, 100)]))
    disk.kernel.kill()
    disk.kernel.flip_bit(JOURNAL, _offset_of(40), 3)
    image = disk.kernel.image()
    assert len(run(damaged(disk))) == 1
    disk.kernel.kill()
    disk.kernel.restore(image)
    run(after(disk))
    run(_still_in_limbo(disk))


async def _still_in_limbo(disk: SimulatedDisk) -> None:
    async with bench(disk, NO_SEAL) as storage:
        assert storage.damage == ()
        assert await storage.read(1, 40) == packed(1, 40)
        with pytest.raises(EntryUnknown):
            await storage.read(1, 500)


def test_any_flipped_bit_before_the_last_sync_is_noticed() -> None:
    async def after(disk: SimulatedDisk) -> None:
        async with bench(disk, NO_SEAL) as storage:
            assert storage.damage
            for entry_id in range(12):
                with suppress(EntryUnknown):
                    assert await storage.read(1, entry_id) == packed(1, entry_id)

    disk = SimulatedDisk()
    run(_write(disk, [range(0, 8), range(8, 12)]))
    disk.kernel.kill()
    image = disk.kernel.image()
    end = _offset_of(8) - RECORD_OVERHEAD_BYTES
    for offset in range(FILE_HEADER_BYTES, end, 7):
        disk.kernel.restore(image)
        disk.kernel.flip_bit(JOURNAL, offset, offset % 8)
        run(after(disk))


def test_an_unreadable_mark_replays_everything_since_the_last_start() -> None:
    async def after(disk: SimulatedDisk) -> None:
        async with bench(disk) as storage:
            assert storage.damage == ()
            assert await storage.entry_ids(1) == list(range(60))

    async def life(disk: SimulatedDisk, ids: range) -> None:
        storage = await opened(disk)
        await add_all(storage, 1, ids)
        await storage.checkpoint()

    disk = SimulatedDisk()
    run(life(disk, range(0, 30)))
    disk.kernel.kill()
    run(life(disk, range(30, 60)))
    disk.kernel.kill()
    disk.kernel.flip_bit("journal/current/lastMark", 20, 1)
    run(after(disk))


def test_a_missing_journal_is_a_loss() -> None:
    async def life(disk: SimulatedDisk) -> None:
        storage = await opened(disk, ROOMY)
        await add_all(storage, 1, range(5))
        await storage.checkpoint()
        await add_all(storage, 1, range(5, 8))
        await disk.remove(JOURNAL)

    async def after(disk: SimulatedDisk) -> None:
        async with bench(disk, ROOMY) as storage:
            assert "missing" in storage.damage[0]
            assert await storage.read(1, 4) == packed(1, 4)
            with pytest.raises(EntryUnknown):
                await storage.read(1, 6)

    disk = SimulatedDisk()
    run(life(disk))
    disk.kernel.kill()
    run(after(disk))


def test_a_wiped_journal_directory_is_a_loss() -> None:
    async def life(disk: SimulatedDisk) -> None:
        async with bench(disk, ROOMY) as storage:
            await add_all(storage, 1, range(5))
        await disk.remove_directory("journal")

    async def after(disk: SimulatedDisk) -> None:
        async with bench(disk, ROOMY) as storage:
            assert "gone" in storage.damage[0]
            with pytest.raises(EntryUnknown):
                await storage.read(1, 6)

    disk = SimulatedDisk()
    run(life(disk))
    run(after(disk))


@pytest.mark.feature("F-BKS-33", "B-35")
@pytest.mark.parametrize("how", ["deleted", "cut", "flipped", "no header"])
def test_a_lost_index_is_rebuilt_with_every_ledger_fenced(how: str) -> None:
    """F8: 50 ledgers, a clean stop, then the index is damaged."""
    path = "ledgers/current/index/index.plain"

    async def life(disk: SimulatedDisk) -> None:
        async with bench(disk, SMALL) as storage:
            for ledger_id in range(50):
                await add_all(storage, ledger_id, range(4))
        if how == "deleted":
            await disk.remove(path)
            return
        file = await disk.open(path)
        if how == "cut":
            await file.truncate(file.size() // 2)
        await file.close()

    async def after(disk: SimulatedDisk) -> None:
        async with bench(disk, SMALL, questions=questions(*range(52))) as storage:
            assert storage.damage
            for ledger_id in range(50):
                for entry_id in range(4):
                    assert await storage.read(ledger_id, entry_id) == packed(ledger_id, entry_id)
                assert await code_of_add(storage, packed(ledger_id, 4)) == FENCED
                with pytest.raises(EntryUnknown):
                    await storage.read(ledger_id, 4)
            with pytest.raises(EntryUnknown):
                await storage.read(51, 0)
            with pytest.raises(NoSuchLedger):
                await storage.read(52, 0)
            assert await code_of_add(storage, packed(52, 0)) == OK, "a ledger that is new since then"

    disk = SimulatedDisk()
    run(life(disk))
    if how == "flipped":
        disk.kernel.flip_bit(path, 300, 4)
    if how == "no header":
        disk.kernel.flip_bit(path, 2, 4)
    run(after(disk))
    run(_clean(disk))


async def _clean(disk: SimulatedDisk) -> None:
    async with bench(disk, SMALL) as storage:
        assert storage.damage == ()
        assert await storage.read(52, 0) == packed(52, 0)
        assert await code_of_add(storage, packed(7, 4)) == FENCED


def test_until_somebody_says_which_ledgers_exist_every_ledger_may_have_been_here() -> None:
    async def life(disk: SimulatedDisk) -> None:
        async with bench(disk, ROOMY) as storage:
            await add_all(storage, 1, range(5))
        await disk.remove_directory("ledgers/current/index")

    async def unsure(disk: SimulatedDisk) -> None:
        async with bench(disk, ROOMY) as storage:
            with pytest.raises(EntryUnknown):
                await storage.read(77, 0)
            assert await code_of_add(storage, packed(77, 0)) == FENCED

    async def told(disk: SimulatedDisk) -> None:
        async with bench(disk, ROOMY, questions=questions(1)) as storage:
            with pytest.raises(NoSuchLedger):
                await storage.read(78, 0)
            assert await code_of_add(storage, packed(78, 0)) == OK

    disk = SimulatedDisk()
    run(life(disk))
    run(unsure(disk))
    run(unsure(disk))
    run(told(disk))


def test_a_key_that_was_lost_is_learnt_from_the_recoverer() -> None:
    async def life(disk: SimulatedDisk) -> None:
        async with bench(disk, ROOMY) as storage:
            await add_all(storage, 1, range(5))
        await disk.remove_directory("ledgers/current/index")

    async def after(disk: SimulatedDisk) -> None:
        async with bench(disk, ROOMY) as storage:
            assert await storage.read(1, 4, fence_key=KEY) == packed(1, 4)
            assert await code_of_add(storage, packed(1, 5), recovery=True) == OK

    disk = SimulatedDisk()
    run(life(disk))
    run(after(disk))


@pytest.mark.parametrize("seed", range(8))
def test_a_rebuild_that_is_cut_short_is_done_again(seed: int) -> None:
    async def life(disk: SimulatedDisk) -> None:
        async with bench(disk, SMALL) as storage:
            for ledger_id in range(10):
                await add_all(storage, ledger_id, range(4))
        await disk.remove_directory("ledgers/current/index")

    async def start(disk: SimulatedDisk) -> None:
        with suppress(OSError, StorageFailed):
            await opened(disk, SMALL)

    async def after(disk: SimulatedDisk) -> None:
        async with bench(disk, SMALL) as storage:
            for ledger_id in range(10):
                assert await storage.read(ledger_id, 3) == packed(ledger_id, 3)
                with pytest.raises(EntryUnknown):
                    await storage.read(ledger_id, 4)

    disk = SimulatedDisk(Random(seed))
    run(life(disk))
    first = disk.kernel.calls

    def on_call(call: object) -> None:
        if disk.kernel.calls == first + 15 + 4 * seed:
            raise OSError(5, "injected")

    disk.kernel.faults.on_call = on_call
    run(start(disk))
    disk.kernel.faults.on_call = None
    disk.kernel.lose_power()
    run(after(disk))
