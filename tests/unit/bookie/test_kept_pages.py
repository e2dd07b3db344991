# SPDX-License-Identifier: Apache-2.0
"""What stays in the kernel's memory of the entry logs: the newest, within a bound."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.bookie.entry_log import EntryLogs
from magnetar.bookie.entry_log_format import HEADER_BYTES, RECORD_OVERHEAD_BYTES
from magnetar.bookie.kept_pages import KeptPages, Stretch
from magnetar.config.bookie import BookieSettings
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.runtime.simulated_file import SimulatedFile
from tests.unit.bookie.benches import SMALL, packed, run

ENTRIES = [packed(1, entry_id) for entry_id in range(60)]
RECORD_BYTES = len(ENTRIES[0]) + RECORD_OVERHEAD_BYTES


@given(st.lists(st.tuples(st.integers(1, 40), st.booleans()), max_size=30), st.integers(1, 100))
def test_the_newest_stay_and_everything_older_is_given_up_once_and_in_order(
    writes: list[tuple[int, bool]], bytes_max: int
) -> None:
    kept = KeptPages(bytes_max)
    log_id = end = 0
    written: list[tuple[int, int]] = []
    given_up: list[tuple[int, int]] = []
    for size, is_next_log in writes:
        if is_next_log:
            log_id, end = log_id + 1, 0
        kept.note(log_id, end, end + size)
        written += [(log_id, offset) for offset in range(end, end + size)]
        end += size
        for stretch in kept.take_surplus():
            given_up += [(stretch.log_id, offset) for offset in range(stretch.begin, stretch.end)]
        assert given_up == written[: max(0, len(written) - bytes_max)]
        assert kept.bytes_held == len(written) - len(given_up)


def test_what_follows_in_one_log_is_one_stretch() -> None:
    kept = KeptPages(10)
    for begin in range(0, 30, 5):
        kept.note(7, begin, begin + 5)
    assert kept.take_surplus() == [Stretch(7, 0, 20)]
    assert kept.take_surplus() == []


def test_without_a_bound_nothing_is_noted() -> None:
    kept = KeptPages(0)
    kept.note(1, 0, 1 << 40)
    assert kept.take_surplus() == []
    assert kept.bytes_held == 0


def let_go_by(settings: BookieSettings, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """Write all entries out; which file was let go of, from where to where."""
    let_go: list[tuple[str, int, int]] = []

    async def noted(self: SimulatedFile, offset: int, length: int) -> None:
        let_go.append((self.path, offset, offset + length))

    monkeypatch.setattr(SimulatedFile, "let_go", noted)

    async def scenario() -> None:
        disk = SimulatedDisk()
        await disk.make_directory("d")
        logs = await EntryLogs.open(disk, "d", settings)
        writer = logs.writer()
        await writer.append([ENTRIES], bytearray())
        await writer.finish()
        await logs.close()

    run(scenario())
    return let_go


@pytest.mark.feature("F-BKS-18")
def test_a_flush_lets_go_of_what_is_older_than_the_bound_and_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = replace(
        SMALL, entry_log_bytes_max=1 << 20, entry_log_unsynced_bytes_max=1, entry_log_kept_bytes_max=10 * RECORD_BYTES
    )
    let_go = let_go_by(settings, monkeypatch)
    assert {path for path, _, _ in let_go} == {"d/0.log"}
    ends = [end for _, _, end in let_go]
    assert [begin for _, begin, _ in let_go] == [HEADER_BYTES, *ends[:-1]]
    assert ends[-1] == HEADER_BYTES + (len(ENTRIES) - 10) * RECORD_BYTES


def test_what_was_written_to_a_log_that_is_full_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    # Logs that are full before a step is.
    settings = replace(SMALL, entry_log_bytes_max=HEADER_BYTES + 7 * RECORD_BYTES, entry_log_kept_bytes_max=1)
    let_go = let_go_by(settings, monkeypatch)
    assert all(HEADER_BYTES <= begin < end for _, begin, end in let_go)
    assert sum(end - begin for _, begin, end in let_go) == len(ENTRIES) * RECORD_BYTES - 1
    assert len({path for path, _, _ in let_go}) == -(-len(ENTRIES) // 7)


def test_letting_go_of_a_log_that_is_gone_is_nobodys_trouble() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        await disk.make_directory("d")
        logs = await EntryLogs.open(disk, "d", SMALL)
        await logs.let_go(Stretch(99, 0, 100))
        await logs.close()

    run(scenario())
