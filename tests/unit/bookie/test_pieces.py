# SPDX-License-Identifier: Apache-2.0
"""A piece for the journal goes down whole, or the journal has failed; entries are told by their own numbers."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from magnetar.bookie.journal_format import RecordKind
from magnetar.bookie.storage import BookieStorage
from magnetar.errors import StorageFailed
from magnetar.runtime.simulated_disk import SimulatedDisk
from tests.unit.bookie.benches import BOOKIE, KEY, OK, ROOMY, Answers, bench, opened, packed, run, turns_until

IO_ERROR = 101


def _log_takes_nothing(storage: BookieStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    def append(*_: object) -> int:
        raise MemoryError("no room for a piece")

    monkeypatch.setattr(storage._journals[0]._log, "append", append)


def _record_is_short(storage: BookieStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was to be appended was counted, and a part of it is not there."""
    storage._journals[0]._batch_bytes += 1


@pytest.mark.feature("F-BKS-10")
@pytest.mark.parametrize("breaks", [_log_takes_nothing, _record_is_short])
def test_a_piece_that_does_not_go_down_ends_the_journal_and_nothing_behind_it_is_acknowledged(
    breaks: Callable[[BookieStorage, pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        disk, failures = SimulatedDisk(), list[StorageFailed]()
        storage = await opened(disk, ROOMY, failures=failures)
        answers = Answers()
        storage.add(1, 0, packed(1, 0), KEY, answers)
        await answers.until(1)
        storage.add(1, 1, packed(1, 1), KEY, answers)
        with monkeypatch.context() as patches:
            breaks(storage, patches)
            await turns_until(lambda: bool(failures))
        storage.add(1, 2, packed(1, 2), KEY, answers)
        await answers.until(3)
        assert answers.codes == {0: OK, 1: IO_ERROR, 2: IO_ERROR}
        assert len(failures) == 1
        await storage.close()

    run(scenario())


@pytest.mark.parametrize("entries_max", [1, 2, 3])
@pytest.mark.parametrize("bare", [1, 2, 3])
def test_a_run_behind_records_that_fill_the_piece_is_told_by_its_own_numbers(entries_max: int, bare: int) -> None:
    async def scenario() -> None:
        async with bench(SimulatedDisk(), replace(ROOMY, journal_group_entries_max=entries_max)) as storage:
            journal, answers = storage._journals[0], Answers()
            journal.append_entry(packed(1, 0), 0, answers)
            for _ in range(bare):
                journal.append(RecordKind.SEAL, b"")
            journal.append_entries([packed(1, entry_id) for entry_id in range(1, 6)], 1, answers)
            await answers.until(6)
            assert answers.codes == dict.fromkeys(range(6), OK)

    run(scenario())


def test_a_listener_that_fails_keeps_nobody_else_from_being_told() -> None:
    class Fails:
        def on_added(self, bookie: str, first: int, last: int, code: int) -> None:
            assert bookie == BOOKIE
            raise AssertionError("impossible state")

    async def scenario() -> None:
        told: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, about: told.append(about))
        async with bench(SimulatedDisk(), ROOMY) as storage:
            answers = Answers()
            storage.add(1, 0, packed(1, 0), KEY, Fails())
            storage.add(2, 0, packed(2, 0), KEY, answers)
            await answers.until(1)
            storage.add(3, 1, packed(3, 1), KEY, answers)
            await answers.until(2)
            assert isinstance(told[0]["exception"], AssertionError)

    run(scenario())
