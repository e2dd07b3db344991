# SPDX-License-Identifier: Apache-2.0
"""Several lives of one bookie, each with its own random work and end; a history that outlives them all is the judge."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest

from magnetar.bookie.ledger_questions import LedgerQuestions
from magnetar.bookie.storage import BookieStorage
from magnetar.config.bookie import BookieSettings
from magnetar.errors import NoSuchEntry, NoSuchLedger
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.runtime.simulated_faults import DiskCall, DiskFaults, Latency
from tests.unit.bookie.benches import KEY, OK, SMALL, code_of_add, opened, packed, run

FENCED = 104
LEDGERS = 8


class History:
    def __init__(self) -> None:
        self.sent: dict[tuple[int, int], bytes] = {}
        self.acked: dict[tuple[int, int], bytes] = {}
        self.next_entry: dict[int, int] = {}
        self.fenced: set[int] = set()
        self.deleted: set[int] = set()
        self.confirmed: dict[int, int] = {}

    def alive(self) -> list[tuple[int, int]]:
        return [key for key in self.acked if key[0] not in self.deleted]

    def questions(self) -> LedgerQuestions:
        async def existing() -> Iterable[int]:
            return [ledger_id for ledger_id in self.next_entry if ledger_id not in self.deleted]

        async def exists(ledger_id: int) -> bool:
            return ledger_id not in self.deleted

        return LedgerQuestions(existing, exists)


class Writer:
    """Of a ledger; one that comes after an answered fence must never be told OK."""

    def __init__(self, history: History, ledger_id: int, *, is_late: bool) -> None:
        self._history = history
        self._ledger_id = ledger_id
        self._is_late = is_late

    def on_added(self, bookie: str, first: int, last: int, code: int) -> None:
        if code == OK:
            assert not self._is_late, f"ledger {self._ledger_id} was fenced"
            for entry_id in range(first, last + 1):
                key = (self._ledger_id, entry_id)
                self._history.acked[key] = self._history.sent[key]


class Life:
    def __init__(self, storage: BookieStorage, history: History, random: Random) -> None:
        self._storage = storage
        self._history = history
        self._random = random

    async def live(self) -> None:
        others = [self._fence, self._checkpoint, self._confirm, self._collect, self._delete, self._read]
        deeds = [self._add] * 14 + others
        for _ in range(self._random.randrange(20, 80)):
            ledger_id = self._random.randrange(LEDGERS)
            if ledger_id not in self._history.deleted:
                await self._random.choice(deeds)(ledger_id)
        await self._storage.close()

    async def _add(self, ledger_id: int) -> None:
        history, random = self._history, self._random
        for _ in range(random.randrange(1, 12)):
            following = history.next_entry.get(ledger_id, 0)
            again = following > 0 and random.random() < 0.1
            entry_id = random.randrange(following) if again else following
            history.next_entry[ledger_id] = max(following, entry_id + 1)
            body = bytes([random.randrange(256)]) * random.randrange(300)
            entry = history.sent.setdefault((ledger_id, entry_id), packed(ledger_id, entry_id, body))
            recovery = ledger_id in history.fenced and random.random() < 0.5
            writer = Writer(history, ledger_id, is_late=ledger_id in history.fenced and not recovery)
            self._storage.add(ledger_id, entry_id, entry, KEY, writer, recovery)
        if random.random() < 0.7:
            await asyncio.sleep(0)

    async def _fence(self, ledger_id: int) -> None:
        self._history.next_entry.setdefault(ledger_id, 0)
        await self._storage.fence(ledger_id, KEY)
        self._history.fenced.add(ledger_id)

    async def _checkpoint(self, ledger_id: int) -> None:
        await self._storage.checkpoint()

    async def _confirm(self, ledger_id: int) -> None:
        number = self._random.randrange(100)
        self._history.next_entry.setdefault(ledger_id, 0)
        await self._storage.write_last_confirmed(ledger_id, number, b"body", KEY)
        self._history.confirmed[ledger_id] = max(number, self._history.confirmed.get(ledger_id, -1))

    async def _collect(self, ledger_id: int) -> None:
        await self._storage.housekeeping.collect(major=self._random.random() < 0.5)

    async def _delete(self, ledger_id: int) -> None:
        if self._random.random() < 0.3:
            self._history.deleted.add(ledger_id)

    async def _read(self, ledger_id: int) -> None:
        alive = self._history.alive()
        if alive:
            key = self._random.choice(alive)
            assert await self._storage.read(*key) == self._history.acked[key]


def drawn_settings(random: Random) -> BookieSettings:
    return replace(
        SMALL,
        write_cache_bytes_max=random.choice([2_000, 8_000, 40_000]),
        journal_file_bytes_max=random.choice([500, 3_000, 20_000]),
        journal_preallocate_bytes=random.choice([0, 512, 4_096]),
        journal_backups_max=random.choice([0, 2]),
        journal_seal_delay_ms=random.choice([1, 1_000]),
        journal_queue_bytes_max=random.choice([800, 100_000]),
        held_adds_bytes_max=random.choice([500, 100_000]),
        entry_log_bytes_max=random.choice([600, 3_000, 20_000]),
        read_cache_bytes_max=random.choice([0, 5_000]),
        idle_ledgers_max=random.choice([1, 100]),
        flush_interval_ms=random.choice([1, 60_000]),
        journal_directories=("j0", "j1")[: random.choice([1, 2])],
        ledger_directories=("l0", "l1", "l2")[: random.choice([1, 2, 3])],
        compaction_bytes_per_second_max=1 << 40,
        scrub_bytes_per_second_max=0,
    )


async def _one_life(disk: SimulatedDisk, settings: BookieSettings, history: History, random: Random) -> None:
    crashed = asyncio.Event()
    target = disk.kernel.calls + random.randrange(20, 600)

    def on_call(call: DiskCall) -> None:
        if call.number == target:
            if random.random() < 0.4:
                disk.kernel.kill()
            else:
                disk.kernel.lose_power()
            crashed.set()

    async def work() -> None:
        storage = await opened(disk, settings, questions=history.questions())
        assert storage.damage == ()
        await Life(storage, history, random).live()

    disk.kernel.faults.on_call = on_call
    living = asyncio.ensure_future(work())
    crash = asyncio.ensure_future(crashed.wait())
    await asyncio.wait((living, crash), return_when=asyncio.FIRST_COMPLETED)
    crash.cancel()
    if not crashed.is_set():
        living.result()
    living.cancel()
    with suppress(asyncio.CancelledError, OSError):
        await asyncio.wait((living,), timeout=0)


async def _judge(disk: SimulatedDisk, settings: BookieSettings, history: History) -> None:
    storage = await opened(disk, settings)
    assert storage.damage == ()
    for (ledger_id, entry_id), sent in history.sent.items():
        if ledger_id in history.deleted:
            continue
        try:
            assert await storage.read(ledger_id, entry_id) == sent
        except (NoSuchEntry, NoSuchLedger):
            assert (ledger_id, entry_id) not in history.acked, f"acknowledged {ledger_id}:{entry_id} is gone"
    for ledger_id in sorted(history.fenced - history.deleted):
        assert await code_of_add(storage, packed(ledger_id, 5_000)) == FENCED
    for ledger_id, number in history.confirmed.items():
        if ledger_id not in history.deleted:
            assert (await storage.last_confirmed(ledger_id))[0] >= number
    assert await storage.housekeeping.check_consistency() == []
    await storage.close()


@pytest.mark.parametrize("seed", range(24))
def test_no_life_loses_what_an_earlier_one_promised(seed: int) -> None:
    random = Random(seed)
    settings = drawn_settings(random)
    faults = DiskFaults(short_write_chance=random.choice([0.0, 0.05]))
    if seed % 8 == 0:
        faults.sync_latency, faults.write_latency = Latency(0.05, 0.2), Latency(0.0, 0.05)
        faults.read_latency, faults.name_latency = Latency(0.0, 0.05), Latency(0.0, 0.02)
    disk = SimulatedDisk(Random(seed + 1), faults=faults)
    history = History()
    for _ in range(random.randrange(1, 5)):
        run(_one_life(disk, settings, history, random))
        disk.kernel.faults.on_call = None
        disk.kernel.kill()
    run(_judge(disk, settings, history))
