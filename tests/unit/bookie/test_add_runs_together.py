# SPDX-License-Identifier: Apache-2.0
"""Runs of several ledgers handed down together: each is answered as it would be alone, whatever the others are."""

from dataclasses import replace

import pytest

from magnetar.runtime.simulated_disk import SimulatedDisk
from tests.unit.bookie.benches import KEY, OK, ROOMY, Answers, add_all, bench, packed, run

BAD_REQUEST, FENCED, UNAUTHORIZED = 100, 104, 102
LARGE = bytes(20 * 1024)


@pytest.mark.parametrize("journals", [("j0",), ("j0", "j1")])
@pytest.mark.parametrize("group", [0, 4])
def test_each_ledger_gets_its_own_answer_and_all_of_it_survives(journals: tuple[str, ...], group: int) -> None:
    settings = replace(ROOMY, journal_directories=journals, journal_group_entries_max=group)

    async def life(disk: SimulatedDisk) -> None:
        async with bench(disk, settings) as storage:
            for ledger_id in range(1, 8):
                await add_all(storage, ledger_id, range(2))
            await storage.fence(3, KEY)
            listeners = {ledger_id: Answers() for ledger_id in range(1, 9)}
            entries = {ledger_id: [packed(ledger_id, entry_id) for entry_id in (2, 3, 4)] for ledger_id in range(1, 9)}
            entries[5] = [packed(5, 2, LARGE), packed(5, 3), packed(5, 4)]
            entries[6] = [packed(6, 2), packed(9, 3), packed(6, 4)]
            keys = {4: b"another key of some"}
            storage.add_runs([(each, 2, entries[each], keys.get(each, KEY), listeners[each]) for each in listeners])
            for answers in listeners.values():
                await answers.until(3)
            told = {ledger_id: [answers.codes[e] for e in (2, 3, 4)] for ledger_id, answers in listeners.items()}
            assert told[3] == [FENCED] * 3
            assert told[4] == [UNAUTHORIZED] * 3
            assert told[6] == [OK, BAD_REQUEST, OK]
            for ledger_id in (1, 2, 5, 7, 8):
                assert told[ledger_id] == [OK] * 3

    async def after(disk: SimulatedDisk) -> None:
        async with bench(disk, settings) as storage:
            for ledger_id in (1, 2, 7):
                assert await storage.entry_ids(ledger_id) == list(range(5))
            assert await storage.read(5, 2) == packed(5, 2, LARGE)
            assert await storage.entry_ids(3) == [0, 1]
            assert await storage.entry_ids(6) == [0, 1, 2, 4]
            assert await storage.entry_ids(8) == [2, 3, 4]

    disk = SimulatedDisk()
    run(life(disk))
    disk.kernel.kill()
    run(after(disk))
