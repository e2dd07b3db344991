# SPDX-License-Identifier: Apache-2.0
"""Whoever waits may be told to give up, at any await: nothing is left half done, held for ever, or waited for in vain.

Each test is a sweep over all awaits of one operation (`world/cancellation.py`). Afterwards the same is asked again, by
somebody who is not cancelled, and everything else goes on as before.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from magnetar import Client
from magnetar.bookie.storage import BookieStorage
from magnetar.client.message_id import MessageId
from magnetar.client.producer import Producer
from magnetar.errors import LedgerFenced
from magnetar.names import TopicName
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.runtime.simulated_faults import DiskFaults, Latency
from magnetar.testing import LocalPulsar
from magnetar.wire.bookkeeper.codes import ReturnCode
from tests.simulation.world.cancellation import Canceller, sweep_cancellations
from tests.unit.bookie.benches import KEY, OK, SMALL, add_all, bench, code_of_add, opened, packed
from tests.unit.bookie.test_losses import questions
from tests.unit.ledger.cluster import Cluster, bodies, settle
from tests.unit.managed_ledger.owners import World, read_all

SETTINGS = replace(SMALL, read_cache_bytes_max=0, scrub_bytes_per_second_max=0)
ENTRIES = 12
DELETED = 3

Operation = Callable[[BookieStorage], Coroutine[Any, Any, Any]]


def test_a_swallowed_cancellation_is_found() -> None:
    """Without it the sweeps prove nothing: at one moment of one await somebody takes it for an answer."""

    async def deaf() -> None:
        answer = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(1, answer.set_result, None)
        try:
            await answer
        except asyncio.CancelledError:
            if not answer.done() or answer.cancelled():
                raise

    with pytest.raises(AssertionError, match="swallowed a cancellation at await 0, when what it waited for has come"):
        sweep_cancellations(lambda canceller: canceller.cancel(deaf()))


def slow_disk() -> SimulatedDisk:
    """Everything takes a moment, so that everything is waited for."""
    moment = Latency(1.0, 0.5)
    return SimulatedDisk(Random(1), faults=DiskFaults(moment, moment, moment, moment))


async def judged(disk: SimulatedDisk, fenced: bool) -> None:
    """In the next life: what was acknowledged is there, and nobody has found a loss."""
    async with bench(disk, SETTINGS, questions=questions(1, 2)) as storage:
        assert storage.damage == ()
        assert await storage.entry_ids(1) == list(range(ENTRIES))
        for entry_id in range(ENTRIES):
            assert await storage.read(1, entry_id) == packed(1, entry_id)
        assert await code_of_add(storage, packed(1, ENTRIES)) == (ReturnCode.FENCED if fenced else OK)
        assert await storage.housekeeping.check_consistency() == []


async def _reads(storage: BookieStorage, entry_id: int) -> None:
    assert await storage.read(1, entry_id) == packed(1, entry_id)


OPERATIONS: dict[str, Operation] = {
    "fence": lambda storage: storage.fence(1, KEY),
    "read and fence": lambda storage: storage.read(1, ENTRIES - 1, KEY),
    "explicit confirmation": lambda storage: storage.write_last_confirmed(1, 3, b"body", KEY),
    "read": lambda storage: storage.read(1, 0),
    "batch": lambda storage: storage.read_batch(1, 0, 5, 10_000),
    "checkpoint": lambda storage: storage.checkpoint(),
    "collection": lambda storage: storage.housekeeping.collect(),
    "wait for a confirmation": lambda storage: storage.last_confirmed_beyond(1, ENTRIES, 100),
}


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_a_bookies_operation_cancelled_at_any_await(name: str) -> None:
    """F210: asked again it is carried out; adds, reads and the next life know nothing of it."""
    operation = OPERATIONS[name]
    fences = "fence" in name

    async def story(canceller: Canceller) -> None:
        disk = slow_disk()
        storage = await opened(disk, SETTINGS, questions=questions(1, 2))
        for entry_id in range(ENTRIES - 2):
            # Side by side with a ledger that does not exist any more, and is collected.
            await add_all(storage, 1, range(entry_id, entry_id + 1))
            await add_all(storage, DELETED, range(entry_id, entry_id + 1), lambda _: bytes(500))
        await storage.checkpoint()
        await add_all(storage, 1, range(ENTRIES - 2, ENTRIES))
        await canceller.cancel(operation(storage))
        assert (await add_all(storage, 2, range(3))).codes == dict.fromkeys(range(3), OK)
        await operation(storage)
        for entry_id in range(ENTRIES):
            assert await storage.read(1, entry_id) == packed(1, entry_id)
        assert storage.stats().reads_in_progress == 0
        assert await code_of_add(storage, packed(2, 3)) == OK
        await storage.close()
        await judged(disk, fences)

    assert sweep_cancellations(story) >= 1


def test_a_read_cancelled_at_any_await_passes_its_turn_on() -> None:
    """F210: a ledger is read by one at a time; whoever gives up keeps nobody from it."""

    async def story(canceller: Canceller) -> None:
        storage = await opened(slow_disk(), SETTINGS)
        await add_all(storage, 1, range(ENTRIES))
        await storage.checkpoint()
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            group.create_task(_reads(storage, 3))
            await asyncio.sleep(0)
            giving_up = group.create_task(canceller.cancel(storage.read(1, 6)))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            group.create_task(_reads(storage, 9))
            await giving_up
        await _reads(storage, 6)
        assert storage.stats().reads_in_progress == 0
        await storage.close()

    assert sweep_cancellations(story) >= 2


def test_a_fence_whose_first_caller_gave_up_is_durable_when_the_second_is_answered() -> None:
    """F210: the power fails as soon as he is."""

    async def story(canceller: Canceller) -> None:
        disk = slow_disk()
        storage = await opened(disk, SETTINGS)
        await add_all(storage, 1, range(ENTRIES))
        await canceller.cancel(storage.fence(1, KEY))
        await storage.fence(1, KEY)
        disk.kernel.lose_power()
        await judged(disk, fenced=True)

    assert sweep_cancellations(story) >= 1


def test_a_start_of_a_bookie_cancelled_at_any_await_leaves_its_directories_to_the_next() -> None:
    """F210: the locks are let go of, and what the journal held is still there."""

    async def story(canceller: Canceller) -> None:
        disk = slow_disk()
        storage = await opened(disk, SETTINGS, questions=questions(1, 2))
        await add_all(storage, 1, range(ENTRIES))
        disk.kernel.kill()
        started: list[BookieStorage] = []

        async def start() -> None:
            started.append(await opened(disk, SETTINGS, questions=questions(1, 2)))

        await canceller.cancel(start())
        for storage in started:
            await storage.close()
        assert not disk.kernel.locks
        await judged(disk, fenced=False)

    assert sweep_cancellations(story) > 20


def test_a_stop_of_a_bookie_cancelled_at_any_await_loses_nothing() -> None:
    """F210: whoever is out of patience ends the process; the next life finds everything."""

    async def story(canceller: Canceller) -> None:
        disk = slow_disk()
        storage = await opened(disk, SETTINGS, questions=questions(1, 2))
        await add_all(storage, 1, range(ENTRIES))
        await canceller.cancel(storage.close())
        disk.kernel.lose_power()
        await judged(disk, fenced=False)

    assert sweep_cancellations(story) >= 5


# --- ledgers ------------------------------------------------------------------------------------


def weather(cluster: Cluster) -> None:
    """Every question takes a moment."""
    for bookie in cluster.bookies.values():
        bookie.weather.delay_max_ms = 2


def test_a_recovery_cancelled_at_any_await_is_finished_by_the_next_one() -> None:
    """F210: the ledger is fenced, or not, and closes with everything that was confirmed; nothing is left running."""

    async def story(canceller: Canceller) -> None:
        cluster = Cluster(4)
        weather(cluster)
        writing, giving_up = cluster.client("writer"), cluster.client("gives up")
        writer, listener = await writing.create(3, 3, 2)
        for number in range(5):
            writer.append([b"%d" % number])
        await listener.until_confirmed(4)
        await canceller.cancel(giving_up.open(writer.ledger_id))
        await settle()
        assert giving_up.tasks.names() == []
        reader = await cluster.client("next").open(writer.ledger_id)
        assert await bodies(reader) == [b"%d" % number for number in range(5)]
        writer.append([b"late"])
        assert isinstance(await listener.until_failed(), LedgerFenced)
        assert listener.last == 4
        assert cluster.crashes == []

    assert sweep_cancellations(story) >= 5


def test_a_writers_close_cancelled_at_any_await_may_be_asked_for_again() -> None:
    """F210: entries on their way are confirmed, and the ledger is closed behind the last of them."""

    async def story(canceller: Canceller) -> None:
        cluster = Cluster(3)
        weather(cluster)
        client = cluster.client("writer")
        writer, listener = await client.create(3, 3, 2)
        for number in range(5):
            writer.append([b"%d" % number])
        await canceller.cancel(writer.close())
        await writer.close()
        assert listener.last == 4
        assert listener.errors == []
        reader = await cluster.client("reader").open(writer.ledger_id)
        assert await bodies(reader) == [b"%d" % number for number in range(5)]
        assert cluster.crashes == []

    assert sweep_cancellations(story) >= 1


def test_reads_of_a_ledger_cancelled_at_any_await_leave_nobody_running() -> None:
    """F210: reads of several bookies at once, of which one is slow."""

    async def story(canceller: Canceller) -> None:
        cluster = Cluster(3)
        weather(cluster)
        client = cluster.client("writer")
        writer, listener = await client.create(3, 2, 2)
        for number in range(9):
            writer.append([b"%d" % number])
        await listener.until_confirmed(8)
        await writer.close()
        reader = await client.open(writer.ledger_id)
        await canceller.cancel(bodies(reader))
        await settle()
        assert client.tasks.names() == []
        assert await bodies(reader) == [b"%d" % number for number in range(9)]
        assert cluster.crashes == []

    assert sweep_cancellations(story) >= 1


# --- logs ---------------------------------------------------------------------------------------


async def _a_log(world: World) -> list[bytes]:
    """Written by an owner that has died."""
    owner = world.owner()
    await owner.open()
    sent = owner.publisher.append_many(8)
    await owner.publisher.rest()
    await owner.die()
    return sent


def test_a_take_over_of_a_log_cancelled_at_any_await_may_be_tried_again() -> None:
    """F210: by the same owner; everything is there, and it can be written to."""

    async def story(canceller: Canceller) -> None:
        world = World(bookies=3, ensemble_size=3, write_quorum=3, ack_quorum=2, ledger_entries_max=3)
        weather(world.cluster)
        sent = await _a_log(world)
        owner = world.owner()
        await canceller.cancel(owner.open())
        if canceller.reached:
            await owner.open()
        ledger = owner.publisher.ledger
        sent += owner.publisher.append_many(3, "more")
        await owner.publisher.rest()
        assert list((await read_all(ledger)).values()) == sent
        await owner.close()
        world.check()

    assert sweep_cancellations(story) >= 5


def test_a_close_of_a_log_cancelled_at_any_await_leaves_it_to_the_next_owner() -> None:
    """F210: what was persisted is in it, and what was on its way is persisted or has failed."""

    async def story(canceller: Canceller) -> None:
        world = World(bookies=3, ensemble_size=3, write_quorum=3, ack_quorum=2, ledger_entries_max=3)
        weather(world.cluster)
        owner = world.owner()
        ledger = await owner.open()
        owner.publisher.append_many(8)
        await canceller.cancel(ledger.close())
        # Nobody is left without an answer, also where it comes after the end.
        await owner.publisher.rest()
        persisted = list(owner.publisher.persisted.values())
        following = world.owner()
        found = list((await read_all(await following.open())).values())
        assert found[: len(persisted)] == persisted
        await following.close()
        await owner.close()
        world.check()

    assert sweep_cancellations(story) >= 2


# --- topics -------------------------------------------------------------------------------------


OnTopic = Callable[[LocalPulsar, Client, Producer[bytes]], Coroutine[Any, Any, Any]]

ON_TOPICS: dict[str, OnTopic] = {
    "publish": lambda pulsar, client, producer: producer.send(b"late"),
    "subscribe": lambda pulsar, client, producer: client.subscribe("t", "another"),
    "open": lambda pulsar, client, producer: client.create_producer("new"),
    "unload": lambda pulsar, client, producer: pulsar.standalone.broker.topics.unload(TopicName.parse("t")),
}


@pytest.mark.parametrize("name", sorted(ON_TOPICS))
def test_what_is_asked_of_a_topic_cancelled_at_any_await(name: str) -> None:
    """F210: asked again it is done; what had a receipt is there, in order, and the topic serves."""
    operation = ON_TOPICS[name]

    async def story(canceller: Canceller) -> None:
        async with LocalPulsar(transport="memory") as pulsar, pulsar.client() as client:
            producer = await client.create_producer("t", batching_enabled=False)
            sent = [b"%d" % number for number in range(5)]
            for content in sent:
                await producer.send(content)
            await canceller.cancel(operation(pulsar, client, producer))
            if canceller.reached:
                await operation(pulsar, client, producer)
            await producer.send(b"last")
            async with await client.create_reader("t", MessageId.earliest) as reader:
                found: list[bytes] = []
                while not found or found[-1] != b"last":
                    found.append((await reader.read_next(60_000)).data())
            late = found.count(b"late")
            assert [content for content in found if content != b"late"] == [*sent, b"last"]
            assert late in ((1, 2) if name == "publish" else (0,))

    assert sweep_cancellations(story) >= 1
