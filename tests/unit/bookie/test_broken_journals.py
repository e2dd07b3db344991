# SPDX-License-Identifier: Apache-2.0
"""A journal that cannot be read or begun: the bookie does not start, or does not go on, and never as if it could."""

import asyncio
import errno
from collections.abc import Callable
from dataclasses import replace

import pytest
from google_crc32c import value

from magnetar.bookie.journal_format import FILE_HEADER_BYTES
from magnetar.errors import NewerFormat, StorageFailed
from magnetar.metadata.memory import MemoryStore, MemoryTree
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.runtime.simulated_faults import Call, DiskCall
from magnetar.wire.bookkeeper.codes import ReturnCode
from magnetar.wire.bookkeeper.registry import AVAILABLE, READONLY
from tests.unit.bookie.benches import (
    BOOKIE,
    KEY,
    OK,
    ROOMY,
    Answers,
    Failures,
    FixedClock,
    add_all,
    bench,
    opened,
    packed,
    run,
)
from tests.unit.bookie.ports import bookie_on_a_port

Strike = Callable[[SimulatedDisk], None]


def failing(call: Call, number: int) -> Strike:
    """Every such call on a journal's file fails."""

    def on_call(made: DiskCall) -> None:
        if made.call is call and made.path.endswith(".txn"):
            raise OSError(number, "planted", made.path)

    def strike(disk: SimulatedDisk) -> None:
        disk.kernel.faults.on_call = on_call

    return strike


def from_the_future(disk: SimulatedDisk) -> None:
    """Headers of a later version, with their checksums."""
    for path, pages in disk.kernel.names.files():
        if path.endswith(".txn"):
            fields = bytes(pages.visible[:8]) + b"\x00\x63" + bytes(pages.visible[10 : FILE_HEADER_BYTES - 4])
            pages.damage(0, fields + value(fields).to_bytes(4, "big"))


@pytest.mark.parametrize(
    ("strike", "error"),
    [
        (failing(Call.READ, errno.EIO), OSError),
        (failing(Call.NAME, errno.EMFILE), OSError),
        (failing(Call.WRITE, errno.EIO), StorageFailed),
        (failing(Call.SYNC, errno.EIO), StorageFailed),
        (from_the_future, NewerFormat),
    ],
    ids=["unreadable", "no descriptor", "unwritable", "not synced", "newer"],
)
def test_a_bookie_with_a_broken_journal_does_not_start_and_is_never_listed(
    strike: Strike, error: type[Exception]
) -> None:
    """F39, F209: whatever is wrong with it, nobody is told to come here; nothing is lost by trying."""
    disk, tree = SimulatedDisk(), MemoryTree(FixedClock())

    async def first_life() -> None:
        async with bookie_on_a_port(disk, store=MemoryStore(tree), bookie_id=BOOKIE) as bookie:
            await add_all(bookie.storage, 1, range(3))

    async def refused() -> None:
        watching = MemoryStore(tree)
        seen: list[str] = []
        for listing in (AVAILABLE, READONLY):
            watching.watch(listing, lambda change: seen.append(str(change)))
        with pytest.raises(error):
            async with bookie_on_a_port(disk, store=MemoryStore(tree), bookie_id=BOOKIE):
                pass
        assert seen == []

    async def repaired() -> None:
        watching = MemoryStore(tree)
        seen: list[str] = []
        watching.watch(AVAILABLE, lambda change: seen.append(str(change)))
        async with bookie_on_a_port(disk, store=MemoryStore(tree), bookie_id=BOOKIE) as bookie:
            assert bookie.storage.damage == ()
            assert await bookie.storage.read(1, 2) == packed(1, 2)
        assert seen, "a listing is seen"

    run(first_life())
    before = disk.kernel.image()
    strike(disk)
    run(refused())
    disk.kernel.faults.on_call = None
    if strike is from_the_future:
        disk.kernel.restore(before)
    run(repaired())


def test_a_journal_that_cannot_be_continued_ends_the_bookie_and_nobody_is_acknowledged() -> None:
    """F209: no descriptor for the next file of a journal that is full."""
    disk, failures = SimulatedDisk(), Failures()
    taken: list[int] = []

    async def first_life() -> None:
        storage = await opened(disk, replace(ROOMY, journal_file_bytes_max=2_000), failures=failures)
        await add_all(storage, 1, range(3))
        failing(Call.NAME, errno.EMFILE)(disk)
        answers = Answers()
        for entry_id in range(3, 60):
            storage.add(1, entry_id, packed(1, entry_id), KEY, answers)
            if entry_id % 5 == 0:
                # What comes in one turn is one piece, and a piece is in one file.
                await asyncio.sleep(0)
        await answers.until(57)
        taken.extend(entry_id for entry_id, code in answers.codes.items() if code == OK)
        assert set(answers.codes.values()) == {OK, ReturnCode.IO_ERROR}
        with pytest.raises(StorageFailed):
            await storage.read(1, 0)
        with pytest.raises(StorageFailed):
            await storage.fence(1, KEY)

    async def next_life() -> None:
        async with bench(disk, ROOMY) as storage:
            assert [await storage.read(1, entry_id) for entry_id in taken] == [packed(1, each) for each in taken]

    run(first_life())
    (failure,) = failures
    assert "planted" in str(failure)
    assert taken, "what was in the file that is full"
    disk.kernel.faults.on_call = None
    disk.kernel.lose_power()
    run(next_life())
