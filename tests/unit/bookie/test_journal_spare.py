# SPDX-License-Identifier: Apache-2.0
"""Files that a journal writes over: made ahead, taken over from old journals, and never mistaken for what they held."""

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from magnetar.bookie.counts import BookieCounts
from magnetar.bookie.journal import Journal
from magnetar.bookie.journal_format import FILE_HEADER_BYTES, FileHeader, JournalRecord, RecordKind
from magnetar.bookie.journal_replay import JournalReplay
from magnetar.bookie.journal_spare import JournalSpare
from magnetar.config.bookie import BookieSettings
from magnetar.runtime.disk import PAGE_BYTES
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.runtime.simulated_faults import Call, DiskCall
from tests.unit.bookie.benches import BOOKIE, SMALL, Answers, packed, run, turns_until

SPARE_BYTES = 8_192
SETTINGS = replace(SMALL, journal_file_bytes_max=16_384, journal_spare_bytes=SPARE_BYTES)
DIRECTORY = "journal"


def failed(*given: object) -> None:
    raise AssertionError(given)


async def in_directory(capacity_bytes: int = 1 << 40) -> SimulatedDisk:
    disk = SimulatedDisk(capacity_bytes=capacity_bytes)
    await disk.make_directory(DIRECTORY)
    return disk


def spare_of(disk: SimulatedDisk, settings: BookieSettings = SETTINGS) -> JournalSpare:
    return JournalSpare(disk, DIRECTORY, settings, position=lambda: 0, on_crash=failed)


@asynccontextmanager
async def journal_on(disk: SimulatedDisk, settings: BookieSettings = SETTINGS) -> AsyncIterator[Journal]:
    first = FileHeader(1, 0, session_start=True)
    journal = await Journal.open(
        disk, DIRECTORY, BOOKIE, first, settings, BookieCounts(), on_pressure=failed, on_failed=failed
    )
    try:
        yield journal
    finally:
        await journal.close()


async def write(journal: Journal, entry_ids: range, body: bytes = bytes(200)) -> None:
    """One entry after the other, each durable before the next."""
    answers = Answers()
    for count, entry_id in enumerate(entry_ids, 1):
        journal.append_entry(packed(1, entry_id, body), entry_id, answers)
        await answers.until(count)


async def until_file(journal: Journal, file_id: int) -> int:
    """Write until the journal is in this file; returns the number of entries."""
    written = 0
    while journal.place().file_id < file_id:
        await write(journal, range(written, written + 1))
        written += 1
    return written


async def replayed(disk: SimulatedDisk) -> list[JournalRecord]:
    replay = JournalReplay(disk, DIRECTORY, None, payload_bytes_max=1 << 20)
    found = [record async for record in replay.records() if record.kind == RecordKind.ENTRY]
    assert replay.damage == []
    return found


# --- the spare ------------------------------------------------------------------------------------


def test_a_spare_is_durable_zeros() -> None:
    async def scenario() -> None:
        disk = await in_directory()
        spare = spare_of(disk)
        assert spare.take() is None
        spare.prepare()
        spare.prepare()
        await turns_until(lambda: spare.is_ready)
        path = spare.take()
        assert path is not None
        assert bytes(disk.kernel.names.file(path).durable) == bytes(SPARE_BYTES)
        assert (spare.is_ready, spare.take()) == (False, None)
        await spare.close()

    run(scenario())


def test_the_next_spare_has_another_name() -> None:
    async def scenario() -> None:
        disk = await in_directory()
        spare = spare_of(disk)
        taken = []
        for _ in range(3):
            spare.prepare()
            await turns_until(lambda: spare.is_ready)
            taken.append(spare.take())
        assert len({*taken}) == 3
        await spare.close()

    run(scenario())


def test_a_spare_is_not_filled_while_the_journal_writes_faster() -> None:
    async def scenario() -> None:
        disk = await in_directory()
        positions = iter(range(0, 100 * SPARE_BYTES, SPARE_BYTES + 1))
        rests = 0

        def position() -> int:
            nonlocal rests
            found = next(positions, None)
            rests += found is None
            return found or 0

        spare = JournalSpare(disk, DIRECTORY, SETTINGS, position=position, on_crash=failed)
        spare.prepare()
        await turns_until(lambda: spare.is_ready)
        assert rests > 0, "it was ready before the journal came to rest"
        await spare.close()

    run(scenario())


@pytest.mark.parametrize(("size", "is_taken"), [(SPARE_BYTES, True), (SPARE_BYTES - 1, False)])
def test_an_old_file_becomes_the_spare_when_it_is_large_enough(size: int, is_taken: bool) -> None:
    async def scenario() -> None:
        disk = await in_directory()
        await disk.replace_file(f"{DIRECTORY}/1.txn", bytes(size))
        spare = spare_of(disk)
        assert await spare.offer(f"{DIRECTORY}/1.txn") is is_taken
        assert spare.is_ready is is_taken
        assert ("1.txn" in await disk.list(DIRECTORY)) is not is_taken
        await disk.replace_file(f"{DIRECTORY}/2.txn", bytes(size))
        assert await spare.offer(f"{DIRECTORY}/2.txn") is False
        await spare.close()

    run(scenario())


@pytest.mark.parametrize(
    ("settings", "capacity_bytes"),
    [
        (replace(SETTINGS, journal_spare_bytes=0), 1 << 40),
        (replace(SETTINGS, journal_sync=False), 1 << 40),
        (SETTINGS, SPARE_BYTES * 15),
    ],
    ids=["switched off", "nothing is synced", "hardly any room"],
)
def test_nothing_is_kept_where_it_serves_nobody(settings: BookieSettings, capacity_bytes: int) -> None:
    async def scenario() -> None:
        disk = await in_directory(capacity_bytes)
        await disk.replace_file(f"{DIRECTORY}/1.txn", bytes(SPARE_BYTES))
        spare = spare_of(disk, settings)
        spare.prepare()
        assert await spare.offer(f"{DIRECTORY}/1.txn") is False
        await spare.close()
        assert await disk.list(DIRECTORY) == ["1.txn"]

    run(scenario())


def test_a_disk_that_refuses_leaves_the_journal_without_a_spare(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        disk = await in_directory()
        refused: list[DiskCall] = []

        def refuse(call: DiskCall) -> None:
            if call.call is Call.SYNC and call.path.endswith(".spare"):
                refused.append(call)
                raise OSError(errno.EIO, "no")

        disk.kernel.faults.on_call = refuse
        async with journal_on(disk) as journal:
            written = await until_file(journal, 2)
            await write(journal, range(written, written + 1))
            assert refused
            assert await disk.file_size(f"{DIRECTORY}/1.txn") >= SPARE_BYTES
            assert "2.txn" in await disk.list(DIRECTORY)

    run(scenario())
    assert "the journal does without" in caplog.text


# --- the journal in it ----------------------------------------------------------------------------


@pytest.mark.feature("F-BKS-04")
def test_a_journal_goes_on_in_its_spare_before_its_file_is_full() -> None:
    async def scenario() -> None:
        disk = await in_directory()
        async with journal_on(disk) as journal:
            written = 0
            while journal.place().file_id < 2:
                await write(journal, range(written, written + 1))
                written += 1
                # Zeros are written at their own pace, however fast this is.
                await turns_until(lambda: not journal._spare._is_filling)
            assert journal.place().position < SPARE_BYTES
            await write(journal, range(written, written + 3))
            assert await disk.file_size(f"{DIRECTORY}/2.txn") == SPARE_BYTES
        assert await disk.list(DIRECTORY) == ["1.txn", "2.txn"]
        assert [record.payload for record in await replayed(disk)] == [
            packed(1, i, bytes(200)) for i in range(written + 3)
        ]

    run(scenario())


@pytest.mark.feature("F-BKS-04")
def test_under_a_load_that_leaves_no_time_for_zeros_old_journals_are_the_spares() -> None:
    async def scenario() -> None:
        disk = await in_directory()
        zeroed: list[DiskCall] = []

        def see(call: DiskCall) -> None:
            if call.call is Call.WRITE and call.path.endswith(".spare"):
                zeroed.append(call)

        disk.kernel.faults.on_call = see
        # A byte a second, and only while the journal is at rest.
        async with journal_on(disk, replace(SETTINGS, journal_spare_bytes_per_second_max=1)) as journal:
            written = await until_file(journal, 2)
            assert journal.place().position >= SPARE_BYTES, "the first file was left for a spare"
            assert await journal.reclaim(2, backups_max=5) == [1]
            assert "1.txn" not in await disk.list(DIRECTORY)
            begun = len(zeroed)
            while journal.place().file_id < 3:
                await write(journal, range(written, written + 1))
                written += 1
            await write(journal, range(written, written + 1))
            assert await disk.file_size(f"{DIRECTORY}/3.txn") >= SPARE_BYTES, "the third is the first again"
            assert len(zeroed) == begun, "nobody writes zeros any more"
        found = [record.payload for record in await replayed(disk)]
        assert found[-1] == packed(1, written, bytes(200))

    run(scenario())


def test_leftovers_of_an_earlier_life_are_removed() -> None:
    async def scenario() -> None:
        disk = await in_directory()
        await disk.replace_file(f"{DIRECTORY}/7.spare", bytes(SPARE_BYTES))
        async with journal_on(disk, replace(SETTINGS, journal_spare_bytes=0)):
            assert await disk.list(DIRECTORY) == ["1.txn"]

    run(scenario())


@pytest.mark.parametrize("is_sudden", [False, True])
def test_what_an_old_journal_held_is_not_read_again(is_sudden: bool) -> None:
    """The worst place: new records end with a page, and exactly there an old one begins, whole and at its offset."""
    # Sixteen records of this size and the file's header are a page.
    old, new = bytes(193), b"n" * 193
    per_page = 16

    async def first_life(disk: SimulatedDisk) -> None:
        await disk.make_directory(DIRECTORY)
        settings = replace(SETTINGS, journal_spare_bytes=0, journal_file_bytes_max=SPARE_BYTES)
        async with journal_on(disk, settings) as journal:
            await write(journal, range(40), old)
            assert journal.place().file_id == 2

    async def second_life(disk: SimulatedDisk) -> None:
        first = FileHeader(9, 1 << 20, session_start=True)
        journal = await Journal.open(
            disk, DIRECTORY, BOOKIE, first, SETTINGS, BookieCounts(), on_pressure=failed, on_failed=failed
        )
        await journal.reclaim(9, 0)
        await write(journal, range(1), new)
        assert journal.place()[:2] == (10, FILE_HEADER_BYTES)
        await write(journal, range(1, 1 + per_page), new)
        assert journal.place()[:2] == (10, PAGE_BYTES)
        content = await disk.read_file(f"{DIRECTORY}/a.txn", bytes_max=1 << 20)
        assert packed(1, per_page, old) in content[PAGE_BYTES : PAGE_BYTES + 254]
        if not is_sudden:
            await journal.close()

    async def third_life(disk: SimulatedDisk) -> None:
        entries = [record.payload for record in await replayed(disk)]
        assert entries == [packed(1, entry_id, new) for entry_id in range(1 + per_page)]

    disk = SimulatedDisk()
    run(first_life(disk))
    run(second_life(disk))
    if is_sudden:
        disk.kernel.lose_power()
    run(third_life(disk))


def test_a_spare_whose_header_was_never_written_is_a_torn_tail() -> None:
    async def scenario() -> None:
        disk = await in_directory()
        async with journal_on(disk, replace(SETTINGS, journal_spare_bytes=0)) as journal:
            await write(journal, range(5))
        whole = await disk.read_file(f"{DIRECTORY}/1.txn", bytes_max=1 << 20)
        # An old journal under its next name, and nothing of its own written yet.
        await disk.replace_file(f"{DIRECTORY}/2.txn", whole + bytes(SPARE_BYTES))
        assert len(await replayed(disk)) == 5

    run(scenario())
