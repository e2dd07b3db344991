# SPDX-License-Identifier: Apache-2.0
"""How many answers one turn of the loop gives after a sync, and that their order is kept."""

import asyncio
from dataclasses import replace

import pytest

from magnetar.bookie.storage import BookieStorage
from magnetar.errors import StorageFailed
from magnetar.runtime.simulated_disk import SimulatedDisk
from tests.unit.bookie.benches import BOOKIE, KEY, ROOMY, bench, opened, packed, run, turns_until

LEDGERS = 7
ENTRIES = 3


class Turns:
    """Counts turns of the loop, so that answers can be told apart by the turn in which they came."""

    def __init__(self) -> None:
        self.turn = 0
        self._loop = asyncio.get_running_loop()
        self._tick()

    def _tick(self) -> None:
        self.turn += 1
        self._handle = self._loop.call_soon(self._tick)

    def end(self) -> None:
        self._handle.cancel()


class Answered:
    """The listener of one ledger: which entries each of all listeners was told of, in which turn."""

    def __init__(self, ledger_id: int, turns: Turns, told: list[tuple[int, int, int, int]]) -> None:
        self._ledger_id = ledger_id
        self._turns = turns
        self._told = told

    def on_added(self, bookie: str, first: int, last: int, code: int) -> None:
        assert bookie == BOOKIE
        self._told += [(self._turns.turn, self._ledger_id, entry_id, code) for entry_id in range(first, last + 1)]


async def told_after_one_sync(storage: BookieStorage) -> list[tuple[int, int, int, int]]:
    turns, told = Turns(), list[tuple[int, int, int, int]]()
    for ledger_id in range(LEDGERS):
        listener = Answered(ledger_id, turns, told)
        for entry_id in range(ENTRIES):
            storage.add(ledger_id, entry_id, packed(ledger_id, entry_id), KEY, listener)
    await turns_until(lambda: len(told) == LEDGERS * ENTRIES)
    turns.end()
    return told


@pytest.mark.feature("F-BKS-10")
@pytest.mark.parametrize("at_once", [1, 2, 3, 7, 100])
def test_no_turn_answers_more_than_the_setting_allows(at_once: int) -> None:
    async def scenario() -> None:
        settings = replace(ROOMY, journal_answers_per_turn_max=at_once)
        async with bench(SimulatedDisk(), settings) as storage:
            # The ledgers' first adds are looked at with care; these are plain ones.
            await told_after_one_sync(storage)
            syncs = storage.stats().journal_syncs
            told = await told_after_one_sync(storage)
            assert storage.stats().journal_syncs == syncs + 1
            turns = [turn for turn, _, _, _ in told]
            most = max(turns.count(turn) for turn in turns)
            assert most == min(at_once, LEDGERS * ENTRIES)
            in_order = [(ledger_id, entry_id, 0) for ledger_id in range(LEDGERS) for entry_id in range(ENTRIES)]
            assert [(ledger_id, entry_id, code) for _, ledger_id, entry_id, code in told] == in_order

    run(scenario())


@pytest.mark.feature("F-BKS-10")
def test_who_is_durable_hears_of_it_before_others_hear_that_they_are_not() -> None:
    async def scenario() -> None:
        disk, failures = SimulatedDisk(), list[StorageFailed]()
        storage = await opened(disk, replace(ROOMY, journal_answers_per_turn_max=1), failures=failures)
        await told_after_one_sync(storage)
        turns, told = Turns(), list[tuple[int, int, int, int]]()
        listener = Answered(1, turns, told)
        others = [Answered(ledger_id, turns, told) for ledger_id in (2, 3, 4)]
        for ledger_id, each in zip((1, 2, 3, 4), (listener, *others), strict=True):
            storage.add(ledger_id, 3, packed(ledger_id, 3), KEY, each)
        await turns_until(lambda: bool(told))
        assert len(told) < 4

        def on_call(call: object) -> None:
            raise OSError(5, "injected")

        disk.kernel.faults.on_call = on_call
        storage.add(1, 4, packed(1, 4), KEY, listener)
        await turns_until(lambda: len(told) == 5)
        turns.end()
        assert [code for _, _, _, code in told] == [0, 0, 0, 0, 101]
        assert len(failures) == 1
        disk.kernel.faults.on_call = None
        await storage.close()

    run(scenario())
