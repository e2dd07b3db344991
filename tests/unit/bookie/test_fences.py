# SPDX-License-Identifier: Apache-2.0
"""Fences and explicit confirmations: durable before they are answered, and for good."""

import asyncio
from dataclasses import replace
from random import Random

import pytest

from magnetar.errors import (
    BadCommand,
    NoSuchEntry,
    NoSuchLedger,
    StorageFailed,
    TooManyRequests,
    WrongMasterKey,
)
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.runtime.simulated_faults import Call, Latency
from tests.unit.bookie.benches import KEY, OK, SMALL, Answers, add_all, bench, code_of_add, opened, packed, run

BAD_REQUEST, UNAUTHORIZED, FENCED = 100, 102, 104


def test_a_fence_refuses_adds_but_not_recovery_adds() -> None:
    async def scenario() -> None:
        async with bench(SimulatedDisk()) as storage:
            await add_all(storage, 1, range(3))
            await storage.read(1, 2, fence_key=KEY)
            assert await code_of_add(storage, packed(1, 3)) == FENCED
            assert await code_of_add(storage, packed(1, 3), recovery=True) == OK
            assert await code_of_add(storage, packed(1, 4), key=b"wrong", recovery=True) == UNAUTHORIZED
            with pytest.raises(WrongMasterKey):
                await storage.fence(1, b"wrong")

    run(scenario())


def test_a_ledger_that_was_never_seen_can_be_fenced() -> None:
    """A bookie of the ensemble that got no entry must refuse the old writer all the same."""

    async def scenario() -> None:
        async with bench(SimulatedDisk()) as storage:
            assert await storage.last_confirmed(9, fence_key=KEY) == (-1, None)
            assert await code_of_add(storage, packed(9, 0)) == FENCED
            with pytest.raises(NoSuchEntry):
                await storage.read(9, 0)

    run(scenario())


def test_the_second_of_two_fences_waits_for_the_same_sync() -> None:
    """Issue F38: the second request finds the flag set in memory, and must not answer before it is durable."""

    async def scenario(disk: SimulatedDisk) -> None:
        storage = await opened(disk)
        await add_all(storage, 1, range(1))
        disk.kernel.faults.hanging = frozenset({Call.SYNC})
        requests = (storage.fence(1, KEY), storage.fence(1, KEY), storage.read(1, 0, fence_key=KEY))
        done, _ = await asyncio.wait([asyncio.ensure_future(request) for request in requests], timeout=0.05)
        assert not done

    run(scenario(SimulatedDisk()))


@pytest.mark.parametrize("flushed", [False, True])
def test_a_fence_survives_restarts(flushed: bool) -> None:
    async def before(disk: SimulatedDisk) -> None:
        storage = await opened(disk)
        await add_all(storage, 1, range(2))
        await storage.fence(1, KEY)
        if flushed:
            await storage.checkpoint()

    async def after(disk: SimulatedDisk) -> None:
        async with bench(disk) as storage:
            assert await code_of_add(storage, packed(1, 2)) == FENCED
            await storage.fence(1, KEY)

    disk = SimulatedDisk(Random(4))
    run(before(disk))
    disk.kernel.lose_power()
    run(after(disk))
    run(after(disk))


def test_adds_held_back_meet_a_fence_that_came_meanwhile() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        settings = replace(SMALL, journal_queue_bytes_max=2000)
        async with bench(disk, settings) as storage:
            await add_all(storage, 1, range(1))
            disk.kernel.faults.sync_latency = Latency(10.0)
            answers = Answers()
            for entry_id in range(1, 40):
                storage.add(1, entry_id, packed(1, entry_id, bytes(200)), KEY, answers)
                await asyncio.sleep(0)
            fence = asyncio.ensure_future(storage.fence(1, KEY))
            await answers.until(39)
            await fence
            codes = [answers.codes[entry_id] for entry_id in range(1, 40)]
            assert codes == sorted(codes), "none is taken after one was fenced"
            assert codes[0] == OK
            assert codes[-1] == FENCED
            assert await storage.entry_ids(1) == list(range(codes.index(FENCED) + 1))

    run(scenario())


def test_the_last_confirmed_is_the_newest_entrys_or_the_explicit_one() -> None:
    async def scenario(disk: SimulatedDisk) -> None:
        async with bench(disk) as storage:
            await add_all(storage, 1, range(5))
            assert await storage.last_confirmed(1) == (3, packed(1, 4))
            await storage.write_last_confirmed(1, 4, b"signed", KEY)
            assert await storage.last_confirmed(1) == (4, packed(1, 4))
            await storage.write_last_confirmed(1, 2, b"older", KEY)
            assert await storage.explicit_last_confirmed(1) == b"signed"
            with pytest.raises(WrongMasterKey):
                await storage.write_last_confirmed(1, 9, b"", b"wrong")

    async def after(disk: SimulatedDisk) -> None:
        async with bench(disk) as storage:
            assert await storage.last_confirmed(1) == (4, packed(1, 4))
            assert await storage.explicit_last_confirmed(1) == b"signed"

    disk = SimulatedDisk()
    run(scenario(disk))
    run(after(disk))


def test_an_explicit_last_confirmed_is_durable_when_it_is_answered() -> None:
    async def scenario(disk: SimulatedDisk) -> None:
        storage = await opened(disk)
        await storage.write_last_confirmed(3, 7, b"body", KEY)

    async def after(disk: SimulatedDisk) -> None:
        async with bench(disk) as storage:
            assert await storage.last_confirmed(3) == (7, None)

    disk = SimulatedDisk(Random(1))
    run(scenario(disk))
    disk.kernel.lose_power()
    run(after(disk))


def test_impossible_keys_ledgers_and_bodies_are_refused_before_they_are_written() -> None:
    async def scenario() -> None:
        async with bench(SimulatedDisk()) as storage:
            with pytest.raises(BadCommand):
                await storage.fence(1, bytes(2000))
            with pytest.raises(BadCommand):
                await storage.fence(-5, KEY)
            with pytest.raises(BadCommand):
                await storage.write_last_confirmed(1, 0, bytes(100_000), KEY)
            assert await code_of_add(storage, packed(1, 0), key=bytes(2000)) == BAD_REQUEST
            with pytest.raises(NoSuchLedger):
                await storage.read(1, 0)

    run(scenario())


@pytest.mark.feature("F-BKS-26")
def test_a_reader_waits_for_the_last_confirmed_without_looking_in_between() -> None:
    async def scenario() -> None:
        async with bench(SimulatedDisk(), replace(SMALL, reads_max=2)) as storage:
            await add_all(storage, 1, range(3))
            assert await storage.last_confirmed_beyond(1, 0, 60_000) == (1, packed(1, 2))
            assert await storage.last_confirmed_beyond(1, 1, 1) == (1, packed(1, 2)), "the time is up"
            waiting = [asyncio.ensure_future(storage.last_confirmed_beyond(1, 1, 60_000)) for _ in range(3)]
            await asyncio.sleep(0)
            await add_all(storage, 2, range(1))
            assert [task.done() for task in waiting] == [False, False, True]
            assert isinstance(waiting[2].exception(), TooManyRequests)
            await add_all(storage, 1, range(3, 4))
            assert await waiting[0] == await waiting[1] == (2, packed(1, 3))
            explicit = asyncio.ensure_future(storage.last_confirmed_beyond(1, 2, 60_000))
            await storage.write_last_confirmed(1, 3, b"", KEY)
            assert (await explicit)[0] == 3

    run(scenario())


def test_readers_that_wait_learn_of_the_end() -> None:
    async def scenario() -> None:
        storage = await opened(SimulatedDisk())
        await add_all(storage, 1, range(1))
        waiting = asyncio.ensure_future(storage.last_confirmed_beyond(1, 5, 60_000))
        await asyncio.sleep(0)
        await storage.close()
        with pytest.raises(StorageFailed):
            await waiting

    run(scenario())
