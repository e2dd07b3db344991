# SPDX-License-Identifier: Apache-2.0
"""Recovery over model bookies: fencing races, gaps, failures of bookies and of recoverers, several at once."""

import asyncio
from dataclasses import replace
from itertools import count

import pytest

from magnetar.errors import BookieUnavailable, LedgerFenced, MagnetarError
from magnetar.ledger.record import LedgerState
from magnetar.ledger.segments import Segment
from magnetar.wire.bookkeeper.codes import ReturnCode
from tests.unit.broker.virtual_time import run as run_in_no_time
from tests.unit.ledger.cluster import PATIENT, QUICK, Cluster, Confirmations, ModelClient, bodies, settle
from tests.unit.ledger.faulty_store import FaultyStore


async def unconfirmed(cluster: Cluster, client: ModelClient, *, confirmed: int, tail: dict[int, list[int]]) -> int:
    """An abandoned ledger 3/3/2: `confirmed` entries everywhere, then entry → members that hold it."""
    writer, listener = await client.create(3, 3, 2)
    for i in range(confirmed):
        writer.append([b"%d" % i])
    await listener.until_confirmed(confirmed - 1)
    await settle()
    ensemble = writer.known.record.last_segment.ensemble

    for i, bookie in enumerate(ensemble):
        cluster.bookies[bookie].refuse_add = lambda ledger_id, entry_id, recovery, i=i: (  # type: ignore[misc]
            None if recovery or i in tail.get(entry_id, []) else ReturnCode.IO_ERROR
        )
    for channel in client.channels.values():
        channel.close()
    for i in range(confirmed, max(tail, default=-1) + 1):
        writer.append([b"%d" % i])
    await settle()
    await client.die()
    return writer.ledger_id


def test_an_entry_that_reaches_the_unfenced_bookie_late_is_not_confirmed() -> None:
    """F49: fence to b3 lost, reads of b1 and b3 negative, closed empty, then the writer's add reaches b3."""

    async def scenario() -> None:
        cluster = Cluster(3)
        old, new = cluster.client("old"), cluster.client("new")
        writer, listener = await old.create(3, 3, 2)
        b1, b2, b3 = writer.known.record.last_segment.ensemble
        old.channel(b1).hold()
        old.channel(b3).hold()
        writer.append([b"e0"])
        await settle()
        assert cluster.holders(writer.ledger_id, 0) == [b2]
        new.channel(b3).lost.add("last_confirmed")
        new.channel(b2).lost.add("read")
        reader = await new.open(writer.ledger_id)
        assert reader.last_entry == -1
        old.channel(b1).let_go()
        old.channel(b3).let_go()
        assert isinstance(await listener.until_failed(), LedgerFenced)
        assert listener.last == -1

    asyncio.run(scenario())


def test_recovery_of_an_empty_last_segment_with_a_bookie_down() -> None:
    """F50: fragments 0:{b1,b2} 1000:{b2,b3} 2000:{b4,b5}, the last one empty."""

    async def scenario() -> None:
        cluster = Cluster(6)
        client = cluster.client()
        writer, _ = await client.create(2, 2, 1)
        catalog = client.ledgers.catalog
        segments = (Segment(0, ("b1", "b2")), Segment(1000, ("b2", "b3")), Segment(2000, ("b4", "b5")))
        known = await catalog.load(writer.ledger_id)
        record = replace(known.record, segments=segments, quorum=known.record.quorum._replace(ack_quorum=2))
        await catalog.replace(known, record)
        cluster.bookies["b5"].is_up = False
        reader = await client.open(writer.ledger_id)
        assert reader.last_entry == 1999
        assert reader.record.segments == segments[:2]

    asyncio.run(scenario())


@pytest.mark.feature("F-REC-06")
def test_an_entry_on_one_replica_is_restored_to_all() -> None:
    async def scenario() -> None:
        cluster = Cluster(3)
        ledger_id = await unconfirmed(cluster, cluster.client(), confirmed=3, tail={3: [1], 4: [1, 2]})
        assert len(cluster.holders(ledger_id, 3)) == 1
        # The bookie that holds the third entry answers before two negatives do.
        for name, bookie in cluster.bookies.items():
            if name not in cluster.holders(ledger_id, 3):
                bookie.weather.delay_max_ms = 20
        reader = await cluster.client().open(ledger_id)
        await asyncio.sleep(0.1)
        assert reader.last_entry == 4
        assert len(cluster.holders(ledger_id, 3)) == len(cluster.holders(ledger_id, 4)) == 3
        copies = {cluster.bookies[name].ledgers[ledger_id].entries[3] for name in cluster.holders(ledger_id, 3)}
        assert len(copies) == 1

    run_in_no_time(scenario())


@pytest.mark.feature("F-REC-06", "D-07")
def test_what_a_single_bookie_holds_is_written_again_where_its_absence_is_not_proven() -> None:
    """One of three has the entry, one denies it, one is silent: no ack quorum ever held it, and it is kept."""

    async def scenario() -> None:
        cluster = Cluster(4)
        ledger_id = await unconfirmed(cluster, cluster.client(), confirmed=3, tail={3: [1]})
        (holder,) = cluster.holders(ledger_id, 3)
        silent = next(name for name in cluster.holders(ledger_id, 2) if name != holder)
        cluster.bookies[silent].is_up = False
        reader = await cluster.client().open(ledger_id)
        assert reader.last_entry == 3
        await settle()
        assert len(cluster.holders(ledger_id, 3)) >= 2, "an ack quorum"
        assert await bodies(reader) == [b"%d" % i for i in range(4)]

    asyncio.run(scenario())


@pytest.mark.feature("F-REC-06")
def test_a_confirmed_tail_is_found_whatever_the_confirmed_number_says() -> None:
    async def scenario() -> None:
        cluster = Cluster(3)
        ledger_id = await unconfirmed(
            cluster, cluster.client(), confirmed=1, tail={i: [[0, 1], [1, 2], [0, 2]][i % 3] for i in range(1, 12)}
        )
        reader = await cluster.client().open(ledger_id)
        await settle()
        assert reader.last_entry == 11
        assert all(len(cluster.holders(ledger_id, i)) == 3 for i in range(1, 12))
        assert await bodies(reader) == [b"%d" % i for i in range(12)]

    asyncio.run(scenario())


@pytest.mark.feature("F-REC-07")
def test_recovery_fails_when_nothing_can_be_proven_and_succeeds_later() -> None:
    """F62: the only copy of an entry is on a bookie that is down; recovery names it, and resumes when it is back."""

    async def scenario() -> None:
        cluster = Cluster(2)
        client = cluster.client("old")
        writer, listener = await client.create(2, 2, 1)
        keeper, other = writer.known.record.last_segment.ensemble
        client.channel(other).hold()
        for i in range(6):
            writer.append([b"%d" % i])
        await listener.until_confirmed(5)
        await client.die()
        cluster.bookies[keeper].is_up = False
        with pytest.raises(BookieUnavailable, match=keeper):
            await cluster.client().open(writer.ledger_id)
        assert (await cluster.client().ledgers.catalog.load(writer.ledger_id)).record.state is LedgerState.IN_RECOVERY
        cluster.bookies[keeper].is_up = True
        reader = await cluster.client().open(writer.ledger_id)
        assert reader.last_entry == 5

    asyncio.run(scenario())


@pytest.mark.parametrize("hangs", [False, True])
def test_one_dead_bookie_of_three_does_not_stop_recovery(hangs: bool) -> None:
    """F57: coverage is enough; a bookie that never answers is not waited for."""

    async def scenario() -> None:
        cluster = Cluster(3)
        client = cluster.client()
        writer, listener = await client.create(3, 3, 2)
        for i in range(5):
            writer.append([b"%d" % i])
        await listener.until_confirmed(4)
        await settle()
        victim = cluster.bookies[writer.known.record.last_segment.ensemble[0]]
        victim.is_up = hangs
        if hangs:
            victim.stall()
        reader = await cluster.client().open(writer.ledger_id)
        assert reader.last_entry == 4

    asyncio.run(scenario())


def test_write_quorum_equal_to_ack_quorum_recovers_with_one_bookie_dead() -> None:
    async def scenario() -> None:
        cluster = Cluster(3)
        client = cluster.client()
        writer, listener = await client.create(2, 2, 2)
        for i in range(5):
            writer.append([b"%d" % i])
        await listener.until_confirmed(4)
        cluster.bookies[writer.known.record.last_segment.ensemble[1]].is_up = False
        reader = await cluster.client().open(writer.ledger_id)
        assert reader.last_entry == 4
        assert await bodies(reader) == [b"%d" % i for i in range(5)]

    asyncio.run(scenario())


def test_one_bookie_in_limbo_decides_nothing() -> None:
    """F63, F75: its misses are unknown, its entries count."""

    async def scenario() -> None:
        cluster = Cluster(3)
        client = cluster.client()
        writer, listener = await client.create(3, 3, 3)
        for i in range(3):
            writer.append([b"%d" % i])
        await listener.until_confirmed(2)
        for name, bookie in cluster.bookies.items():
            bookie.in_limbo = True
            if name != "b1":
                bookie.ledgers.clear()
        # b1 alone holds entry 2; the others would once have said "no such ledger" and cut it off.
        cluster.bookies["b1"].ledgers[writer.ledger_id].entries.pop(1)
        with pytest.raises(BookieUnavailable):
            await cluster.client().open(writer.ledger_id)
        assert not (await client.ledgers.catalog.load(writer.ledger_id)).record.is_closed

    asyncio.run(scenario())


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_gaps_on_a_replica_do_not_shorten_the_ledger(missing: int) -> None:
    """F61: one bookie misses every third entry."""

    async def scenario() -> None:
        cluster = Cluster(3)
        tail = {i: [0, 1, 2] if i % 3 else [m for m in (0, 1, 2) if m != missing] for i in range(1, 20)}
        ledger_id = await unconfirmed(cluster, cluster.client(), confirmed=1, tail=tail)
        reader = await cluster.client().open(ledger_id)
        assert reader.last_entry == 19
        assert await bodies(reader) == [b"%d" % i for i in range(20)]

    asyncio.run(scenario())


def test_a_bookie_failing_the_write_back_is_replaced_on_the_closing_record() -> None:
    """F54: the new segment is stored with the close; the next recoverer and every reader find all entries."""

    async def scenario() -> None:
        cluster = Cluster(5)
        ledger_id = await unconfirmed(cluster, cluster.client(), confirmed=3, tail={i: [0, 1] for i in range(3, 9)})
        ensemble = (await cluster.client().ledgers.catalog.load(ledger_id)).record.last_segment.ensemble
        cluster.bookies[ensemble[0]].refuse_add = lambda ledger_id, entry_id, recovery: ReturnCode.IO_ERROR
        reader = await cluster.client().open(ledger_id)
        assert reader.last_entry == 8
        assert ensemble[0] not in reader.record.last_segment.ensemble
        assert len(reader.record.segments) == 2
        cluster.bookies[ensemble[0]].is_up = False
        assert await bodies(reader) == [b"%d" % i for i in range(9)]

    asyncio.run(scenario())


def test_a_silent_bookie_during_write_back_never_shortens_the_ledger() -> None:
    """F55: the replacement is slow and knows nothing; recovery is started again."""

    async def scenario() -> None:
        cluster = Cluster(4)
        ledger_id = await unconfirmed(cluster, cluster.client(), confirmed=2, tail={2: [0, 1], 3: [0, 1]})
        known = await cluster.client().ledgers.catalog.load(ledger_id)
        spare = next(name for name in cluster.bookies if name not in known.record.last_segment.ensemble)
        cluster.bookies[known.record.last_segment.ensemble[2]].is_up = False
        cluster.bookies[spare].stall()
        first = cluster.client(add_timeout_ms=20)
        try:
            reader = await first.open(ledger_id)
        except BookieUnavailable:
            cluster.bookies[spare].resume()
            reader = await cluster.client().open(ledger_id)
        assert reader.last_entry == 3

    asyncio.run(scenario())


@pytest.mark.feature("F-REC-10")
def test_the_writer_closes_while_another_recovers() -> None:
    """F65: one value wins; the loser learns it or is told that it lost."""

    async def scenario(seed: int) -> None:
        cluster = Cluster(3, seed=seed)
        for bookie in cluster.bookies.values():
            bookie.weather.random = cluster.random
            bookie.weather.delay_max_ms = 2
        old, new = cluster.client("old"), cluster.client("new")
        writer, listener = await old.create()
        for i in range(5):
            writer.append([b"%d" % i])
        await asyncio.sleep(cluster.random.random() * 0.004)
        outcomes = await asyncio.gather(writer.close(), new.open(writer.ledger_id), return_exceptions=True)
        reader = outcomes[1]
        assert not isinstance(reader, BaseException)
        stored = (await new.ledgers.catalog.load(writer.ledger_id)).record
        assert reader is not None
        assert stored.is_closed
        assert stored.last_entry == reader.last_entry >= listener.last
        if outcomes[0] is None:
            assert stored.last_entry == listener.last
        else:
            assert isinstance(outcomes[0], MagnetarError)

    for seed in range(30):
        asyncio.run(scenario(seed))


@pytest.mark.feature("F-REC-01")
@pytest.mark.parametrize("seed", range(25))
def test_writer_and_recoverers_in_any_order_agree(seed: int) -> None:
    """F59, F64: seeded delays and losses; one writer, three recoverers of which some die."""

    async def scenario() -> None:
        cluster = Cluster(5, seed=seed, settings=replace(QUICK, recovery_read_timeout_ms=60, add_timeout_ms=30))
        random = cluster.random
        for bookie in cluster.bookies.values():
            bookie.weather.random = random
            bookie.weather.delay_max_ms = random.choice([0, 1, 4])
        old = cluster.client("old")
        ensemble, write, ack = random.choice([(3, 3, 2), (5, 3, 2), (3, 2, 2), (4, 3, 3), (3, 3, 1)])
        writer, listener = await old.create(ensemble, write, ack)
        ends: list[int] = []
        recoverers: list[asyncio.Task[None]] = []

        async def recover(client: ModelClient) -> None:
            try:
                ends.append((await client.open(writer.ledger_id)).last_entry)
            except BookieUnavailable:
                return

        sent = count()
        clients = [cluster.client(f"recoverer {i}") for i in range(3)]
        waiting = list(clients)
        for _ in range(12):
            if writer.error is None:
                for _ in range(random.randint(1, 4)):
                    writer.append([b"entry %d" % next(sent)])
            if waiting and random.random() < 0.4:
                recoverers.append(asyncio.create_task(recover(waiting.pop())))
            if random.random() < 0.15 and recoverers:
                dying = random.randrange(len(recoverers))
                recoverers[dying].cancel()
            for bookie in cluster.bookies.values():
                bookie.weather.lost_answers = random.choice([0, 0, 0.1])
            await asyncio.sleep(random.choice([0, 0.001, 0.003]))
        for bookie in cluster.bookies.values():
            bookie.weather.lost_answers = 0
        await asyncio.gather(*recoverers, return_exceptions=True)
        reader = await cluster.client("last", **PATIENT).open(writer.ledger_id)
        ends.append(reader.last_entry)
        await settle()
        assert len(set(ends)) == 1, ends
        assert listener.last <= reader.last_entry
        found = await bodies(reader)
        assert found == [b"entry %d" % i for i in range(len(found))]
        assert len(found) == reader.last_entry + 1
        for client in [old, *clients]:
            await client.die()
        assert not cluster.crashes

    asyncio.run(scenario())


def test_a_recoverer_may_die_at_any_call() -> None:
    """Every request and every metadata call in turn is the last that the first recoverer makes."""

    async def scenario(nth: int) -> bool:
        cluster = Cluster(4)
        ledger_id = await unconfirmed(cluster, cluster.client("old"), confirmed=2, tail={2: [0, 1], 3: [1, 2], 4: [1]})
        store = FaultyStore(cluster.tree.open_session())
        client = cluster.client("dying", store=store)
        calls = 0
        died = asyncio.Event()

        def on_call(*about: object) -> None:
            nonlocal calls
            if about[0] == "dying" or about[0] == "store":
                calls += 1
                if calls == nth:
                    died.set()

        for bookie in cluster.bookies.values():
            bookie.on_request = on_call

        def on_store_call(operation: str, path: str) -> None:
            on_call("store")

        store.fault = on_store_call
        task = asyncio.create_task(client.open(ledger_id))
        ended = asyncio.create_task(died.wait())
        await asyncio.wait([task, ended], return_when=asyncio.FIRST_COMPLETED)
        task.cancel()
        ended.cancel()
        await client.die()
        await asyncio.gather(task, ended, return_exceptions=True)
        reader = await cluster.client("next").open(ledger_id)
        assert reader.last_entry in (3, 4)
        stored = await cluster.client().ledgers.catalog.load(ledger_id)
        assert stored.record.last_entry == reader.last_entry
        assert await bodies(reader) == [b"%d" % i for i in range(reader.last_entry + 1)]
        return calls >= nth

    nth = 1
    while asyncio.run(scenario(nth)):
        nth += 1
    assert nth > 15


@pytest.mark.feature("F-REC-15")
def test_recovery_names_no_other_bookies_without_need() -> None:
    async def scenario() -> None:
        cluster = Cluster(5)
        writer, listener = await cluster.client().create()
        writer.append([b"x"])
        await listener.until_confirmed(0)
        before = writer.known.record.segments
        reader = await cluster.client().open(writer.ledger_id)
        assert reader.record.segments == before

    asyncio.run(scenario())


def test_a_second_listener_is_not_told_of_the_first() -> None:
    """Two ledgers of one client share channels and nothing else."""

    async def scenario() -> None:
        client = Cluster(3).client()
        (one, first), (two, second) = await client.create(), await client.create()
        for i in range(10):
            one.append([b"one %d" % i])
            if i % 2:
                two.append([b"two %d" % i])
        await first.until_confirmed(9)
        await second.until_confirmed(4)
        assert isinstance(first, Confirmations)
        assert (one.last_add_confirmed, two.last_add_confirmed) == (9, 4)

    asyncio.run(scenario())
