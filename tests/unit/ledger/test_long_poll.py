# SPDX-License-Identifier: Apache-2.0
"""Waiting at the end of a ledger, forcing, being sent elsewhere, and proofs that a copy is surplus: with whole bookies
behind their ports.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from magnetar.bookie.bookie import Bookie
from magnetar.config.bookie import BookieSettings
from magnetar.config.ledger import ChannelSettings, LedgerSettings
from magnetar.errors import BookieUnavailable, MetadataError
from magnetar.ledger.bookies import Address
from magnetar.ledger.ledgers import Ledgers
from magnetar.ledger.placement import RandomPlacement
from magnetar.ledger.repair_list import RepairList
from magnetar.ledger.surplus_copies import SurplusCopies
from magnetar.ledger.tcp_channel import TcpChannels
from magnetar.ledger.writer import LedgerWriter
from magnetar.metadata.memory import MemoryStore, MemoryTree
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.runtime.simulated_faults import Latency
from magnetar.runtime.tasks import Tasks
from magnetar.wire.bookkeeper.digest import DigestType
from tests.unit.bookie.benches import ROOMY
from tests.unit.bookie.ports import bookie_on_a_port
from tests.unit.ledger.cluster import PASSWORD, Confirmations

LONG_MS = 20_000


class Servers:
    """Bookies on ports, and a ledger client over TCP."""

    def __init__(self) -> None:
        self.bookies: dict[str, Bookie] = {}
        self.disks: dict[str, SimulatedDisk] = {}
        self.writable: list[str] = []
        self.store = MemoryStore(MemoryTree())
        self.ledgers: Ledgers
        self.channels: TcpChannels

    async def address(self, bookie: str) -> Address:
        return Address("127.0.0.1", self.bookies[bookie].endpoints[0].port)

    async def create(self, ensemble: int, write: int, ack: int) -> tuple[LedgerWriter, Confirmations]:
        listener = Confirmations()
        writer = await self.ledgers.create(
            ensemble_size=ensemble,
            write_quorum=write,
            ack_quorum=ack,
            digest=DigestType.CRC32C,
            password=PASSWORD,
            custom_metadata={},
            listener=listener,
        )
        return writer, listener


@asynccontextmanager
async def servers(count: int, first: BookieSettings = ROOMY, **changes: Any) -> AsyncIterator[Servers]:
    crashes: list[str] = []
    found = Servers()
    async with AsyncExitStack() as opened:
        for i in range(count):
            name = f"b{i}"
            found.disks[name] = SimulatedDisk()
            found.bookies[name] = await opened.enter_async_context(
                bookie_on_a_port(found.disks[name], first if i == 0 else ROOMY, bookie_id=name, http_enabled=False)
            )
            found.writable.append(name)
        tasks = Tasks("test", lambda name, error: crashes.append(f"{name}: {error!r}"))
        found.channels = TcpChannels(found.address, tasks, ChannelSettings(request_timeout_ms=LONG_MS))
        opened.callback(found.channels.close)
        opened.push_async_callback(tasks.close)
        found.ledgers = Ledgers(
            found.store,
            found.channels,
            RandomPlacement(lambda: found.writable, Random(1)),
            SystemClock(),
            Random(2),
            tasks,
            replace(LedgerSettings(), **changes),
        )
        yield found
    assert not crashes


@pytest.mark.feature("F-BKC-20")
def test_a_reader_at_the_end_hears_of_the_next_entry_or_of_the_time() -> None:
    async def scenario() -> None:
        async with servers(3) as cluster:
            writer, listener = await cluster.create(3, 3, 2)
            writer.append([b"0"])
            await listener.until_confirmed(0)
            writer.append([b"1"])
            await listener.until_confirmed(1)
            reader = await cluster.ledgers.open_without_recovery(writer.ledger_id, password=PASSWORD)
            # Entry 1 told the bookies that entry 0 is confirmed; nobody has said so of entry 1 yet.
            assert await reader.wait_for_confirmed(-1, timeout_ms=LONG_MS) == 0
            assert await reader.wait_for_confirmed(0, timeout_ms=10) == 0, "the time is up"
            waiting = asyncio.ensure_future(reader.wait_for_confirmed(0, timeout_ms=LONG_MS))
            for _ in range(50):
                await asyncio.sleep(0)
            assert not waiting.done()
            writer.append([b"2"])
            async with asyncio.timeout(LONG_MS / 1000):
                assert await waiting == 1
            assert [bytes(body) for body in await reader.read(0, 1, bytes_max=1024)] == [b"0", b"1"]
            await listener.until_confirmed(2)
            await writer.close()
            assert await reader.wait_for_confirmed(1, timeout_ms=LONG_MS) == 2, "a closed ledger answers at once"
            reader.close()

    asyncio.run(scenario())


@pytest.mark.feature("F-BKC-20")
def test_a_channel_waits_on_the_bookie_and_gives_the_number() -> None:
    async def scenario() -> None:
        async with servers(1) as cluster:
            writer, listener = await cluster.create(1, 1, 1)
            for i in range(3):
                writer.append([b"%d" % i])
                await listener.until_confirmed(i)
            channel = cluster.channels("b0")
            assert (await channel.last_confirmed_beyond(writer.ledger_id, 0, LONG_MS)).last_add_confirmed == 1
            assert (await channel.last_confirmed_beyond(writer.ledger_id, 1, 5)).last_add_confirmed == 1
            await writer.close()

    asyncio.run(scenario())


@pytest.mark.feature("B-35")
def test_force_waits_for_what_was_appended_and_asks_every_bookie() -> None:
    async def scenario() -> None:
        async with servers(3) as cluster:
            writer, _ = await cluster.create(3, 2, 2)
            for i in range(10):
                writer.append([b"%d" % i])
            assert await writer.force() == 9
            assert writer.last_add_confirmed == 9
            for bookie in cluster.bookies.values():
                assert bookie.storage.counts.operations["FORCE_LEDGER"].ok.count == 1
            await cluster.bookies["b0"].close()
            assert await writer.force() == 9, "an ack quorum of each write set has it without the lost one"
            await cluster.bookies["b1"].close()
            with pytest.raises(BookieUnavailable):
                await writer.force()

    asyncio.run(scenario())


@pytest.mark.feature("F-BP-04")
def test_a_bookie_with_too_much_to_do_is_left_for_another() -> None:
    """One bookie's disk is slow: its queue is small, it says so with the protocol's own code, and the ledger moves."""

    async def scenario() -> None:
        settings = replace(ROOMY, journal_queue_bytes_max=256, held_adds_max=2, held_adds_wait_max_ms=LONG_MS)
        async with servers(3, settings) as cluster:
            cluster.writable = ["b0", "b1"]
            writer, listener = await cluster.create(2, 2, 2)
            writer.append([b"first"])
            await listener.until_confirmed(0)
            cluster.writable = ["b0", "b1", "b2"]
            victim = cluster.bookies["b0"].storage
            cluster.disks["b0"].kernel.faults.sync_latency = Latency(200.0)
            for i in range(60):
                writer.append([b"entry %d" % i])
                await asyncio.sleep(0)
            await listener.until_confirmed(60)
            assert victim.stats().adds_refused[106] > 0, "TOO_MANY_REQUESTS"
            assert set(writer.known.record.last_segment.ensemble) == {"b1", "b2"}
            await writer.close()
            reader = await cluster.ledgers.open(writer.ledger_id, password=PASSWORD)
            assert len(await reader.read(0, 60, bytes_max=1 << 20)) > 0
            cluster.disks["b0"].kernel.faults.sync_latency = Latency()

    asyncio.run(scenario())


@pytest.mark.feature("F-GC-08")
def test_a_copy_is_surplus_only_with_every_proof() -> None:
    async def scenario() -> None:
        async with servers(3, metadata_retries_max=0) as cluster:
            cluster.writable = ["b0", "b1"]
            writer, listener = await cluster.create(2, 2, 2)
            ledger_id = writer.ledger_id
            writer.append([b"x"])
            await listener.until_confirmed(0)
            clock = SystemClock()
            repairs = RepairList(cluster.store, clock, "b2")
            others = RepairList(cluster.store, clock, "somebody")
            copies = SurplusCopies(cluster.ledgers.catalog, repairs)

            async def answer(bookie: str) -> bool:
                async with copies.is_surplus(bookie, ledger_id) as is_surplus:
                    return is_surplus

            assert not await answer("b2"), "it is open: a recovery may ask b2 for it"
            await writer.close()
            assert not await answer("b0"), "it is on record there"
            assert await answer("b2")
            await others.lock(ledger_id)
            assert not await answer("b2"), "somebody repairs it, perhaps to b2"
            await others.unlock(ledger_id)
            await others.mark(ledger_id, ["b0"])
            assert not await answer("b2"), "it lacks a copy: no time to drop one"
            mark = await others.look(ledger_id)
            assert mark is not None
            await others.finish(mark)
            async with copies.is_surplus("b2", ledger_id) as is_surplus:
                assert is_surplus
                assert not await others.lock(ledger_id), "nobody can begin a repair meanwhile"
            assert await others.lock(ledger_id)
            await others.unlock(ledger_id)
            await cluster.ledgers.delete(ledger_id)
            assert not await answer("b2"), "gone altogether: other proofs, another collector"
            await cluster.store.close()
            with pytest.raises(MetadataError):
                await answer("b2")

    asyncio.run(scenario())
