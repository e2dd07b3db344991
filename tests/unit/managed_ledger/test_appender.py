# SPDX-License-Identifier: Apache-2.0
"""Ledgers that fail, are fenced, fill up or cannot be made, under the appends of a managed ledger.

Carries.
"""

import asyncio
import random
from functools import partial

import pytest

from magnetar.errors import LedgerFenced, PersistenceFailed, TooManyRequests
from magnetar.ids import Position
from magnetar.wire.bookkeeper.codes import ReturnCode
from tests.conftest import RunOnLoop
from tests.simulation.world.model_bookie import Weather
from tests.unit.ledger.cluster import settle
from tests.unit.managed_ledger.owners import NAME, World, patiently, read_all


def test_what_a_failed_ledger_does_not_hold_is_appended_again_in_order(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World()
        owner = world.owner()
        ledger = await owner.open()
        first = ledger.ledgers.last.ledger_id
        bookie = world.cluster.bookies["b1"]
        # Entries from 4 on are refused in the first ledger; the bookie itself is well.
        bookie.refuse_add = lambda ledger_id, entry_id, recovery: (
            int(ReturnCode.IO_ERROR) if ledger_id == first and entry_id >= 4 and not recovery else None
        )
        bodies = owner.publisher.append_many(10)
        await owner.publisher.rest()
        assert list(owner.publisher.persisted.values()) == bodies
        assert [p for p in owner.publisher.persisted if p.ledger_id == first] == [Position(first, i) for i in range(4)]
        assert await read_all(ledger) == owner.publisher.persisted
        await owner.close()
        world.check()

    loop_run(scenario())


def test_appends_that_come_while_a_failed_ledger_is_replaced_stay_behind_those_before(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World()
        owner = world.owner()
        ledger = await owner.open()
        first = ledger.ledgers.last.ledger_id
        world.cluster.bookies["b1"].refuse_add = lambda ledger_id, entry_id, recovery: (
            int(ReturnCode.IO_ERROR) if ledger_id == first and entry_id >= 3 and not recovery else None
        )
        sent = owner.publisher.append_many(20, "early")
        step = 0
        while len(ledger.ledgers) == 1 or step < 20:
            body = f"late-{step}".encode()
            owner.publisher.append(body)
            sent.append(body)
            await asyncio.sleep(0)
            step += 1
        await owner.publisher.rest()
        assert list(owner.publisher.persisted.values()) == sent
        assert await read_all(ledger) == owner.publisher.persisted
        await owner.close()
        world.check()

    loop_run(scenario())


@pytest.mark.feature("F-REC-03")
def test_a_ledger_closed_by_a_stranger_is_taken_as_it_ends(loop_run: RunOnLoop) -> None:
    """Auto-recovery closed our ledger further than we know: those entries are persisted, and not written twice."""

    async def scenario() -> None:
        world = World(bookies=3, ensemble_size=3, write_quorum=3, ack_quorum=3)
        owner = world.owner()
        ledger = await owner.open()
        first = ledger.ledgers.last.ledger_id
        owner.publisher.append(b"early")
        await owner.publisher.rest()
        owner.client.channel("b3").hold()
        late = owner.publisher.append_many(3, "late")
        await settle()
        stranger = world.cluster.client("stranger")
        reader = await stranger.ledgers.open(first, password=b"")
        end = reader.last_entry
        assert 0 < end <= 3, "further than the owner knows"
        reader.close()
        more = owner.publisher.append_many(2, "more")
        owner.client.channel("b3").let_go()
        await owner.publisher.rest()
        assert list(owner.publisher.persisted.values()) == [b"early", *late, *more]
        there = [position for position in owner.publisher.persisted if position.ledger_id == first]
        assert there == [Position(first, entry_id) for entry_id in range(end + 1)]
        assert await read_all(ledger) == owner.publisher.persisted
        await owner.close()
        await stranger.die()
        world.check()

    loop_run(scenario())


@pytest.mark.feature("F-ML-16", "F-REC-03")
def test_a_fenced_owner_that_the_store_does_not_answer_fails_its_appends_at_once(loop_run: RunOnLoop) -> None:
    """Not when appends have waited for as long as they may: their senders would find the next owner meanwhile."""

    async def scenario() -> None:
        world = World(append_timeout_ms=3_600_000)
        is_away = False
        old = world.owner(lambda operation, path: "refused" if is_away else None)
        old_ledger = await old.open()
        cursor = await old_ledger.open_cursor("sub", initial="earliest")
        old.publisher.append_many(3)
        await old.publisher.rest()
        is_away = True
        new = world.owner()
        ledger = await new.open()
        old.publisher.append(b"zombie")
        await old.publisher.until(lambda: bool(old.publisher.failures))
        assert isinstance(old.publisher.failures[0], LedgerFenced)
        assert old.publisher.failed == [b"zombie"]
        cursor.ack_cumulative(old_ledger.last_confirmed)
        assert not cursor.is_saved
        assert await read_all(ledger) == old.publisher.persisted
        await new.close()
        await old.die()
        world.check()

    loop_run(scenario())


@pytest.mark.feature("F-ML-16", "F-REC-03")
def test_an_owner_that_was_replaced_tells_nothing_and_changes_nothing(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World(ledger_entries_max=10)
        old = world.owner()
        old_ledger = await old.open()
        cursor = await old_ledger.open_cursor("sub", initial="earliest")
        old.publisher.append_many(8)
        await old.publisher.rest()
        new = world.owner()
        ledger = await new.open()
        for body in (b"zombie-1", b"zombie-2"):
            old.publisher.append(body)
        await old.publisher.until(lambda: bool(old.publisher.failures))
        assert isinstance(old.publisher.failures[0], LedgerFenced)
        assert old.publisher.failed == [b"zombie-1", b"zombie-2"]
        with pytest.raises(LedgerFenced):
            old.publisher.append(b"zombie-3")
        # Neither its cursor nor its trimming can write any more.
        cursor.ack_cumulative(old_ledger.last_confirmed)
        assert not cursor.is_saved
        with pytest.raises(LedgerFenced):
            await old_ledger.trim() if len(old_ledger.ledgers) > 1 else await old_ledger.set_properties({"a": "b"})
        assert await read_all(ledger) == old.publisher.persisted
        assert ledger.cursors["sub"].backlog_entries() == 8
        new.publisher.append(b"mine")
        await new.publisher.rest()
        await new.close()
        await old.die()
        world.check()

    loop_run(scenario())


def test_a_ledger_that_fills_up_before_it_is_on_record_is_rolled_then(loop_run: RunOnLoop) -> None:
    """Nothing more is appended: it is not the next append, nor the upkeep minutes later, that finds it full."""

    async def scenario() -> None:
        world = World(ledger_entries_max=5)
        owner = world.owner()
        ledger = await owner.open()
        bookies = sorted(world.cluster.bookies)
        for bookie in bookies:
            owner.client.channel(bookie).hold()
        owner.publisher.append_many(5, "first")
        await settle()
        owner.publisher.append_many(5, "second")
        await settle()
        assert len(ledger.ledgers) == 1, "the first ledger must not be on record as ended yet"
        for bookie in bookies:
            owner.client.channel(bookie).let_go()
        await owner.publisher.rest()
        await settle()
        assert [span.entries for span in ledger.ledgers] == [5, 5, 0]
        assert await read_all(ledger) == owner.publisher.persisted
        await owner.close()
        world.check()

    loop_run(scenario())


def test_a_full_ledger_is_written_past_its_limit_while_the_store_is_away(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World(ledger_entries_max=10)
        away = False
        owner = world.owner(lambda operation, path: "refused" if away else None)
        ledger = await owner.open()
        first = ledger.ledgers.last.ledger_id
        away = True
        for turn in range(4):
            owner.publisher.append_many(10, f"t{turn}")
            await owner.publisher.rest()
        assert {position.ledger_id for position in owner.publisher.persisted} == {first}
        away = False
        turn = 4
        async with asyncio.timeout(20):
            # The attempt that met the outage still waits for its next try.
            while len(ledger.ledgers) == 1:
                owner.publisher.append_many(10, f"t{turn}")
                await owner.publisher.rest()
                turn += 1
        assert await read_all(ledger) == owner.publisher.persisted
        await owner.close()
        world.check()

    loop_run(scenario())


def test_appends_that_wait_for_a_ledger_are_bounded(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World(queued_bytes_max=100)
        owner = world.owner()
        ledger = await owner.open()
        owner.publisher.append(b"first")
        await owner.publisher.rest()
        await owner.close()
        again = world.owner()
        ledger = await again.open()
        world.cluster.bookies["b1"].is_up = False
        for _ in range(10):
            again.publisher.append(b"0123456789")
        assert ledger.pending_bytes == 100
        with pytest.raises(TooManyRequests):
            again.publisher.append(b"x")
        assert len(again.publisher.waiting) == 10
        world.cluster.bookies["b1"].is_up = True
        await again.publisher.rest()
        assert ledger.pending_bytes == 0
        again.publisher.append(b"x")
        await again.publisher.rest()
        await again.close()
        world.check()

    loop_run(scenario())


def test_appends_fail_when_no_ledger_can_be_made_for_too_long(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World(append_timeout_ms=30)
        owner = world.owner()
        await owner.open()
        world.cluster.bookies["b1"].is_up = False
        owner.publisher.append_many(3)
        await owner.publisher.until(lambda: bool(owner.publisher.failures))
        assert len(owner.publisher.failed) == 3
        with pytest.raises(PersistenceFailed):
            owner.publisher.append(b"more")
        await owner.die()
        world.check()

    loop_run(scenario())


@pytest.mark.feature("F-ML-08")
def test_an_idle_ledger_is_closed_and_the_next_append_opens_another(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World(rollover_idle_ms=1)
        owner = world.owner()
        ledger = await owner.open()
        owner.publisher.append(b"once")
        await owner.publisher.rest()
        while ledger.ledgers.last.closed_ms == 0:
            ledger.upkeep()
            await asyncio.sleep(0.001)
        assert len(ledger.ledgers) == 1
        owner.publisher.append(b"again")
        await owner.publisher.rest()
        assert len({position.ledger_id for position in owner.publisher.persisted}) == 2
        await owner.close()
        world.check()

    loop_run(scenario())


@pytest.mark.feature("F-ML-14")
def test_sends_cost_no_metadata_writes(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World()
        owner = world.owner()
        await owner.open()
        before = len(owner.store.calls)
        for turn in range(20):
            owner.publisher.append_many(50, f"t{turn}")
            await owner.publisher.rest()
        assert len(owner.store.calls) == before
        await owner.close()
        world.check()

    loop_run(scenario())


def test_a_ledger_says_whose_it_is(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World()
        owner = world.owner()
        ledger = await owner.open()
        known = await owner.client.ledgers.catalog.load(ledger.ledgers.last.ledger_id)
        assert known.record.custom == {
            "application": b"pulsar",
            "component": b"managed-ledger",
            "pulsar/managed-ledger": NAME.encode(),
        }
        await owner.close()
        world.check()

    loop_run(scenario())


@pytest.mark.parametrize("seed", range(12))
def test_owners_that_come_and_go_in_bad_weather_keep_order_and_lose_nothing(seed: int) -> None:
    """Bookies delay and lose answers, owners die or are replaced while they write, ledgers roll all the time."""

    async def scenario() -> None:
        draw = random.Random(seed)
        world = World(
            bookies=4, ensemble_size=3, write_quorum=3, ack_quorum=2, ledger_entries_max=draw.choice((3, 8, 20))
        )
        for bookie in world.cluster.bookies.values():
            bookie.weather = Weather(random.Random(draw.random()), delay_max_ms=1.0, lost_answers=0.02)
        told: dict[Position, bytes] = {}
        sent: list[bytes] = []
        owners = []
        for reign in range(4):
            owner = world.owner()
            owners.append(owner)
            ledger = await patiently(owner.open)
            found = await patiently(partial(read_all, ledger))
            assert {p: b for p, b in found.items() if p in told} == told
            for turn in range(draw.randint(1, 6)):
                sent += owner.publisher.append_many(draw.randint(1, 12), f"r{reign}t{turn}")
                if draw.random() < 0.5:
                    await owner.publisher.outcome()
            if draw.random() < 0.5:
                await owner.publisher.outcome()
            if draw.random() < 0.5:
                await owner.die()
            told.update(owner.publisher.persisted)
        heir = world.owner()
        ledger = await patiently(heir.open)
        for owner in owners:
            told.update(owner.publisher.persisted)
        found = await patiently(partial(read_all, ledger))
        assert {position: found.get(position) for position in told} == told
        order = [sent.index(body) for body in found.values()]
        assert order == sorted(order), "an append overtook another"
        assert len(set(order)) == len(order), "a second copy"
        ledger.ledgers.check()
        for owner in owners:
            await owner.die()
        await heir.die()
        world.check()

    asyncio.run(scenario())
