# SPDX-License-Identifier: Apache-2.0
"""The ledger client end to end over model bookies: create, append, close, open, recover, delete."""

import asyncio

import pytest

from magnetar.errors import (
    LedgerClosed,
    LedgerFenced,
    MetadataError,
    NoSuchEntry,
    NoSuchLedger,
    NotEnoughBookies,
    WrongMasterKey,
)
from magnetar.wire.bookkeeper.digest import DigestType
from tests.unit.ledger.cluster import PASSWORD, Cluster, Confirmations, bodies, settle
from tests.unit.ledger.faulty_store import FaultyStore


@pytest.mark.feature("F-BKC-01")
@pytest.mark.parametrize("quorum", [(1, 1, 1), (3, 3, 2), (5, 3, 2), (3, 1, 1), (3, 2, 2)])
@pytest.mark.parametrize("digest", list(DigestType))
def test_what_is_appended_is_read_back_in_order(quorum: tuple[int, int, int], digest: DigestType) -> None:
    async def scenario() -> None:
        client = Cluster(5).client()
        writer, listener = await client.create(*quorum, digest=digest)
        sent = [b"entry %d" % i for i in range(40)]
        for i, body in enumerate(sent):
            entry = writer.append([body[:3], memoryview(body)[3:]])
            assert writer.last_add_pushed == i
            assert bytes(entry).endswith(body)
        await listener.until_confirmed(39)
        assert writer.last_add_confirmed == 39
        assert writer.length == sum(map(len, sent))
        assert writer.pending_entries == writer.pending_bytes == 0
        await writer.close()
        with pytest.raises(LedgerClosed):
            writer.append([b"late"])
        reader = await client.open(writer.ledger_id)
        assert reader.is_closed
        assert reader.last_entry == 39
        assert reader.length == writer.length
        assert await bodies(reader) == sent
        reader.close()

    asyncio.run(scenario())


@pytest.mark.feature("F-REC-02", "F-REC-03")
def test_opening_fences_the_writer_and_keeps_what_was_confirmed() -> None:
    async def scenario() -> None:
        cluster = Cluster(3)
        old, new = cluster.client(), cluster.client()
        writer, listener = await old.create()
        for i in range(5):
            writer.append([b"%d" % i])
        await listener.until_confirmed(4)
        reader = await new.open(writer.ledger_id)
        assert reader.last_entry == 4
        assert reader.length == 5
        writer.append([b"too late"])
        assert isinstance(await listener.until_failed(), LedgerFenced)
        with pytest.raises(LedgerFenced):
            writer.append([b"still too late"])
        with pytest.raises(LedgerFenced):
            await writer.close()
        assert await bodies(reader) == [b"0", b"1", b"2", b"3", b"4"]
        assert listener.last == 4

    asyncio.run(scenario())


def test_ids_rise_and_a_deleted_ledger_is_gone() -> None:
    async def scenario() -> None:
        client = Cluster(3).client()
        writers = [(await client.create())[0] for _ in range(3)]
        ids = [writer.ledger_id for writer in writers]
        assert ids == sorted(set(ids))
        assert await client.ledgers.exists(ids[1])
        await client.ledgers.delete(ids[1])
        assert not await client.ledgers.exists(ids[1])
        with pytest.raises(NoSuchLedger):
            await client.ledgers.delete(ids[1])
        with pytest.raises(NoSuchLedger):
            await client.open(ids[1])
        assert [ledger_id async for ledger_id in client.ledgers.catalog.ledger_ids()] == [ids[0], ids[2]]

    asyncio.run(scenario())


@pytest.mark.feature("F-BKC-09")
def test_another_password_is_refused() -> None:
    async def scenario() -> None:
        client = Cluster(3).client()
        writer, _ = await client.create()
        with pytest.raises(WrongMasterKey):
            await client.ledgers.open(writer.ledger_id, password=b"other")
        await writer.close()

    asyncio.run(scenario())


@pytest.mark.feature("F-BKC-22")
def test_too_few_bookies_for_a_new_ledger() -> None:
    async def scenario() -> None:
        cluster = Cluster(3)
        cluster.bookies["b2"].read_only = True
        with pytest.raises(NotEnoughBookies):
            await cluster.client().create()

    asyncio.run(scenario())


@pytest.mark.feature("F-BKC-08", "F-REC-11")
def test_a_tail_reader_sees_no_more_than_is_confirmed() -> None:
    async def scenario() -> None:
        cluster = Cluster(3)
        writer, listener = await cluster.client().create()
        reader = await cluster.client().ledgers.open_without_recovery(writer.ledger_id, password=PASSWORD)
        assert await reader.read_last_confirmed() == -1
        for i in range(3):
            writer.append([b"%d" % i])
        await listener.until_confirmed(2)
        writer.append([b"3"])
        await listener.until_confirmed(3)
        # The last entry carries the number that was confirmed when it was packed.
        assert await reader.read_last_confirmed() == 2
        assert await bodies(reader) == [b"0", b"1", b"2"]
        with pytest.raises(NoSuchEntry):
            await reader.read(3, 3, bytes_max=100)
        assert [bytes(body) for body in await reader.read_unconfirmed(3, 3, bytes_max=100)] == [b"3"]
        assert not reader.is_closed
        await writer.close()
        await settle()
        assert await reader.read_last_confirmed() == 3
        assert reader.is_closed
        reader.close()

    asyncio.run(scenario())


def test_closing_waits_for_what_is_in_flight() -> None:
    async def scenario() -> None:
        cluster = Cluster(3)
        client = cluster.client()
        writer, listener = await client.create()
        for bookie in cluster.bookies.values():
            bookie.weather.delay_max_ms = 5
        for i in range(20):
            writer.append([b"%d" % i])
        await writer.close()
        assert listener.last == 19
        assert (await client.open(writer.ledger_id)).last_entry == 19

    asyncio.run(scenario())


def test_an_empty_ledger_closes_and_recovers_at_minus_one() -> None:
    async def scenario() -> None:
        client = Cluster(3).client()
        closed, _ = await client.create()
        await closed.close()
        assert (await client.open(closed.ledger_id)).last_entry == -1
        abandoned, _ = await client.create()
        reader = await client.open(abandoned.ledger_id)
        assert reader.last_entry == -1
        assert reader.is_closed
        with pytest.raises(NoSuchEntry):
            await reader.read(0, 0, bytes_max=1)

    asyncio.run(scenario())


def test_listener_is_told_once_per_batch() -> None:
    listener = Confirmations()

    async def scenario() -> None:
        client = Cluster(1).client()
        writer, _ = await client.create(1, 1, 1)
        writer._listener = listener  # the listener under test
        for i in range(5):
            writer.append([b"%d" % i])
        writer.on_added("b1", 0, 2, 0)
        writer.on_added("b1", 3, 4, 0)
        assert listener.numbers == [2, 4]
        await writer.close()

    asyncio.run(scenario())


@pytest.mark.feature("F-BKC-02")
def test_each_entry_lies_on_its_write_quorum_and_is_confirmed_by_the_ack_quorum() -> None:
    async def scenario() -> None:
        cluster = Cluster(5)
        client = cluster.client()
        writer, listener = await client.create(5, 3, 2)
        ensemble = writer.known.record.last_segment.ensemble
        client.channel(ensemble[2]).hold()
        for i in range(10):
            writer.append([b"%d" % i])
        # Every write set has at most one member that does not answer.
        await listener.until_confirmed(9)
        client.channel(ensemble[2]).let_go()
        await settle()
        for i in range(10):
            expected = {ensemble[(i + k) % 5] for k in range(3)}
            assert set(cluster.holders(writer.ledger_id, i)) == expected
        await writer.close()

    asyncio.run(scenario())


@pytest.mark.feature("F-BKC-23")
def test_an_open_ledger_goes_on_while_the_metadata_store_is_away() -> None:
    async def scenario() -> None:
        cluster = Cluster(3)
        store = FaultyStore(cluster.tree.open_session())
        client = cluster.client(store=store, metadata_retries_max=1)
        writer, listener = await client.create()
        store.fault = lambda operation, path: "refused"
        calls = len(store.calls)
        for i in range(50):
            writer.append([b"%d" % i])
        await listener.until_confirmed(49)
        assert len(store.calls) == calls
        with pytest.raises(MetadataError):
            await client.create()
        with pytest.raises(MetadataError):
            await client.ledgers.delete(writer.ledger_id)
        with pytest.raises(MetadataError):
            await writer.close()
        store.fault = lambda operation, path: None
        await writer.close()
        assert (await client.open(writer.ledger_id)).last_entry == 49

    asyncio.run(scenario())
