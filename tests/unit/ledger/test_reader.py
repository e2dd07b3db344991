# SPDX-License-Identifier: Apache-2.0
"""Reading: which replica is asked, what happens when it fails, what a reader may see."""

import asyncio
from collections import Counter

import pytest

from magnetar.errors import BookieUnavailable, EntryUnknown, NoSuchEntry
from magnetar.ledger.reader import LedgerReader
from magnetar.ledger.writer import LedgerWriter
from tests.unit.ledger.cluster import PASSWORD, Cluster, ModelClient, bodies, settle


async def written(client: ModelClient, count: int, quorum: tuple[int, int, int] = (3, 3, 3)) -> LedgerWriter:
    writer, listener = await client.create(*quorum)
    for i in range(count):
        writer.append([b"entry %d" % i])
    await listener.until_confirmed(count - 1)
    await writer.close()
    await settle()
    return writer


def expected(first: int, last: int) -> list[bytes]:
    return [b"entry %d" % i for i in range(first, last + 1)]


async def read(reader: LedgerReader, first: int, last: int, bytes_max: int = 1 << 20) -> list[bytes]:
    return [bytes(body) for body in await reader.read(first, last, bytes_max=bytes_max)]


@pytest.mark.feature("F-BKC-15")
@pytest.mark.parametrize("quorum", [(3, 3, 3), (5, 3, 2), (4, 2, 2)])
def test_any_replica_serves(quorum: tuple[int, int, int]) -> None:
    async def scenario() -> None:
        cluster = Cluster(5)
        client = cluster.client()
        writer = await written(client, 30, quorum)
        ensemble = writer.known.record.last_segment.ensemble
        for dead in ensemble:
            cluster.bookies[dead].is_up = False
            assert await bodies(await client.open(writer.ledger_id)) == expected(0, 29)
            cluster.bookies[dead].is_up = True

    asyncio.run(scenario())


def test_what_a_bookie_has_at_hand_comes_without_waiting_and_as_carefully() -> None:
    async def scenario() -> None:
        cluster = Cluster(3)
        client = cluster.client(sticky_reads=True)
        writer = await written(client, 10)
        reader = await client.open(writer.ledger_id)

        def at_hand(first: int, last: int) -> list[bytes]:
            return [bytes(body) for body in reader.at_hand(first, last, bytes_max=1 << 20)]

        assert at_hand(0, 9) == []
        for name in cluster.bookies:
            client.channel(name).at_hand_max = 4
        assert at_hand(0, 9) == expected(0, 3)
        assert at_hand(7, 20) == expected(7, 9)
        assert at_hand(10, 12) == at_hand(-1, 3) == [], "not in the ledger"
        for bookie in cluster.bookies.values():
            entries = bookie.ledgers[writer.ledger_id].entries
            entries[2] = entries[2][:-1] + b"?"
        assert at_hand(0, 9) == expected(0, 1)
        assert at_hand(2, 9) == [], "who waits for it is told what is wrong"
        for bookie in cluster.bookies.values():
            bookie.is_up = False
        assert at_hand(0, 1) == []

    asyncio.run(scenario())


def test_entries_that_lie_on_different_bookies_are_not_asked_for_at_hand() -> None:
    async def scenario() -> None:
        client = Cluster(3).client()
        writer = await written(client, 10, (3, 2, 2))
        reader = await client.open(writer.ledger_id)
        for bookie in writer.known.record.last_segment.ensemble:
            client.channel(bookie).at_hand_max = 9
        assert reader.at_hand(0, 9, bytes_max=1 << 20) == []
        assert await read(reader, 0, 9) == expected(0, 9)

    asyncio.run(scenario())


@pytest.mark.feature("F-BKC-09")
@pytest.mark.parametrize("damage", ["body", "header", "other entry", "empty"])
def test_damaged_bytes_are_passed_over_for_another_replica(damage: str) -> None:
    async def scenario() -> None:
        cluster = Cluster(3)
        client = cluster.client()
        writer = await written(client, 10)
        names = list(cluster.bookies)
        for name in names[:2]:
            entries = cluster.bookies[name].ledgers[writer.ledger_id].entries
            for i in (0, 4, 9):
                entries[i] = {
                    "body": entries[i][:-1] + b"?",
                    "header": b"?" + entries[i][1:],
                    "other entry": entries[(i + 1) % 10],
                    "empty": b"",
                }[damage]
        for _ in range(6):
            assert await bodies(await client.open(writer.ledger_id)) == expected(0, 9)
        entries = cluster.bookies[names[2]].ledgers[writer.ledger_id].entries
        entries[4] = entries[4][:-1] + b"!"
        reader = await client.open(writer.ledger_id)
        with pytest.raises(EntryUnknown):
            await read(reader, 4, 4)
        assert (await read(reader, 0, 9)) == expected(0, 3)

    asyncio.run(scenario())


def test_an_entry_that_every_replica_lacks_is_absent_and_one_silence_makes_it_unknown() -> None:
    async def scenario() -> None:
        cluster = Cluster(3)
        client = cluster.client()
        writer = await written(client, 5)
        for bookie in cluster.bookies.values():
            del bookie.ledgers[writer.ledger_id].entries[2]
        reader = await client.open(writer.ledger_id)
        with pytest.raises(NoSuchEntry):
            await read(reader, 2, 2)
        cluster.bookies["b1"].is_up = False
        with pytest.raises(BookieUnavailable):
            await read(reader, 2, 2)
        assert await read(reader, 3, 4) == expected(3, 4)

    asyncio.run(scenario())


@pytest.mark.feature("F-BKC-17")
def test_plain_reads_spread_over_the_replicas() -> None:
    async def scenario() -> None:
        cluster = Cluster(3)
        client = cluster.client(sticky_reads=False, batch_reads=False)
        writer = await written(client, 300)
        reader = await client.open(writer.ledger_id)
        for bookie in cluster.bookies.values():
            bookie.reads = 0
        for i in range(300):
            assert await read(reader, i, i) == expected(i, i)
        counts = [bookie.reads for bookie in cluster.bookies.values()]
        assert sum(counts) == 300
        assert all(90 <= count <= 110 for count in counts)

    asyncio.run(scenario())


@pytest.mark.feature("F-BKC-19")
def test_a_sticky_reader_keeps_to_one_bookie_until_it_fails() -> None:
    async def scenario() -> None:
        cluster = Cluster(3)
        client = cluster.client()
        writer = await written(client, 100)
        reader = await client.open(writer.ledger_id)

        async def asked(first: int, last: int) -> list[str]:
            for bookie in cluster.bookies.values():
                bookie.reads = 0
            for i in range(first, last + 1):
                assert await read(reader, i, i) == expected(i, i)
            return [name for name, bookie in cluster.bookies.items() if bookie.reads]

        (first,) = await asked(0, 49)
        cluster.bookies[first].is_up = False
        (second,) = await asked(50, 79)
        assert second != first
        cluster.bookies[first].is_up = True
        assert await asked(80, 99) == [second]

    asyncio.run(scenario())


def test_different_readers_stick_to_different_bookies() -> None:
    async def scenario() -> None:
        cluster = Cluster(3)
        client = cluster.client()
        writer = await written(client, 1)
        for bookie in cluster.bookies.values():
            bookie.reads = 0
        for _ in range(60):
            await read(await client.open(writer.ledger_id), 0, 0)
        assert all(bookie.reads > 5 for bookie in cluster.bookies.values())

    asyncio.run(scenario())


@pytest.mark.feature("F-BKC-18")
def test_a_slow_replica_gets_company_and_the_first_answer_is_taken() -> None:
    async def scenario() -> None:
        cluster = Cluster(3)
        client = cluster.client(speculative_read_timeout_ms=5, read_timeout_ms=10_000)
        writer = await written(client, 20)
        cluster.bookies["b1"].stall()
        cluster.bookies["b2"].stall()
        async with asyncio.timeout(5):
            for _ in range(4):
                assert await bodies(await client.open(writer.ledger_id)) == expected(0, 19)
        # No more is asked than there are replicas, and nobody waits for the slow ones.
        cluster.bookies["b1"].resume()
        cluster.bookies["b2"].resume()
        await settle()
        assert not cluster.crashes

    asyncio.run(scenario())


def test_without_speculation_a_silent_replica_costs_its_deadline_only() -> None:
    async def scenario() -> None:
        cluster = Cluster(3)
        client = cluster.client(read_timeout_ms=20)
        writer = await written(client, 5)
        cluster.bookies["b1"].stall()
        for _ in range(4):
            assert await bodies(await client.open(writer.ledger_id)) == expected(0, 4)
        cluster.bookies["b1"].resume()

    asyncio.run(scenario())


@pytest.mark.parametrize("quorum", [(3, 3, 2), (5, 3, 2)])
def test_bytes_are_bounded_and_at_least_one_entry_comes(quorum: tuple[int, int, int]) -> None:
    async def scenario() -> None:
        client = Cluster(5).client()
        writer = await written(client, 40, quorum)
        reader = await client.open(writer.ledger_id)
        assert await read(reader, 3, 30, bytes_max=1) == expected(3, 3)
        some = await read(reader, 3, 30, bytes_max=200)
        assert 1 <= len(some) <= 5
        assert some == expected(3, 2 + len(some))
        assert await read(reader, 35, 99) == expected(35, 39)

    asyncio.run(scenario())


def test_one_read_asks_for_so_many_entries_at_once_and_no_more() -> None:
    """Where neighbours lie on different bookies, each is a question of its own."""

    async def scenario() -> None:
        cluster = Cluster(4)
        client = cluster.client(read_entries_in_flight_max=7)
        writer = await written(client, 30, (4, 2, 2))
        reader = await client.open(writer.ledger_id)
        for bookie in cluster.bookies.values():
            bookie.reads = 0
        assert await read(reader, 0, 29) == expected(0, 6)
        assert sum(bookie.reads for bookie in cluster.bookies.values()) == 7
        assert await bodies(reader) == expected(0, 29)

    asyncio.run(scenario())


def test_reads_do_not_cross_into_another_segment_unasked() -> None:
    async def scenario() -> None:
        cluster = Cluster(5)
        client = cluster.client()
        writer, listener = await client.create(3, 3, 3)
        for i in range(5):
            writer.append([b"entry %d" % i])
        await listener.until_confirmed(4)
        cluster.bookies[writer.known.record.last_segment.ensemble[0]].is_up = False
        for i in range(5, 10):
            writer.append([b"entry %d" % i])
        await listener.until_confirmed(9)
        await writer.close()
        assert len(writer.known.record.segments) == 2
        reader = await client.open(writer.ledger_id)
        assert await read(reader, 2, 9) == expected(2, 4)
        assert await bodies(reader) == expected(0, 9)

    asyncio.run(scenario())


def test_a_reader_finds_copies_that_were_moved() -> None:
    async def scenario() -> None:
        cluster = Cluster(6)
        client = cluster.client()
        writer = await written(client, 5)
        reader = await client.open(writer.ledger_id)
        assert await read(reader, 0, 4) == expected(0, 4)
        record = reader.record
        spares = [name for name in cluster.bookies if name not in record.bookies()]
        catalog = client.ledgers.catalog
        known = await catalog.load(writer.ledger_id)
        source = cluster.bookies[record.segments[0].ensemble[0]].ledgers[writer.ledger_id]
        for name in spares:
            cluster.bookies[name].ledgers[writer.ledger_id] = source
        await catalog.replace(known, known.record.with_replacements(0, dict(enumerate(spares))))
        for name in record.bookies():
            cluster.bookies[name].is_up = False
        assert await read(reader, 0, 4) == expected(0, 4)

    asyncio.run(scenario())


@pytest.mark.feature("B-35")
def test_an_idle_writer_tells_its_last_confirmed() -> None:
    async def scenario() -> None:
        cluster = Cluster(3)
        writer, listener = await cluster.client(explicit_lac_interval_ms=5).create()
        reader = await cluster.client().ledgers.open_without_recovery(writer.ledger_id, password=PASSWORD)
        for i in range(4):
            writer.append([b"entry %d" % i])
        await listener.until_confirmed(3)
        async with asyncio.timeout(10):
            while await reader.read_last_confirmed() < 3:
                await settle()
        assert await read(reader, 0, 3) == expected(0, 3)
        await writer.close()
        reader.close()

    asyncio.run(scenario())


@pytest.mark.feature("F-BKC-21")
def test_last_confirmed_asks_until_covered_and_never_goes_back() -> None:
    """F51: seeded answers; what a reader sees never exceeds what is confirmed, and never falls."""

    async def scenario(seed: int) -> None:
        cluster = Cluster(3, seed=seed)
        for bookie in cluster.bookies.values():
            bookie.weather.random = cluster.random
            bookie.weather.delay_max_ms = cluster.random.choice([0, 1, 3])
        writer, listener = await cluster.client().create()
        reader = await cluster.client().ledgers.open_without_recovery(writer.ledger_id, password=PASSWORD)
        seen = [-1]
        for i in range(30):
            writer.append([b"entry %d" % i])
            if i % 3 == 0:
                now = await reader.read_last_confirmed()
                assert seen[-1] <= now <= listener.last
                seen.append(now)
                if now >= 0:
                    assert await read(reader, now, now) == expected(now, now)
        await listener.until_confirmed(29)
        await writer.close()
        reader.close()

    for seed in range(10):
        asyncio.run(scenario(seed))


def test_last_confirmed_fails_without_coverage() -> None:
    async def scenario() -> None:
        cluster = Cluster(3)
        writer, _ = await cluster.client().create()
        reader = await cluster.client().ledgers.open_without_recovery(writer.ledger_id, password=PASSWORD)
        cluster.bookies["b1"].is_up = cluster.bookies["b2"].is_up = False
        with pytest.raises(BookieUnavailable):
            await reader.read_last_confirmed()
        assert Counter(bookie.is_up for bookie in cluster.bookies.values()) == {False: 2, True: 1}
        reader.close()

    asyncio.run(scenario())
