# SPDX-License-Identifier: Apache-2.0
"""A managed ledger as its broker sees it: append, persist, read back, take over, close.

Carries.
"""

import asyncio
from itertools import pairwise

import pytest

from magnetar.errors import BadName, ServiceNotReady, TopicNotFound, TopicTerminated
from magnetar.ids import EARLIEST, Position
from magnetar.ledger.placement import Affinity, affinity_of
from tests.conftest import RunOnLoop
from tests.unit.managed_ledger.owners import NAME, World, read_all


@pytest.mark.feature("F-ML-01", "F-ML-04")
def test_what_was_appended_is_persisted_in_order_and_read_back(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World()
        owner = world.owner()
        ledger = await owner.open()
        bodies = owner.publisher.append_many(50)
        await owner.publisher.rest()
        assert list(owner.publisher.persisted.values()) == bodies
        assert await read_all(ledger) == owner.publisher.persisted
        assert ledger.last_confirmed == max(owner.publisher.persisted)
        await owner.close()
        world.check()

    loop_run(scenario())


@pytest.mark.feature("F-ML-03", "F-ML-09", "F-ML-16")
def test_the_next_owner_closes_the_last_ledger_and_writes_to_a_new_one(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World()
        first = world.owner()
        await first.open()
        first.publisher.append_many(10)
        await first.publisher.rest()
        await first.die()
        second = world.owner()
        ledger = await second.open()
        assert await read_all(ledger) == first.publisher.persisted
        (span,) = list(ledger.ledgers)
        assert span.closed_ms
        second.publisher.append(b"after")
        await second.publisher.rest()
        (position,) = second.publisher.persisted
        assert position.ledger_id > span.ledger_id
        await second.close()
        world.check()

    loop_run(scenario())


@pytest.mark.feature("F-PLAT-06")
def test_one_log_lies_on_all_bookies_and_on_none_of_them_whole(loop_run: RunOnLoop) -> None:
    """Every ledger is on two of six bookies; the log is as large as all of them together."""

    async def scenario() -> None:
        world = World(bookies=6, ensemble_size=2, write_quorum=2, ack_quorum=2, ledger_entries_max=10)
        owner = world.owner()
        await owner.open()
        for turn in range(60):
            owner.publisher.append_many(7, f"t{turn}")
            await owner.publisher.rest()
        ledgers = {position.ledger_id for position in owner.publisher.persisted}
        assert len(ledgers) > 20
        shares = [
            sum(len(bookie.ledgers[ledger_id].entries) for ledger_id in ledgers if ledger_id in bookie.ledgers)
            for bookie in world.cluster.bookies.values()
        ]
        assert sum(shares) == 2 * 60 * 7, "two copies of each entry"
        assert all(0 < share < 60 * 7 * 2 // 3 for share in shares), shares
        await owner.close()
        world.check()

    loop_run(scenario())


@pytest.mark.feature("F-ISO-03")
def test_every_ledger_of_a_log_says_which_bookie_groups_it_keeps_to(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World(bookie_groups=("hot", "warm"), bookie_groups_secondary=("cold",))
        owner = world.owner()
        ledger = await owner.open()
        owner.publisher.append_many(3)
        await owner.publisher.rest()
        beside = await ledger.side_ledgers.reserve_id()
        await ledger.side_ledgers.write(beside, [b"index"], {})
        await owner.close()
        found = await world.existing_ledgers()
        catalog = world.cluster.client("auditor").ledgers.catalog
        assert len(found) == 2
        for ledger_id in found:
            custom = (await catalog.load(ledger_id)).record.custom
            assert affinity_of(custom or {}) == Affinity(("hot", "warm"), ("cold",))
        world.check()

    loop_run(scenario())


@pytest.mark.feature("F-ML-05", "F-ML-06")
def test_a_full_ledger_is_rolled_and_reads_cross_over(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World(ledger_entries_max=10)
        owner = world.owner()
        ledger = await owner.open()
        for turn in range(12):
            owner.publisher.append_many(7, f"t{turn}")
            await owner.publisher.rest()
        assert len({position.ledger_id for position in owner.publisher.persisted}) > 4
        assert await read_all(ledger) == owner.publisher.persisted
        positions = sorted(owner.publisher.persisted)
        for before, after in pairwise(positions):
            assert ledger.next_position(before) == after
            assert ledger.previous_position(after) == before
        assert ledger.entries_between(positions[3], positions[60]) == 57
        await owner.close()
        again = world.owner()
        ledger = await again.open(create=False)
        assert await read_all(ledger) == owner.publisher.persisted
        await again.close()
        world.check()

    loop_run(scenario())


def test_an_absent_log_is_not_made_unless_asked(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World()
        owner = world.owner()
        with pytest.raises(TopicNotFound):
            await owner.open(create=False)
        assert not await owner.logs.exists(NAME)
        await owner.open()
        assert await owner.logs.exists(NAME)
        assert await owner.logs.names("public/default/persistent") == [NAME]
        with pytest.raises(ServiceNotReady):
            await owner.open()
        await owner.close()
        world.check()

    loop_run(scenario())


def test_a_terminated_log_takes_no_more_and_says_where_it_ends(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World()
        owner = world.owner()
        ledger = await owner.open()
        owner.publisher.append_many(5)
        end = await ledger.terminate()
        assert end == max(owner.publisher.persisted)
        assert end.entry_id == 4
        with pytest.raises(TopicTerminated):
            owner.publisher.append(b"more")
        assert await ledger.terminate() == end
        await owner.close()
        again = world.owner()
        ledger = await again.open()
        assert ledger.is_terminated
        assert await ledger.terminate() == end
        with pytest.raises(TopicTerminated):
            again.publisher.append(b"more")
        assert await read_all(ledger) == owner.publisher.persisted
        await again.close()
        world.check()

    loop_run(scenario())


def test_properties_survive(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World()
        owner = world.owner()
        ledger = await owner.logs.open(NAME, owner.publisher, properties={"made": "by test"})
        assert ledger.properties == {"made": "by test"}
        await ledger.set_properties({"a": "1", "b": "2", "c": "3"})
        await asyncio.gather(ledger.update_properties({"a": None, "d": "4"}), ledger.update_properties({"b": "5"}))
        for refused in (ledger.set_properties, ledger.update_properties):
            with pytest.raises(BadName):
                await refused({"magnetar.deleting": "1"})
        with pytest.raises(BadName):
            await ledger.open_cursor("sub", properties={"magnetar.deleted": "true"})
        await owner.close()
        again = world.owner()
        ledger = await again.open()
        assert ledger.properties == {"b": "5", "c": "3", "d": "4"}
        assert not ledger.cursors
        await again.close()
        world.check()

    loop_run(scenario())


def test_an_empty_log_has_a_place_to_begin(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World()
        owner = world.owner()
        ledger = await owner.open()
        assert ledger.last_confirmed.entry_id == -1
        assert ledger.first_position == Position(ledger.last_confirmed.ledger_id, 0)
        assert await ledger.read(EARLIEST, entries_max=1, bytes_max=1) == []
        assert ledger.read_cached(EARLIEST, 1, 1) == []
        await owner.close()
        again = world.owner()
        ledger = await again.open()
        assert ledger.last_confirmed.entry_id == -1
        assert len(ledger.ledgers) == 1
        await again.close()
        world.check()

    loop_run(scenario())


def test_the_last_entry_before_a_time_is_found_by_halving(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World(ledger_entries_max=10)
        owner = world.owner()
        ledger = await owner.open()
        for index in range(64):
            owner.publisher.append(str(index).encode())
            await owner.publisher.rest()
        positions = sorted(owner.publisher.persisted)
        seen = []

        def before(limit: int) -> object:
            def matches(entry: object) -> bool:
                seen.append(entry)
                return int(bytes(entry.body)) < limit  # type: ignore[attr-defined]

            return matches

        for limit in (0, 1, 9, 10, 11, 63, 64, 100):
            seen.clear()
            found = await ledger.last_matching(before(limit))  # type: ignore[arg-type]
            assert found == (positions[min(limit, 64) - 1] if limit else None)
            assert len(seen) <= 7
        await owner.close()
        world.check()

    loop_run(scenario())
