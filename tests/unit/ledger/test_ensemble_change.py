# SPDX-License-Identifier: Apache-2.0
"""Bookies fail under a writer: others take their place on record first, and nothing unsafe is confirmed."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count

import pytest

from magnetar.errors import LedgerFenced, MetadataError, NoSuchLedger, NotEnoughBookies
from magnetar.ledger.paths import ledger_path
from magnetar.ledger.placement import RandomPlacement
from magnetar.ledger.quorum import Quorum
from magnetar.ledger.record import LedgerState
from magnetar.ledger.writer import LedgerWriter
from magnetar.wire.bookkeeper.codes import ReturnCode
from tests.unit.ledger.cluster import PATIENT, QUICK, Cluster, ModelClient, bodies, settle
from tests.unit.ledger.faulty_store import FaultOnce, FaultyStore


def members(writer: LedgerWriter) -> tuple[str, ...]:
    return writer.known.record.last_segment.ensemble


async def check_stored(cluster: Cluster, client: ModelClient, ledger_id: int, confirmed: int) -> None:
    """Every confirmed entry lies on an ack quorum of the bookies that the stored record names for it."""
    record = (await client.ledgers.catalog.load(ledger_id)).record
    for entry_id in range(confirmed + 1):
        index = max(i for i, segment in enumerate(record.segments) if segment.first_entry <= entry_id)
        ensemble = record.segments[index].ensemble
        named = {ensemble[member] for member in record.quorum.write_set(entry_id)}
        held = named & set(cluster.holders(ledger_id, entry_id))
        assert len(held) >= record.quorum.ack_quorum, f"entry {entry_id} is on {held} of {named}"


@pytest.mark.feature("F-BKC-11", "F-BKC-14", "F-BKC-29", "D-11")
@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_dead_bookie_is_replaced_and_writing_goes_on(victim: int) -> None:
    async def scenario() -> None:
        cluster = Cluster(5)
        client = cluster.client()
        writer, listener = await client.create()
        for i in range(10):
            writer.append([b"%d" % i])
        await listener.until_confirmed(9)
        assert len(writer.known.record.segments) == 1
        dead = members(writer)[victim]
        cluster.bookies[dead].is_up = False
        for i in range(10, 30):
            writer.append([b"%d" % i])
        await listener.until_confirmed(29)
        await settle()
        stored = (await client.ledgers.catalog.load(writer.ledger_id)).record
        assert len(stored.segments) == 2
        assert dead not in stored.last_segment.ensemble
        # The entries that were in flight lie in the new segment on all its members.
        for entry_id in range(stored.last_segment.first_entry, 30):
            assert set(cluster.holders(writer.ledger_id, entry_id)) >= set(stored.last_segment.ensemble)
        await writer.close()
        assert await bodies(await client.open(writer.ledger_id)) == [b"%d" % i for i in range(30)]

    asyncio.run(scenario())


@pytest.mark.feature("F-BKC-26")
@pytest.mark.parametrize("code", [ReturnCode.TOO_MANY_REQUESTS, ReturnCode.READ_ONLY, ReturnCode.IO_ERROR])
def test_a_bookie_that_refuses_is_replaced(code: ReturnCode) -> None:
    async def scenario() -> None:
        cluster = Cluster(4)
        writer, listener = await cluster.client().create(3, 3, 3)
        refusing = members(writer)[1]
        cluster.bookies[refusing].refuse_add = lambda ledger_id, entry_id, recovery: code
        writer.append([b"x"])
        await listener.until_confirmed(0)
        assert refusing not in members(writer)
        assert len(writer.known.record.segments) == 1  # nothing was confirmed before: the first segment is replaced

    asyncio.run(scenario())


@pytest.mark.feature("F-BKC-10")
def test_a_silent_bookie_is_replaced_after_the_deadline() -> None:
    async def scenario() -> None:
        cluster = Cluster(4)
        writer, listener = await cluster.client(add_timeout_ms=50).create(3, 3, 3)
        silent = members(writer)[2]
        cluster.bookies[silent].stall()
        for i in range(5):
            writer.append([b"%d" % i])
        await listener.until_confirmed(4)
        assert silent not in members(writer)
        cluster.bookies[silent].resume()
        await settle()
        assert listener.last == 4

    asyncio.run(scenario())


@pytest.mark.feature("F-BKC-04")
def test_a_slow_bookie_does_not_hold_the_ack_quorum_back() -> None:
    async def scenario() -> None:
        cluster = Cluster(3)
        writer, listener = await cluster.client().create(3, 3, 2)
        slow = cluster.bookies[members(writer)[0]]
        slow.stall()
        for i in range(20):
            writer.append([b"%d" % i])
        await listener.until_confirmed(19)
        assert len(writer.known.record.segments) == 1
        slow.resume()
        await settle()
        assert len(cluster.holders(writer.ledger_id, 19)) == 3

    asyncio.run(scenario())


def test_nothing_is_confirmed_while_the_store_does_not_take_the_change() -> None:
    """F52: b1, then b2, then b3 fail, and the metadata store takes no writes."""

    async def scenario() -> None:
        cluster = Cluster(6)
        store = FaultyStore(cluster.tree.open_session())
        client = cluster.client(store=store, metadata_retries_max=1_000, ensemble_change_timeout_ms=20_000)
        writer, listener = await client.create()
        writer.append([b"0"])
        await listener.until_confirmed(0)
        store.fault = lambda operation, path: "refused" if operation == "put" else None
        puts = sum(1 for operation, _ in store.calls if operation == "put")
        for dead in members(writer):
            cluster.bookies[dead].is_up = False
            for _ in range(3):
                writer.append([b"more"])
            await settle()
        # What the other two recorded bookies held before the first failure was known may be confirmed.
        stuck = listener.last
        assert stuck <= 3
        await store.until(lambda: sum(1 for operation, _ in store.calls if operation == "put") >= puts + 5)
        assert listener.last == stuck
        await check_stored(cluster, cluster.client(), writer.ledger_id, stuck)
        store.fault = lambda operation, path: None
        await listener.until_confirmed(9)
        await check_stored(cluster, cluster.client(), writer.ledger_id, 9)
        assert not {name for name, bookie in cluster.bookies.items() if not bookie.is_up} & set(members(writer))

    asyncio.run(scenario())


def test_a_store_that_stays_away_ends_the_writer() -> None:
    async def scenario() -> None:
        cluster = Cluster(4)
        store = FaultyStore(cluster.tree.open_session())
        client = cluster.client(store=store, metadata_retries_max=10_000, ensemble_change_timeout_ms=50)
        writer, listener = await client.create(3, 3, 3)
        store.fault = lambda operation, path: "refused"
        cluster.bookies[members(writer)[0]].is_up = False
        writer.append([b"x"])
        assert isinstance(await listener.until_failed(), MetadataError)
        assert listener.last == -1

    asyncio.run(scenario())


@pytest.mark.feature("F-BKC-12")
def test_entries_complete_behind_a_gap_are_sent_to_the_replacement_too() -> None:
    """F53: E4/2/2; entries after the gap are complete on a bookie that is replaced."""

    async def scenario() -> None:
        cluster = Cluster(6)
        client = cluster.client()
        writer, listener = await client.create(4, 2, 2)
        first = members(writer)
        # Entry 0 (members 0, 1) gets no answer from member 0; entries 1.. complete, 3 and 4 with member 0's answer.
        gap = cluster.bookies[first[0]]
        refused = iter([ReturnCode.TOO_MANY_REQUESTS])
        held_back = asyncio.Event()

        def refuse(ledger_id: int, entry_id: int, recovery: bool) -> int | None:
            if entry_id == 0:
                held_back.set()
                return next(refused, None)
            return None

        gap.refuse_add = refuse
        for i in range(7):
            writer.append([b"%d" % i])
        await listener.until_confirmed(6)
        await settle()
        assert first[0] not in members(writer)
        await check_stored(cluster, client, writer.ledger_id, 6)

    asyncio.run(scenario())


@pytest.mark.feature("F-BKC-05")
def test_no_bookie_left_is_an_error_and_nothing_unsafe_is_confirmed() -> None:
    async def scenario() -> None:
        cluster = Cluster(3)
        client = cluster.client()
        writer, listener = await client.create()
        for i in range(7):
            writer.append([b"%d" % i])
        await listener.until_confirmed(6)
        cluster.bookies[members(writer)[0]].is_up = False
        writer.append([b"7"])
        assert isinstance(await listener.until_failed(), NotEnoughBookies)
        with pytest.raises(NotEnoughBookies):
            writer.append([b"8"])
        # F66: closing after a failed add keeps every confirmed entry.
        await writer.close()
        reader = await client.open(writer.ledger_id)
        assert reader.last_entry == writer.last_add_confirmed >= 6
        assert reader.length == writer.length

    asyncio.run(scenario())


def test_both_bookies_of_two_fail_together() -> None:
    """F56: every add completes or fails, none waits for ever."""

    async def scenario(spares: int) -> None:
        cluster = Cluster(2 + spares)
        writer, listener = await cluster.client().create(2, 2, 2)
        for bookie in members(writer):
            cluster.bookies[bookie].is_up = False
        for i in range(200):
            writer.append([b"%d" % i])
        if spares >= 2:
            await listener.until_confirmed(199)
        else:
            assert isinstance(await listener.until_failed(), NotEnoughBookies)
        assert writer.pending_entries == 0

    for spares in range(4):
        asyncio.run(scenario(spares))


class SameSet(RandomPlacement):
    """Thinks that who has failed may serve again."""

    def replacements(
        self, quorum: Quorum, ensemble: Sequence[str], failed: Sequence[int], **_: object
    ) -> dict[int, str]:
        return {member: ensemble[member] for member in failed}


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_replacement_by_the_same_set_ends_every_add(comes_back: bool) -> None:
    """F56: who failed is chosen at once again; its entries are sent anew, or the writer gives up in the end."""

    async def scenario() -> None:
        cluster = Cluster(3)
        placement = SameSet(cluster.writable, cluster.random)
        writer, listener = await cluster.client(placement=placement, ensemble_changes_max=50).create(3, 3, 3)
        before = members(writer)
        refusals = dict.fromkeys(before, 10 if comes_back else 1_000_000)

        def refusing(bookie: str) -> Callable[[int, int, bool], int | None]:
            def refuse(ledger_id: int, entry_id: int, recovery: bool) -> int | None:
                refusals[bookie] -= 1
                return ReturnCode.TOO_MANY_REQUESTS if refusals[bookie] >= 0 else None

            return refuse

        for bookie in before:
            cluster.bookies[bookie].refuse_add = refusing(bookie)
        for i in range(200):
            if writer.error is None:
                writer.append([b"%d" % i])
        if comes_back:
            await listener.until_confirmed(199)
            await check_stored(cluster, cluster.client(), writer.ledger_id, 199)
        else:
            assert isinstance(await listener.until_failed(), NotEnoughBookies)
            assert listener.last == -1
        assert members(writer) == before
        assert writer.pending_entries == 0

    asyncio.run(scenario())


def test_who_failed_is_chosen_again_when_nobody_else_is_left() -> None:
    """F56: two fail together, then the two in their places; the first two are back, and take the ledger again."""

    async def scenario() -> None:
        cluster = Cluster(4)
        writer, listener = await cluster.client().create(2, 2, 2)
        first = members(writer)
        for bookie in first:
            cluster.bookies[bookie].is_up = False
        for i in range(100):
            writer.append([b"%d" % i])
        await listener.until_confirmed(99)
        second = members(writer)
        assert not {*first} & {*second}
        for bookie in first:
            cluster.bookies[bookie].is_up = True
        for bookie in second:
            cluster.bookies[bookie].is_up = False
        for i in range(100, 200):
            writer.append([b"%d" % i])
        await listener.until_confirmed(199)
        assert {*members(writer)} == {*first}
        assert writer.pending_entries == 0
        await check_stored(cluster, cluster.client(), writer.ledger_id, 199)

    asyncio.run(scenario())


def test_one_bookie_reported_twice_is_replaced_once() -> None:
    async def scenario() -> None:
        cluster = Cluster(5)
        writer, listener = await cluster.client().create(3, 3, 3)
        dead = members(writer)[1]
        cluster.bookies[dead].stall()
        for i in range(50):
            writer.append([b"%d" % i])
        for i in range(50):
            writer.on_added(dead, i, i, ReturnCode.IO_ERROR)
        await listener.until_confirmed(49)
        for i in range(50):
            writer.on_added(dead, i, i, ReturnCode.IO_ERROR)
        cluster.bookies[dead].resume()
        await settle()
        assert len(set(members(writer))) == 3
        assert dead not in members(writer)
        assert writer.known.version == 1

    asyncio.run(scenario())


def test_a_delayed_change_waits_until_the_quorum_needs_it() -> None:
    async def scenario() -> None:
        cluster = Cluster(5)
        writer, listener = await cluster.client(delay_ensemble_change=True).create(3, 3, 2)
        before = members(writer)
        cluster.bookies[before[0]].is_up = False
        for i in range(5):
            writer.append([b"%d" % i])
        await listener.until_confirmed(4)
        assert members(writer) == before
        cluster.bookies[before[1]].is_up = False
        for i in range(5):
            writer.append([b"%d" % i])
        await listener.until_confirmed(9)
        assert not {before[0], before[1]} & set(members(writer))

    asyncio.run(scenario())


def test_without_spares_a_delayed_change_goes_on_while_the_quorum_bears_it() -> None:
    async def scenario() -> None:
        cluster = Cluster(3)
        client = cluster.client(delay_ensemble_change=True)
        writer, listener = await client.create(3, 3, 2)
        cluster.bookies[members(writer)[0]].is_up = False
        for i in range(5):
            writer.append([b"%d" % i])
        await listener.until_confirmed(4)
        cluster.bookies[members(writer)[1]].is_up = False
        writer.append([b"x"])
        assert isinstance(await listener.until_failed(), NotEnoughBookies)
        assert listener.last == 4

    asyncio.run(scenario())


def test_a_ledger_in_recovery_ends_the_writer_at_its_change() -> None:
    """F60: the writer changes its ensemble while another client recovers."""

    async def scenario() -> None:
        cluster = Cluster(5)
        client = cluster.client()
        writer, listener = await client.create(3, 3, 3)
        catalog = cluster.client().ledgers.catalog
        known = await catalog.load(writer.ledger_id)
        await catalog.replace(known, known.record.in_recovery())
        cluster.bookies[members(writer)[0]].is_up = False
        writer.append([b"x"])
        assert isinstance(await listener.until_failed(), LedgerFenced)
        assert (await catalog.load(writer.ledger_id)).record.state is LedgerState.IN_RECOVERY

    asyncio.run(scenario())


def test_a_repair_of_an_older_segment_does_not_end_the_writer() -> None:
    async def scenario() -> None:
        cluster = Cluster(7)
        client = cluster.client()
        writer, listener = await client.create(3, 3, 3)
        writer.append([b"0"])
        await listener.until_confirmed(0)
        cluster.bookies[members(writer)[0]].is_up = False
        writer.append([b"1"])
        await listener.until_confirmed(1)
        catalog = cluster.client().ledgers.catalog
        known = await catalog.load(writer.ledger_id)
        copy = next(name for name in cluster.bookies if name not in known.record.bookies())
        await catalog.replace(known, known.record.with_replacements(0, {0: copy}))
        cluster.bookies[members(writer)[1]].is_up = False
        writer.append([b"2"])
        await listener.until_confirmed(2)
        stored = (await catalog.load(writer.ledger_id)).record
        assert stored.segments[0].ensemble[0] == copy
        assert len(stored.segments) == 3

    asyncio.run(scenario())


def test_a_deleted_ledger_takes_no_more_entries() -> None:
    """F43: the old owner must not have entries confirmed in a ledger that was fenced and deleted."""

    async def scenario() -> None:
        cluster = Cluster(5)
        writer, listener = await cluster.client().create(3, 3, 3)
        await cluster.client().ledgers.delete(writer.ledger_id)
        cluster.bookies[members(writer)[0]].is_up = False
        writer.append([b"x"])
        assert isinstance(await listener.until_failed(), NoSuchLedger)

    asyncio.run(scenario())


@pytest.mark.parametrize("fault", ["refused", "lost", "unanswered"])
def test_an_unknown_outcome_of_the_change_is_settled_by_reading_back(fault: str) -> None:
    async def scenario() -> None:
        cluster = Cluster(5)
        store = FaultyStore(cluster.tree.open_session())
        writer, listener = await cluster.client(store=store).create(3, 3, 3)
        store.fault = FaultOnce("put", ledger_path(writer.ledger_id), fault)
        cluster.bookies[members(writer)[0]].is_up = False
        writer.append([b"x"])
        await listener.until_confirmed(0)
        stored = await cluster.client().ledgers.catalog.load(writer.ledger_id)
        assert stored == writer.known
        assert stored.version == 1

    asyncio.run(scenario())


def test_changes_are_bounded() -> None:
    async def scenario() -> None:
        cluster = Cluster(8)
        for bookie in cluster.bookies.values():
            bookie.refuse_add = lambda ledger_id, entry_id, recovery: ReturnCode.TOO_MANY_REQUESTS
        writer, listener = await cluster.client(ensemble_changes_max=5).create(3, 3, 2)
        writer.append([b"x"])
        assert isinstance(await listener.until_failed(), NotEnoughBookies)
        assert writer.known.version <= 5

    asyncio.run(scenario())


@pytest.mark.parametrize("seed", range(25))
def test_under_random_failures_confirmed_entries_are_where_the_record_says(seed: int) -> None:
    """F58 and more: seeded delays, lost answers, dying bookies, metadata hiccups; confirmed in order, each once."""

    async def scenario() -> None:
        cluster = Cluster(7, seed=seed, settings=replace(QUICK, ensemble_changes_max=1_000, add_timeout_ms=40))
        random = cluster.random
        for bookie in cluster.bookies.values():
            bookie.weather.random = random
            bookie.weather.delay_max_ms = random.choice([0, 1, 3])
            bookie.weather.lost_answers = random.choice([0, 0.02])
        store = FaultyStore(cluster.tree.open_session())
        store.fault = lambda operation, path: random.choice([None] * 6 + ["refused", "lost", "unanswered"])
        client = cluster.client(store=store, delay_ensemble_change=random.random() < 0.3)
        ensemble, write = random.choice([(3, 3), (4, 2), (5, 3), (3, 1)])
        writer, listener = await client.create(ensemble, write, random.randint(1, write))
        sent = count()
        down: list[str] = []
        for _ in range(30):
            if listener.errors:
                break
            for _ in range(random.randint(1, 5)):
                writer.append([b"entry %d" % next(sent)])
            if random.random() < 0.15 and len(down) < 3:
                down.append(random.choice(cluster.writable()))
                cluster.bookies[down[-1]].is_up = False
            elif down and random.random() < 0.2:
                cluster.bookies[down.pop()].is_up = True
            await asyncio.sleep(random.choice([0, 0, 0.002]))
        await listener.until(lambda: bool(listener.errors) or writer.pending_entries == 0)
        for bookie in cluster.bookies.values():
            bookie.is_up = True
            bookie.weather.lost_answers = 0
        await check_stored(cluster, cluster.client(), writer.ledger_id, listener.last)
        reader = await cluster.client(**PATIENT).open(writer.ledger_id)
        found = await bodies(reader)
        assert len(found) >= listener.last + 1
        assert found == [b"entry %d" % i for i in range(len(found))]
        await client.die()
        assert not cluster.crashes

    asyncio.run(scenario())
