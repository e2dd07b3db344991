# SPDX-License-Identifier: Apache-2.0
"""The process is killed, or the power is lost, at every single disk call: what was answered stays, byte for byte."""

import asyncio
from dataclasses import replace
from random import Random

import pytest

from magnetar.config.bookie import BookieSettings
from magnetar.errors import EntryUnknown, MagnetarError, NoSuchEntry, NoSuchLedger
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.runtime.simulated_faults import DiskCall
from tests.unit.bookie.benches import KEY, OK, SMALL, code_of_add, opened, packed, run

FENCED = 104
LEDGERS = (1, 2, 7)
ROUNDS = 6

TWO_OF_EACH = replace(SMALL, journal_directories=("j0", "j1"), ledger_directories=("l0", "l1"))


class History:
    """What a client saw: it survives the processes."""

    def __init__(self) -> None:
        self.sent: dict[tuple[int, int], bytes] = {}
        self.acked: dict[tuple[int, int], bytes] = {}
        self.fenced: list[int] = []

    def listener(self, ledger_id: int) -> "Writer":
        return Writer(self, ledger_id)


class Writer:
    def __init__(self, history: History, ledger_id: int) -> None:
        self._history = history
        self._ledger_id = ledger_id
        self.told = asyncio.Event()

    def on_added(self, bookie: str, first: int, last: int, code: int) -> None:
        for entry_id in range(first, last + 1):
            if code == OK:
                key = (self._ledger_id, entry_id)
                self._history.acked[key] = self._history.sent[key]
        self.told.set()


async def _work(disk: SimulatedDisk, settings: BookieSettings, history: History) -> None:
    """Adds to three ledgers, more than the caches hold, a fence in the middle, a checkpoint, a clean end."""
    storage = await opened(disk, settings)
    writers = {ledger_id: history.listener(ledger_id) for ledger_id in LEDGERS}
    for turn in range(ROUNDS):
        for ledger_id in LEDGERS:
            for entry_id in range(turn * 4, turn * 4 + 4):
                entry = packed(ledger_id, entry_id, bytes([65 + entry_id % 26]) * (60 + 37 * (entry_id % 5)))
                history.sent[ledger_id, entry_id] = entry
                storage.add(ledger_id, entry_id, entry, KEY, writers[ledger_id])
        for writer in writers.values():
            await writer.told.wait()
            writer.told.clear()
        if turn == 2:
            await storage.fence(7, KEY)
            history.fenced.append(7)
        if turn == 4:
            await storage.checkpoint()
    await storage.close()


async def _until_crash(disk: SimulatedDisk, settings: BookieSettings, history: History, crashed: asyncio.Event) -> bool:
    """True when the work came to its end."""
    work = asyncio.ensure_future(_work(disk, settings, history))
    crash = asyncio.ensure_future(crashed.wait())
    await asyncio.wait((work, crash), return_when=asyncio.FIRST_COMPLETED)
    crash.cancel()
    if work.done() and not crashed.is_set():
        work.result()
        return True
    work.cancel()
    await asyncio.wait((work,), timeout=0)
    return False


async def _verify(disk: SimulatedDisk, settings: BookieSettings, history: History) -> None:
    storage = await opened(disk, settings)
    assert storage.damage == (), "a crash alone is never taken for damage"
    for (ledger_id, entry_id), sent in history.sent.items():
        try:
            found = await storage.read(ledger_id, entry_id)
        except (NoSuchEntry, NoSuchLedger):
            assert (ledger_id, entry_id) not in history.acked, f"acknowledged {ledger_id}:{entry_id} is gone"
        else:
            assert found == sent
    for ledger_id in history.fenced:
        assert await code_of_add(storage, packed(ledger_id, 999)) == FENCED
    await storage.close()


def _crash_at(disk: SimulatedDisk, number: int, how: str, crashed: asyncio.Event) -> None:
    def on_call(call: DiskCall) -> None:
        if call.number == number:
            if how == "kill":
                disk.kernel.kill()
            else:
                disk.kernel.lose_power()
            crashed.set()

    disk.kernel.faults.on_call = on_call


def _one_life(disk: SimulatedDisk, settings: BookieSettings, history: History, number: int, how: str) -> bool:
    async def life() -> bool:
        crashed = asyncio.Event()
        _crash_at(disk, number, how, crashed)
        return await _until_crash(disk, settings, history, crashed)

    finished: bool = run(life())
    disk.kernel.faults.on_call = None
    if not finished:
        disk.kernel.kill()
    return finished


@pytest.mark.feature("F-BKS-03", "F-BKS-17", "F-BKS-16")
@pytest.mark.parametrize("how", ["kill", "lose-power"])
@pytest.mark.parametrize("settings", [SMALL, TWO_OF_EACH], ids=["one-directory", "two-of-each"])
def test_what_was_answered_survives_a_crash_at_every_disk_call(how: str, settings: BookieSettings) -> None:
    number = 0
    while True:
        disk = SimulatedDisk(Random(number))
        history = History()
        finished = _one_life(disk, settings, history, number, how)
        run(_verify(disk, settings, history))
        if finished:
            break
        number += 1
    assert number > 100


@pytest.mark.parametrize("seed", range(25))
def test_what_was_answered_survives_crash_after_crash_while_it_starts(seed: int) -> None:
    """Replay is repeated by every start; dying in the middle of it, several times, changes nothing."""
    random = Random(seed)
    disk = SimulatedDisk(Random(seed))
    history = History()
    _one_life(disk, SMALL, history, random.randrange(60, 200), "lose-power")
    for _ in range(5):

        async def start_and_die() -> None:
            crashed = asyncio.Event()
            _crash_at(disk, disk.kernel.calls + random.randrange(1, 40), random.choice(["kill", "lose-power"]), crashed)
            start = asyncio.ensure_future(opened(disk, SMALL))
            crash = asyncio.ensure_future(crashed.wait())
            await asyncio.wait((start, crash), return_when=asyncio.FIRST_COMPLETED)
            crash.cancel()
            start.cancel()
            await asyncio.wait((start,), timeout=0)

        run(start_and_die())
        disk.kernel.faults.on_call = None
        disk.kernel.kill()
    run(_verify(disk, SMALL, history))


@pytest.mark.feature("F-BKS-03")
@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_answered_that_a_power_loss_at_that_moment_would_lose(seed: int) -> None:
    """At the very moment of each answer the machine dies: the disk's random decides what unsynced bytes remain."""

    async def life(disk: SimulatedDisk, history: History) -> None:
        storage = await opened(disk)
        told = asyncio.Event()

        class DiesWhenTold(Writer):
            def on_added(self, bookie: str, first: int, last: int, code: int) -> None:
                super().on_added(bookie, first, last, code)
                disk.kernel.lose_power()
                told.set()

        writer = DiesWhenTold(history, 1)
        for entry_id in range(10 + seed):
            entry = history.sent[1, entry_id] = packed(1, entry_id, bytes(50 * seed))
            storage.add(1, entry_id, entry, KEY, writer)
        await told.wait()

    disk = SimulatedDisk(Random(seed))
    history = History()
    run(life(disk, history))
    disk.kernel.kill()
    assert history.acked
    run(_verify(disk, SMALL, history))


@pytest.mark.parametrize("number", range(0, 160))
def test_an_io_error_at_any_call_never_answers_ok_for_what_is_not_durable(number: int) -> None:
    """EIO once, then everything works again: the role ends or goes on, but nothing acknowledged is missing."""
    disk = SimulatedDisk(Random(number))
    history = History()

    def on_call(call: DiskCall) -> None:
        if call.number == number:
            raise OSError(5, "injected", call.path)

    async def life() -> None:
        disk.kernel.faults.on_call = on_call
        try:
            async with asyncio.timeout(5):
                await _work(disk, SMALL, history)
        except (OSError, MagnetarError, TimeoutError):
            pass

    run(life())
    disk.kernel.faults.on_call = None
    disk.kernel.lose_power()
    try:
        run(_verify(disk, SMALL, history))
    except EntryUnknown:
        pytest.fail("a transient error left an entry unreadable")
