# SPDX-License-Identifier: Apache-2.0
"""Adds of many ledgers handed down together: each is answered as it would be alone, whatever the others are."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from magnetar.bookie.entry_batches import ids_of
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.wire.bookkeeper.plain_adds import PlainAdds
from tests.unit.bookie.benches import BOOKIE, KEY, OK, ROOMY, SMALL, Answers, add_all, bench, code_of_add, packed, run

BAD_REQUEST, FENCED, READ_ONLY, TOO_MANY, UNAUTHORIZED = 100, 104, 105, 106, 102
LARGE = bytes(20 * 1024)


class Source:
    """Whoever sends entries together: every outcome by ledger and entry, and in which order."""

    def __init__(self) -> None:
        self.codes: dict[tuple[int, int], int] = {}
        self.order: list[tuple[int, int]] = []
        self._all = Answers()

    def batch_listener(self, entries: list[bytes]) -> "_Told":
        ids = [ids_of(entry) for entry in entries]
        return _Told(self, lambda number: ids[number])

    def ledger_listener(self, ledger_id: int) -> "_Told":
        return _Told(self, lambda entry_id: (ledger_id, entry_id))

    def note(self, ids: list[tuple[int, int]], code: int) -> None:
        assert not self.codes.keys() & set(ids), "each add is answered once"
        self.codes |= dict.fromkeys(ids, code)
        self.order += ids
        self._all.on_added(BOOKIE, 0, len(ids) - 1, code)

    async def until(self, count: int) -> None:
        await self._all.until(count)


class _Told:
    def __init__(self, source: Source, ids: Callable[[int], tuple[int, int]]) -> None:
        self._source = source
        self._ids = ids

    def on_added(self, bookie: str, first: int, last: int, code: int) -> None:
        assert bookie == BOOKIE
        self._source.note([self._ids(number) for number in range(first, last + 1)], code)


@pytest.mark.feature("F-BKS-06")
@pytest.mark.parametrize("journals", [("j0",), ("j0", "j1")])
@pytest.mark.parametrize("group", [0, 4])
def test_each_add_gets_its_own_answer_and_what_is_answered_survives(journals: tuple[str, ...], group: int) -> None:
    settings = replace(ROOMY, journal_directories=journals, journal_group_entries_max=group)

    async def life(disk: SimulatedDisk) -> None:
        async with bench(disk, settings) as storage:
            for ledger_id in (1, 2, 3, 5):
                await add_all(storage, ledger_id, range(2))
            assert await code_of_add(storage, packed(4, 0), key=b"another key of 20 by") == OK
            await storage.fence(3, KEY)
            source = Source()
            # Round robin: no two neighbours share a ledger; 8 was never seen before, 4 has another key.
            mixed = [packed(ledger_id, entry_id) for entry_id in (2, 3) for ledger_id in (1, 2, 3, 4, 5, 8)]
            mixed.insert(3, packed(5, 4, LARGE))
            mixed.insert(5, packed(1, -7))
            mixed.append(bytes(SMALL.entry_bytes_max + 1))
            storage.add_batch(PlainAdds(KEY, mixed), source)
            await source.until(len(mixed))
            codes = source.codes
            assert {ids for ids, code in codes.items() if code == FENCED} == {(3, 2), (3, 3)}
            assert {ids for ids, code in codes.items() if code == UNAUTHORIZED} == {(4, 2), (4, 3)}
            assert {ids for ids, code in codes.items() if code == BAD_REQUEST} == {(1, -7), (0, 0)}
            taken = {(ledger_id, entry_id) for ledger_id in (1, 2, 5, 8) for entry_id in (2, 3)} | {(5, 4)}
            assert {ids for ids, code in codes.items() if code == OK} == taken

    async def after(disk: SimulatedDisk) -> None:
        async with bench(disk, settings) as storage:
            for ledger_id, ids in {1: [0, 1, 2, 3], 2: [0, 1, 2, 3], 3: [0, 1], 5: [0, 1, 2, 3, 4], 8: [2, 3]}.items():
                assert await storage.entry_ids(ledger_id) == ids
            assert await storage.read(5, 4) == packed(5, 4, LARGE)

    disk = SimulatedDisk()
    run(life(disk))
    disk.kernel.kill()
    run(after(disk))


@pytest.mark.feature("F-BP-01")
def test_a_batch_that_waits_for_room_is_taken_in_order_when_there_is_some() -> None:
    async def main() -> None:
        async with bench(SimulatedDisk(), SMALL) as storage:
            for ledger_id in range(6):
                await add_all(storage, ledger_id, range(1))
            source = Source()
            batches = [[packed(ledger_id, entry_id) for ledger_id in range(6)] for entry_id in range(1, 60)]
            for batch in batches:
                storage.add_batch(PlainAdds(KEY, batch), source)
            assert storage.stats().held_adds > 0, "this load is larger than the caches"
            await source.until(6 * len(batches))
            assert set(source.codes.values()) == {OK}
            for ledger_id in range(6):
                assert [ids[1] for ids in source.order if ids[0] == ledger_id] == list(range(1, 60))
                assert await storage.entry_ids(ledger_id) == list(range(60))
            assert storage.stats().held_adds == 0

    run(main())


@pytest.mark.feature("F-BP-01")
def test_a_run_that_waits_for_room_is_answered_by_its_own_ids_in_order() -> None:
    async def main() -> None:
        async with bench(SimulatedDisk(), SMALL) as storage:
            await add_all(storage, 1, range(1))
            answers = Answers()
            for first in range(1, 401, 8):
                storage.add_run(1, first, [packed(1, first + more) for more in range(8)], KEY, answers)
            assert storage.stats().held_adds > 0, "this load is larger than the caches"
            await answers.until(400)
            assert answers.codes == dict.fromkeys(range(1, 401), OK)
            told = [entry_id for first, last, _ in answers.calls for entry_id in range(first, last + 1)]
            assert told == list(range(1, 401))
            assert await storage.entry_ids(1) == list(range(401))

    run(main())


def test_a_run_of_a_new_ledger_begins_it_and_one_with_another_key_is_refused() -> None:
    async def main() -> None:
        async with bench(SimulatedDisk(), ROOMY) as storage:
            fine, wrong = Answers(), Answers()
            storage.add_run(7, 0, [packed(7, entry_id) for entry_id in range(3)], KEY, fine)
            await fine.until(3)
            assert fine.codes == dict.fromkeys(range(3), OK)
            storage.add_run(7, 3, [packed(7, entry_id) for entry_id in (3, 4)], b"another key of 20 by", wrong)
            await wrong.until(2)
            assert wrong.codes == {3: UNAUTHORIZED, 4: UNAUTHORIZED}
            assert await storage.entry_ids(7) == [0, 1, 2]

    run(main())


@pytest.mark.feature("F-BP-01")
def test_a_batch_that_finds_room_for_a_part_of_it_is_refused_for_the_rest() -> None:
    settings = replace(SMALL, held_adds_max=10)

    async def main() -> None:
        async with bench(SimulatedDisk(), settings) as storage:
            await add_all(storage, 1, range(1))
            source = Source()
            for first in range(1, 97, 4):
                storage.add_batch(PlainAdds(KEY, [packed(1, first + more, bytes(400)) for more in range(4)]), source)
            held = storage.stats().held_adds
            assert held == 10, "two batches and the half of another"
            await source.until(96)
            taken = [ids[1] for ids in source.order if source.codes[ids] == OK]
            assert set(source.codes.values()) == {OK, TOO_MANY}
            assert taken == list(range(1, len(taken) + 1)), "the first ones"
            assert await storage.entry_ids(1) == [0, *taken]

    run(main())


def test_a_read_only_bookie_refuses_every_add_of_a_batch() -> None:
    async def main() -> None:
        async with bench(SimulatedDisk(), SMALL) as storage:
            await add_all(storage, 1, range(1))
            await add_all(storage, 2, range(1))
            storage._on_usage(is_full=True)
            source = Source()
            storage.add_batch(PlainAdds(KEY, [packed(1, 1), packed(2, 1), bytes(16)]), source)
            await source.until(3)
            assert source.codes == {(1, 1): READ_ONLY, (2, 1): READ_ONLY, (0, 0): BAD_REQUEST}

    run(main())
