# SPDX-License-Identifier: Apache-2.0
"""A bookie starts with its own directories, all of them, or not at all."""

from dataclasses import replace

import pytest

from magnetar.bookie.cookie_check import Cookies, unstamped
from magnetar.errors import BadCookie, EntryUnknown
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.wire.bookkeeper.cookie import Cookie, decode
from tests.unit.bookie.benches import add_all, bench, opened, run

MINE = Cookie("b1:3181", ("journal",), ("ledgers",), "cluster-1")
OTHER = replace(MINE, bookie_id="b2:3181")


@pytest.mark.parametrize(
    ("registered", "found", "stamped"),
    [
        (None, {"j": None, "l": None}, ["j", "l"]),
        (MINE, {"j": MINE, "l": MINE}, []),
        (None, {"j": MINE, "l": None}, ["l"]),
        (None, {"j": MINE, "l": MINE}, []),
    ],
    ids=["new", "known", "first start cut short", "stamped, not yet registered"],
)
def test_starts_that_are_fine(registered: Cookie | None, found: dict[str, Cookie | None], stamped: list[str]) -> None:
    assert unstamped(Cookies(MINE, registered), found) == stamped


@pytest.mark.parametrize(
    ("registered", "found", "named"),
    [
        (MINE, {"j": None, "l": None}, "j, l carries no cookie"),
        (MINE, {"j": MINE, "l": None}, "l carries no cookie"),
        (MINE, {"j": MINE, "l": OTHER}, "l belongs to b2:3181"),
        (None, {"j": OTHER, "l": None}, "j belongs to b2:3181"),
        (OTHER, {"j": MINE, "l": MINE}, "registered as b2:3181"),
        (replace(MINE, instance_id="cluster-2"), {"j": MINE, "l": MINE}, "cluster-2"),
        (replace(MINE, ledger_directories=("a", "b")), {"j": MINE, "l": MINE}, "a, b"),
    ],
    ids=["wiped", "one lost", "foreign", "foreign, new", "another bookie", "another cluster", "other directories"],
)
def test_starts_that_are_refused(registered: Cookie | None, found: dict[str, Cookie | None], named: str) -> None:
    with pytest.raises(BadCookie, match=named):
        unstamped(Cookies(MINE, registered), found)


def test_disks_that_were_rolled_back_are_found_out() -> None:
    """F25: valid cookie, valid checksums, an hour old."""

    async def start(disk: SimulatedDisk, boots: int, entries: range) -> tuple[int, tuple[str, ...]]:
        async with bench(disk, cookies=Cookies(MINE, MINE if boots else None, boots)) as storage:
            if entries:
                await add_all(storage, 1, entries)
            return storage.boots, storage.damage

    async def after(disk: SimulatedDisk) -> None:
        async with bench(disk, cookies=Cookies(MINE, MINE, 4)) as storage:
            assert storage.damage == ()
            with pytest.raises(EntryUnknown):
                await storage.read(1, 6)

    disk = SimulatedDisk()
    assert run(start(disk, 0, range(5))) == (1, ())
    assert run(start(disk, 1, range(0))) == (2, ())
    image = disk.kernel.image()
    assert run(start(disk, 2, range(5, 9))) == (3, ())
    disk.kernel.restore(image)
    boots, damage = run(start(disk, 3, range(0)))
    assert "rolled back" in damage[0]
    assert boots == 4
    run(after(disk))


@pytest.mark.feature("F-BKS-29")
def test_a_bookie_whose_disks_were_wiped_does_not_start_under_its_old_id() -> None:
    async def scenario(disk: SimulatedDisk) -> None:
        async with bench(disk, cookies=Cookies(MINE, None)) as storage:
            await add_all(storage, 1, range(3))
        assert decode(await disk.read_file("ledgers/current/VERSION", bytes_max=1000)) == MINE
        async with bench(disk, cookies=Cookies(MINE, MINE)):
            pass
        await disk.remove_directory("ledgers")
        with pytest.raises(BadCookie):
            await opened(disk, cookies=Cookies(MINE, MINE))
        with pytest.raises(BadCookie):
            await opened(disk, cookies=Cookies(OTHER, None))

    run(scenario(SimulatedDisk()))
