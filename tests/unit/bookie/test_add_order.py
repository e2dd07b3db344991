# SPDX-License-Identifier: Apache-2.0
"""Cache before journal: whatever is acknowledged can be read at once, and what the journal refuses is refused."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from magnetar.bookie.journal import Journal
from magnetar.bookie.write_cache import WriteCache
from magnetar.runtime.simulated_disk import SimulatedDisk
from tests.unit.bookie.benches import KEY, OK, Answers, Failures, add_all, bench, opened, packed, run


@contextmanager
def steps() -> Iterator[list[tuple[str, int]]]:
    """Which entry was put where, in order."""
    seen: list[tuple[str, int]] = []

    def noted(name: str, entry_id: Callable[..., int], call: Any) -> Any:
        def noting(self: Any, *given: Any) -> Any:
            seen.append((name, entry_id(*given)))
            return call(self, *given)

        return noting

    cache = noted("cache", lambda ledger_id, entry_id, entry: entry_id, WriteCache.put)
    journal = noted("journal", lambda entry, entry_id, listener: entry_id, Journal.append_entry)
    with patch.object(WriteCache, "put", cache), patch.object(Journal, "append_entry", journal):
        yield seen


@pytest.mark.feature("F-BKS-11", "D-10")
def test_an_entry_is_in_the_cache_before_it_is_in_the_journal() -> None:
    async def scenario() -> None:
        async with bench(SimulatedDisk()) as storage:
            with steps() as seen:
                # The first add of a ledger is looked at with care, the others go the short way.
                await add_all(storage, 1, range(1))
                await add_all(storage, 1, range(1, 4))
            assert seen == [step for entry_id in range(4) for step in (("cache", entry_id), ("journal", entry_id))]

    run(scenario())


@pytest.mark.feature("F-BKS-11", "D-10")
def test_an_entry_is_readable_when_its_acknowledgement_is_told() -> None:
    async def scenario() -> None:
        async with bench(SimulatedDisk()) as storage:
            answers = await add_all(storage, 1, range(3))
            assert set(answers.codes.values()) == {OK}
            for entry_id in range(3):
                assert await storage.read(1, entry_id) == packed(1, entry_id)

    run(scenario())


@pytest.mark.feature("F-BKS-11")
def test_what_the_journal_cannot_make_durable_is_refused_though_it_is_in_the_cache() -> None:
    async def scenario() -> None:
        disk, failures = SimulatedDisk(), Failures()
        storage = await opened(disk, failures=failures)
        await add_all(storage, 1, range(1))
        disk.kernel.faults.sync_error_chance = 1.0
        answers = Answers()
        with steps() as seen:
            for entry_id in range(1, 4):
                storage.add(1, entry_id, packed(1, entry_id), KEY, answers)
            await answers.until(3)
        assert ("cache", 1) in seen
        assert OK not in answers.codes.values()
        assert len(failures) == 1
        await storage.close()

    run(scenario())
