# SPDX-License-Identifier: Apache-2.0
"""Owners that meet: opening at once, rolling against a take-over, adds that fail one by one; seeded interleavings.

Carries.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from magnetar.errors import LedgerFenced, MagnetarError, NoSuchLedger
from magnetar.ids import Position
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.metadata.store import MetadataStore, Record, Stored
from magnetar.wire.bookkeeper.codes import ReturnCode
from tests.unit.ledger.cluster import settle
from tests.unit.ledger.faulty_store import FaultyStore
from tests.unit.managed_ledger.owners import Owner, World, patiently, read_all


class UnhurriedStore(FaultyStore):
    """Every call takes a drawn number of steps before and after it is carried out, so that two owners interleave."""

    def __init__(self, inner: MetadataStore, draw: random.Random) -> None:
        super().__init__(inner)
        self._draw = draw

    async def _steps(self) -> None:
        for _ in range(self._draw.choice((0, 0, 1, 3, 10))):
            await asyncio.sleep(0)

    async def get(self, path: str) -> Record | None:
        await self._steps()
        found = await super().get(path)
        await self._steps()
        return found

    async def put(
        self,
        path: str,
        value: bytes,
        *,
        expected_version: int | None = None,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> Stored:
        await self._steps()
        stored = await super().put(
            path, value, expected_version=expected_version, ephemeral=ephemeral, sequential=sequential
        )
        await self._steps()
        return stored


def unhurried(world: World, draw: random.Random) -> Owner:
    owner = world.owner()
    store = UnhurriedStore(owner.store.inner, draw)
    return Owner(world, f"unhurried{draw.random()}", world.settings, store=store)


async def reign(owner: Owner, draw: random.Random, sent: list[bytes], name: str) -> ManagedLedger | None:
    """Open, write, ack, trim, until another owner takes over or all is done."""
    try:
        ledger = await patiently(owner.open)
        cursor = await ledger.open_cursor("sub", initial="earliest")
        for turn in range(4):
            sent += owner.publisher.append_many(draw.randint(1, 7), f"{name}t{turn}")
            await owner.publisher.outcome()
            if owner.publisher.failures:
                return None
            if draw.random() < 0.5 and owner.publisher.persisted:
                cursor.ack(draw.choice(sorted(owner.publisher.persisted)))
                await cursor.flush()
    except LedgerFenced:
        return None
    except MagnetarError as error:
        if not error.retryable:
            raise
        return None
    return ledger


@pytest.mark.feature("F-ML-16", "F-TOP-15")
@pytest.mark.parametrize("seed", range(25))
def test_two_owners_at_once_never_both_tell_of_one_place(seed: int) -> None:
    async def scenario() -> None:
        draw = random.Random(seed)
        world = World(ledger_entries_max=draw.choice((2, 5)))
        sent: list[bytes] = []
        owners = [unhurried(world, random.Random(draw.random())) for _ in range(2)]
        await asyncio.gather(
            *(reign(owner, random.Random(draw.random()), sent, f"o{i}") for i, owner in enumerate(owners))
        )
        told: dict[Position, bytes] = {}
        for owner in owners:
            assert not told.keys() & owner.publisher.persisted.keys(), "two owners told of one place"
            told |= owner.publisher.persisted
        for owner in owners:
            await owner.die()
        heir = world.owner()
        ledger = await heir.open()
        found = await read_all(ledger)
        assert {position: found.get(position) for position in told} == told
        assert len(set(found.values())) == len(found), "a second copy"
        for index in range(2):
            mine = [body for body in found.values() if body.startswith(f"o{index}".encode())]
            assert mine == [body for body in sent if body in set(mine)], "an append overtook another"
        ledger.cursors["sub"].state.check()
        await heir.close()
        world.check()

    asyncio.run(scenario())


async def rolling_with_cursor(owner: Owner) -> None:
    ledger = await owner.open()
    cursor = await ledger.open_cursor("sub", initial="earliest")
    for turn in range(3):
        owner.publisher.append_many(6, f"t{turn}")
        await owner.publisher.outcome()
        cursor.ack(sorted(owner.publisher.persisted)[turn * 2])
        await cursor.flush()


def nth_add(nth: int, code: int) -> Callable[[int, int, bool], int | None]:
    left = nth

    def refuse(ledger_id: int, entry_id: int, recovery: bool) -> int | None:
        nonlocal left
        left -= 1
        return code if left == 0 else None

    return refuse


def test_an_add_that_fails_anywhere_is_made_good_without_a_trace() -> None:
    """Entries of data and cursor ledgers alike: whichever add is refused, everything is told, once, in order."""

    async def sweep() -> None:
        world = World(ledger_entries_max=5)
        owner = world.owner()
        await rolling_with_cursor(owner)
        adds = world.cluster.bookies["b1"].adds
        await owner.die()
        for nth in range(1, adds + 1):
            world = World(ledger_entries_max=5)
            world.cluster.bookies["b1"].refuse_add = nth_add(nth, int(ReturnCode.IO_ERROR))
            owner = world.owner()
            await rolling_with_cursor(owner)
            assert not owner.publisher.failures
            assert list(owner.publisher.persisted.values()) == [
                f"t{turn}-{index}".encode() for turn in range(3) for index in range(6)
            ]
            acked = [sorted(owner.publisher.persisted)[turn * 2] for turn in range(3)]
            await owner.die()
            heir = world.owner()
            ledger = await heir.open()
            assert await read_all(ledger) == owner.publisher.persisted
            assert all(ledger.cursors["sub"].is_acked(position) for position in acked)
            await heir.close()
            world.check()

    asyncio.run(sweep())


@pytest.mark.feature("B-32")
def test_lost_data_stops_the_log_unless_it_may_be_skipped() -> None:
    async def scenario() -> None:
        world = World(ledger_entries_max=5)
        owner = world.owner()
        ledger = await owner.open()
        for turn in range(8):
            owner.publisher.append_many(6, f"t{turn}")
            await owner.publisher.rest()
            await settle()
        await owner.close()
        assert len(ledger.ledgers) > 3
        lost = next(iter(ledger.ledgers)).ledger_id
        await owner.store.delete(f"/ledgers/00/0000/L{lost:04d}")
        strict = world.owner()
        ledger = await strict.open()
        with pytest.raises(NoSuchLedger):
            await read_all(ledger)
        await strict.close()
        lenient = world.owner(skip_lost_data=True)
        ledger = await lenient.open()
        found = await read_all(ledger)
        assert found == {p: b for p, b in owner.publisher.persisted.items() if p.ledger_id != lost}
        await lenient.close()
        world.check()

    asyncio.run(scenario())


@pytest.mark.feature("F-ML-16")
def test_with_two_of_three_bookies_down_appends_are_refused_and_nothing_told_is_lost() -> None:
    """F95."""

    async def scenario() -> None:
        world = World(bookies=3, ensemble_size=3, write_quorum=3, ack_quorum=2, append_timeout_ms=100)
        world.cluster.settings = replace(world.cluster.settings, add_timeout_ms=20, recovery_read_timeout_ms=20)
        owner = world.owner()
        await owner.open()
        told = owner.publisher.append_many(5, "before")
        await owner.publisher.rest()
        for name in ("b1", "b2"):
            world.cluster.bookies[name].is_up = False
        owner.publisher.append_many(5, "meanwhile")
        await owner.publisher.until(lambda: bool(owner.publisher.failures))
        assert not any(body.startswith(b"meanwhile") for body in owner.publisher.persisted.values())
        await owner.die()
        for name in ("b1", "b2"):
            world.cluster.bookies[name].is_up = True
        heir = world.owner()
        found = await read_all(await patiently(heir.open))
        assert {position: found.get(position) for position in owner.publisher.persisted} == owner.publisher.persisted
        assert list(owner.publisher.persisted.values()) == told
        assert len(set(found.values())) == len(found), "a second copy"
        await heir.close()

    asyncio.run(scenario())


@pytest.mark.feature("F-CUR-01")
def test_properties_of_a_cursor_that_are_changed_while_acks_are_saved_are_all_or_nothing() -> None:
    """F88."""

    async def scenario() -> None:
        world = World(cursor_ledger_entries_max=2)
        owner = world.owner()
        ledger = await owner.open()
        cursor = await ledger.open_cursor("sub", initial="earliest")
        owner.publisher.append_many(40)
        await owner.publisher.rest()

        async def acknowledge(position: Position) -> None:
            cursor.ack(position)
            await cursor.flush()

        changes = [{"number": str(number), "twin": str(number)} for number in range(20)]
        positions = sorted(owner.publisher.persisted)[:20]
        await asyncio.gather(
            *(cursor.set_user_properties(change) for change in changes), *(acknowledge(each) for each in positions)
        )
        assert cursor.user_properties in changes
        await owner.die()
        heir = world.owner()
        again = (await heir.open()).cursors["sub"]
        assert again.user_properties == cursor.user_properties
        assert all(again.is_acked(position) for position in positions)
        await heir.close()
        world.check()

    asyncio.run(scenario())
