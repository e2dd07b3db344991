# SPDX-License-Identifier: Apache-2.0
"""What a bookie lost of a ledger, brought back to it: how far, from whom, and when nothing is proven by it."""

import asyncio

import pytest

from magnetar.config.ledger import RepairSettings
from magnetar.errors import EntryUnknown, LedgerFenced, NoSuchLedger
from magnetar.ledger.own_copies import OwnCopies
from magnetar.ledger.repair_list import RepairList
from magnetar.wire.bookkeeper.digest import DigestType
from magnetar.wire.bookkeeper.entry import EntryPacker
from tests.unit.ledger.cluster import PASSWORD, ModelClient
from tests.unit.ledger.test_auto_recovery import RepairWorld, written


def own_copies(world: RepairWorld, client: ModelClient) -> OwnCopies:
    repairs = RepairList(client.store, world.clock, "own")
    return OwnCopies(client.ledgers.parts, repairs, RepairSettings(copied_entries_in_flight_max=4))


def key_of(ledger_id: int) -> bytes:
    return EntryPacker(ledger_id, DigestType.CRC32C, PASSWORD).master_key


def lose(world: RepairWorld, name: str, ledger_id: int, kept: int) -> None:
    """Only the first few entries are left on a bookie, which knows that it has lost some."""
    held = world.bookies[name].ledgers[ledger_id].entries
    for entry_id in sorted(held)[kept:]:
        del held[entry_id]
    world.bookies[name].in_limbo = True


@pytest.mark.feature("F-REC-13", "F-AR-10")
@pytest.mark.parametrize("quorum", [(3, 3, 2), (4, 2, 2)])
def test_every_entry_that_the_record_asks_of_the_bookie_comes_back(quorum: tuple[int, int, int]) -> None:
    async def scenario() -> None:
        world = RepairWorld(5)
        await world.register()
        client = world.client()
        writer, _ = await written(client, 30, quorum)
        await writer.close()
        victim = writer.known.record.last_segment.ensemble[1]
        before = dict(world.bookies[victim].ledgers[writer.ledger_id].entries)
        lose(world, victim, writer.ledger_id, kept=3)
        assert await own_copies(world, client).complete(victim, writer.ledger_id) == key_of(writer.ledger_id)
        assert world.bookies[victim].ledgers[writer.ledger_id].entries == before, "its share, and nothing else"
        await world.check_full(writer.ledger_id)

    asyncio.run(scenario())


def test_an_open_ledger_that_counts_on_the_bookie_is_recovered_first() -> None:
    async def scenario() -> None:
        world = RepairWorld(3)
        await world.register()
        client, writers = world.client(), world.client("writer")
        writer, listener = await written(writers, 12)
        victim = writer.known.record.last_segment.ensemble[0]
        lose(world, victim, writer.ledger_id, kept=0)
        assert await own_copies(world, client).complete(victim, writer.ledger_id) == key_of(writer.ledger_id)
        record = await world.record(writer.ledger_id)
        assert record.is_closed
        assert record.last_entry == 11
        await world.check_full(writer.ledger_id)
        writer.append([b"late"])
        assert isinstance(await listener.until_failed(), LedgerFenced)

    asyncio.run(scenario())


def test_of_a_ledger_that_is_written_elsewhere_nothing_is_proven_yet() -> None:
    """Its former fragments are completed all the same, and its writer is left alone."""

    async def scenario() -> None:
        world = RepairWorld(4)
        await world.register()
        client, writers = world.client(), world.client("writer")
        writer, listener = await written(writers, 10)
        victim = writer.known.record.last_segment.ensemble[2]
        world.bookies[victim].is_up = False
        for i in range(10, 20):
            writer.append([b"entry %d" % i])
        await listener.until_confirmed(19)
        assert victim not in writer.known.record.last_segment.ensemble
        world.bookies[victim].is_up = True
        lose(world, victim, writer.ledger_id, kept=2)
        own = own_copies(world, client)
        assert await own.complete(victim, writer.ledger_id) is None
        assert sorted(world.bookies[victim].ledgers[writer.ledger_id].entries) == list(range(10))
        writer.append([b"entry 20"])
        await listener.until_confirmed(20)
        await writer.close()
        assert await own.complete(victim, writer.ledger_id) == key_of(writer.ledger_id)

    asyncio.run(scenario())


def test_who_is_asked_for_nothing_needs_no_copies() -> None:
    async def scenario() -> None:
        world = RepairWorld(4)
        await world.register()
        client = world.client()
        writer, _ = await written(client, 5)
        await writer.close()
        (other,) = set(world.bookies) - set(writer.known.record.bookies())
        assert await own_copies(world, client).complete(other, writer.ledger_id) == key_of(writer.ledger_id)
        assert writer.ledger_id not in world.bookies[other].ledgers
        await client.ledgers.delete(writer.ledger_id)
        with pytest.raises(NoSuchLedger):
            await own_copies(world, client).complete(other, writer.ledger_id)

    asyncio.run(scenario())


def test_without_the_other_copies_or_beside_a_repair_nothing_is_proven() -> None:
    async def scenario() -> None:
        world = RepairWorld(3)
        await world.register()
        client = world.client()
        writer, _ = await written(client, 8, (3, 2, 2))
        await writer.close()
        victim, *others = writer.known.record.last_segment.ensemble
        lose(world, victim, writer.ledger_id, kept=1)
        own = own_copies(world, client)
        for name in others:
            world.bookies[name].is_up = False
        with pytest.raises(EntryUnknown, match="cannot be reached"):
            await own.complete(victim, writer.ledger_id)
        for name in others:
            world.bookies[name].is_up = True
        worker = RepairList(world.tree.open_session(), world.clock, "worker")
        assert await worker.lock(writer.ledger_id)
        assert await own.complete(victim, writer.ledger_id) is None
        await worker.unlock(writer.ledger_id)
        await worker.disable()
        assert await own.complete(victim, writer.ledger_id) is None
        await worker.enable()
        assert await own.complete(victim, writer.ledger_id) == key_of(writer.ledger_id)
        await world.check_full(writer.ledger_id)

    asyncio.run(scenario())
