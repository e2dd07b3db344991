# SPDX-License-Identifier: Apache-2.0
"""Reads that memory answers: a few in each turn of the loop, and in slices between syncs while adds wait."""

import asyncio
from collections.abc import Callable

from magnetar.bookie.memory_reads import MemoryReads
from magnetar.errors import StorageFailed
from magnetar.wire.bookkeeper import v2
from magnetar.wire.bookkeeper.codes import PROTOCOL_VERSION
from tests.conftest import RunOnLoop
from tests.unit.bookie.benches import turns_until

ENTRY = bytes(4096)
# Entries of that size in a slice, and reads of any in a turn of the loop.
SLICE = 4
TURN = 32
TURN_BESIDE_ADDS = 8


class Adds:
    """Adds that wait for as long as the test says."""

    def __init__(self) -> None:
        self.waiting = False
        self.synced = 0
        self.callbacks: list[Callable[[], None]] = []

    def are_waiting(self) -> bool:
        return self.waiting

    def are_recent(self) -> bool:
        return self.waiting

    def syncs(self) -> int:
        return self.synced

    def call_after_sync(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    def sync(self) -> None:
        self.synced += 1
        callbacks, self.callbacks = self.callbacks, []
        for callback in callbacks:
            callback()


class Client:
    """A storage with entries 0 to 99 in memory, and a client that notes what becomes of its reads."""

    def __init__(
        self, *, held_max: int = 1_000, is_taking: bool = True, is_reading: bool = False, entry: bytes = ENTRY
    ) -> None:
        self._entry = entry
        self._is_reading = is_reading
        self.in_memory = 100
        self.adds = Adds()
        self.answered: list[int] = []
        self.others: list[int] = []
        self.counted: list[tuple[int, int]] = []
        self._is_taking = is_taking
        # What is under test does not know more of the storage than this.
        self.reads = MemoryReads(
            self,  # type: ignore[arg-type]
            held_max=held_max,
            answer=self._answer,
            otherwise=self._otherwise,
            count=lambda entries, size: self.counted.append((entries, size)),
        )

    def at_hand(self, ledger_id: int, entry_id: int) -> bytes | None:
        if ledger_id != 1:
            raise StorageFailed("the bookie is ending")
        return self._entry if entry_id < self.in_memory else None

    def _answer(self, request: v2.ReadRequest, entry: bytes) -> bool:
        if self._is_taking:
            self.answered.append(request.entry_id)
        return self._is_taking

    def _otherwise(self, request: v2.ReadRequest) -> bool:
        self.others.append(request.entry_id)
        return self._is_reading

    def ask(self, *entry_ids: int, ledger_id: int = 1) -> None:
        for entry_id in entry_ids:
            self.reads.ask(v2.ReadRequest(PROTOCOL_VERSION, 0, ledger_id, entry_id, None))


def test_while_no_add_waits_each_turn_of_the_loop_answers_some_in_order(loop_run: RunOnLoop) -> None:
    """Whoever asks for very many at once does not keep the loop from others."""

    async def scenario() -> None:
        client = Client()
        client.ask(*range(2 * TURN), *range(100, 100 + TURN), 99)
        assert client.answered == list(range(TURN))
        seen = []
        for _ in range(3):
            await asyncio.sleep(0)
            seen.append((len(client.answered), len(client.others)))
        # What memory does not have takes as long to hand on.
        assert seen == [(2 * TURN, 0), (2 * TURN, TURN), (2 * TURN + 1, TURN)]
        assert client.answered == [*range(2 * TURN), 99]
        client.ask(5)
        assert client.answered[-1] == 5, "a new turn begins with nothing used"

    loop_run(scenario())


def test_large_entries_are_few_in_a_turn(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        client = Client(entry=bytes(100 * 1024))
        client.ask(*range(7))
        assert client.answered == [0, 1, 2]
        await asyncio.sleep(0)
        assert client.answered == [0, 1, 2, 3, 4, 5]

    loop_run(scenario())


def test_turns_end_before_slices_do(loop_run: RunOnLoop) -> None:
    """Small entries beside adds: a slice has more of them than a turn takes, and goes on without a sync."""

    async def scenario() -> None:
        client = Client(entry=bytes(256))
        client.adds.waiting = True
        client.ask(*range(90))
        for turns in range(1, 9):
            assert len(client.answered) == turns * TURN_BESIDE_ADDS
            await asyncio.sleep(0)
        assert len(client.answered) == 16 * 1024 // 256
        assert client.counted == [(TURN_BESIDE_ADDS, TURN_BESIDE_ADDS * 256)] * 8
        client.adds.sync()
        await turns_until(lambda: len(client.answered) == 90)
        assert client.answered == list(range(90))

    loop_run(scenario())


def test_beside_adds_each_sync_lets_one_slice_pass_in_order(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        client = Client()
        client.adds.waiting = True
        client.ask(*range(SLICE * 2 + 2))
        assert client.answered == list(range(SLICE))
        client.adds.sync()
        assert client.answered == list(range(SLICE * 2))
        await asyncio.sleep(0)
        client.ask(99)
        assert client.answered == list(range(SLICE * 2)), "it waits behind those who came before"
        client.adds.waiting = False
        client.adds.sync()
        assert client.answered == [*range(SLICE * 2 + 2), 99]
        assert client.others == []

    loop_run(scenario())


def test_reads_that_come_with_each_sync_are_not_held(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        client = Client()
        client.adds.waiting = True
        for number in range(5):
            client.ask(*range(number * SLICE, (number + 1) * SLICE))
            client.adds.sync()
            await asyncio.sleep(0)
        assert client.answered == list(range(SLICE * 5))

    loop_run(scenario())


def test_a_sync_that_takes_long_holds_nobody_for_ever(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        client = Client()
        client.adds.waiting = True
        client.ask(*range(SLICE * 6))
        await turns_until(lambda: len(client.answered) == SLICE * 6)
        assert client.answered == list(range(SLICE * 6))
        assert len(client.adds.callbacks) == 1, "however often it went on by itself"

    loop_run(scenario())


def test_what_memory_does_not_have_or_the_client_does_not_take_is_read_otherwise(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        client = Client()
        client.ask(7, 100, 8)
        client.ask(9, ledger_id=2)
        assert (client.answered, client.others) == ([7, 8], [100, 9])
        slow = Client(is_taking=False)
        slow.ask(1, 2)
        assert slow.others == [1, 2]

    loop_run(scenario())


def test_so_many_are_held_and_no_more(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        client = Client(held_max=3)
        client.adds.waiting = True
        client.ask(*range(SLICE + 5))
        assert (len(client.answered), client.others) == (SLICE, [SLICE + 3, SLICE + 4])
        client.reads.close()
        client.adds.sync()
        await asyncio.sleep(0)
        assert len(client.answered) == SLICE, "whoever is gone is not answered"

    loop_run(scenario())


def test_those_behind_one_that_is_being_read_wait_for_what_comes_with_it(loop_run: RunOnLoop) -> None:
    """One read of the disk brings what many want: only the first is handed on, and others are not in its way."""

    async def scenario() -> None:
        client = Client(is_reading=True, entry=bytes(64))
        client.ask(99, *range(100, 150), 98)
        assert (client.answered, client.others) == ([99], [100])
        client.ask(200, ledger_id=2)
        client.ask(201, ledger_id=2)
        assert client.others == [100, 200]
        client.in_memory = 140
        client.reads.on_read(1)
        await turns_until(lambda: client.others == [100, 200, 140])
        assert client.answered == [99, *range(101, 140)], "in order, up to what did not come"
        client.in_memory = 150
        client.reads.on_read(1)
        await turns_until(lambda: len(client.answered) == 50)
        assert client.answered[-10:] == [*range(141, 150), 98]
        client.reads.on_read(1)
        assert client.others == [100, 200, 140], "nobody of this ledger waits any more"

    loop_run(scenario())


def test_those_behind_are_bounded_and_go_with_the_client(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        client = Client(is_reading=True, held_max=3)
        client.ask(*range(100, 106))
        assert client.others == [100, 104, 105]
        client.reads.on_read(1)
        assert client.others == [100, 104, 105, 101]
        client.reads.close()
        client.in_memory = 200
        client.reads.on_read(1)
        await asyncio.sleep(0)
        assert client.answered == []

    loop_run(scenario())


def test_beside_adds_those_behind_pass_in_slices_as_well(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        client = Client(is_reading=True)
        client.adds.waiting = True
        client.ask(*range(100, 101 + SLICE * 2))
        client.in_memory = 200
        client.reads.on_read(1)
        assert client.answered == list(range(101, 101 + SLICE))
        await asyncio.sleep(0)
        client.adds.sync()
        assert client.answered == list(range(101, 101 + SLICE * 2))

    loop_run(scenario())
