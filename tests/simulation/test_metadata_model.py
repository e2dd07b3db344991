# SPDX-License-Identifier: Apache-2.0
"""The metadata model under its faults, and locks, elections and caches under the model: in virtual time, by seed."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from magnetar.config.metadata import MetadataSettings
from magnetar.errors import MetadataError, OutcomeUnknown, SessionLost
from magnetar.metadata.cache import RecordCache
from magnetar.metadata.coordination import Claim, ClaimState, Coordination
from magnetar.metadata.store import Change, ChangeKind, SessionEvent
from magnetar.runtime.tasks import Tasks
from tests.simulation.world.loop import SimLoop
from tests.simulation.world.metadata_model import MetadataFaults, MetadataModel, ModelStore
from tests.simulation.world.schedule import Policy, Schedule

SETTINGS = MetadataSettings(session_timeout_ms=10_000)
SEEDS = range(12)


def simulate(seed: int, check: Callable[[MetadataModel], Coroutine[Any, Any, None]]) -> MetadataModel:
    random = Random(seed)
    model = MetadataModel(random, settings=SETTINGS)
    policy = list(Policy)[seed % len(Policy)]
    with asyncio.Runner(loop_factory=lambda: SimLoop(Schedule(policy, Random(seed)))) as runner:
        runner.run(check(model))
    return model


def test_an_unknown_outcome_may_have_happened_or_not() -> None:
    carried_out = set()

    async def check(model: MetadataModel) -> None:
        model.faults = MetadataFaults(delay_tail_ms=5, request_lost_chance=0.3, answer_lost_chance=0.3)
        store, observer = model.open_session(), model.tree
        for number in range(60):
            while True:
                try:
                    await store.put("/r", b"%d" % number)
                    break
                except OutcomeUnknown:
                    held = observer.get("/r")
                    carried_out.add(held is not None and held.value == b"%d" % number)
                    break
                except MetadataError:
                    await asyncio.sleep(0.05)

    simulate(3, check)
    assert carried_out == {True, False}


def test_a_short_cut_keeps_the_session_and_tells_late_what_happened() -> None:
    async def check(model: MetadataModel) -> None:
        one, two = model.open_session(), model.open_session()
        events: list[object] = []
        one.watch_session(events.append)
        one.watch("/w", events.append)
        await one.put("/mine", b"", ephemeral=True)
        one.cut()
        await two.put("/w", b"")
        with pytest.raises(MetadataError):
            await one.get("/w")
        await asyncio.sleep(9.0)
        one.heal()
        await asyncio.sleep(1.0)
        assert events == [
            SessionEvent.DISCONNECTED,
            SessionEvent.RECONNECTED,
            Change(ChangeKind.CREATED, "/w"),
        ]
        assert await two.exists("/mine")
        await asyncio.sleep(60.0)
        assert await two.exists("/mine")

    simulate(0, check)


def test_a_long_cut_ends_the_session_exactly_once() -> None:
    async def check(model: MetadataModel) -> None:
        one, two = model.open_session(), model.open_session()
        events: list[SessionEvent] = []
        one.watch_session(events.append)
        await one.put("/mine", b"", ephemeral=True)
        one.cut()
        await asyncio.sleep(9.9)
        assert await two.exists("/mine")
        await asyncio.sleep(0.2)
        assert not await two.exists("/mine")
        await asyncio.sleep(30.0)
        assert events == [SessionEvent.DISCONNECTED]
        one.heal()
        await asyncio.sleep(1.0)
        assert events == [SessionEvent.DISCONNECTED, SessionEvent.LOST, SessionEvent.REESTABLISHED]
        await one.put("/mine", b"", ephemeral=True)

    simulate(0, check)


def test_sessions_do_not_age_while_the_store_is_out() -> None:
    async def check(model: MetadataModel) -> None:
        one = model.open_session()
        events: list[SessionEvent] = []
        one.watch_session(events.append)
        await one.put("/mine", b"", ephemeral=True)
        model.begin_outage()
        with pytest.raises(MetadataError):
            await one.get("/mine")
        await asyncio.sleep(600.0)
        model.end_outage()
        await asyncio.sleep(1.0)
        assert events == [SessionEvent.DISCONNECTED, SessionEvent.RECONNECTED]
        assert await one.exists("/mine")

    simulate(0, check)


def test_an_expired_session_is_refused_before_its_client_knows() -> None:
    async def check(model: MetadataModel) -> None:
        model.faults = MetadataFaults(delay_least_ms=100)
        store = model.open_session()
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(_outcome(store))
            await asyncio.sleep(0.05)
            model.end_session(store.session)
        assert writing.result() is SessionLost
        assert model.tree.get("/late") is None

    simulate(0, check)


async def _outcome(store: ModelStore) -> type[Exception] | None:
    try:
        await store.put("/late", b"", ephemeral=True)
    except MetadataError as error:
        return type(error)
    return None


async def _weather(model: MetadataModel, stores: list[ModelStore], until_s: float) -> None:
    """Cuts, expiries and outages by chance, then calm."""
    random = model.random
    loop = asyncio.get_running_loop()
    while loop.time() < until_s:
        await asyncio.sleep(random.expovariate(1 / 2.0))
        store = random.choice(stores)
        match random.randrange(4):
            case 0:
                model.expire(store)
            case 1:
                model.begin_outage()
                await asyncio.sleep(random.expovariate(1 / 5.0))
                model.end_outage()
            case _:
                store.cut()
                await asyncio.sleep(random.expovariate(1 / 8.0))
                store.heal()
    model.faults = MetadataFaults()


@pytest.mark.feature("F-MD-22")
@pytest.mark.parametrize("seed", SEEDS)
def test_under_any_weather_no_two_holders_share_an_epoch_and_calm_brings_one_leader(seed: int) -> None:
    held: list[tuple[int, bytes]] = []

    def on_state(claim: Claim) -> None:
        if claim.state is ClaimState.HELD:
            held.append((claim.epoch, claim.value))

    async def check(model: MetadataModel) -> None:
        model.faults = MetadataFaults(
            delay_tail_ms=20,
            request_lost_chance=0.02,
            answer_lost_chance=0.02,
            watch_delay_tail_ms=50,
            watch_twice_chance=0.1,
            watch_missed_chance=0.1,
        )
        crashes: list[BaseException] = []
        tasks = Tasks("test", lambda name, error: crashes.append(error))
        stores = [model.open_session() for _ in range(3)]
        claims = [
            Coordination(store, tasks).candidate("/leader", b"m%d" % number, epoch_path="/term", on_state=on_state)
            for number, store in enumerate(stores)
        ]
        await _weather(model, stores, until_s=300.0)
        # A missed watch costs at most one re-check.
        await asyncio.sleep(120.0)
        assert crashes == []
        leaders = [claim for claim in claims if claim.is_held]
        assert len(leaders) == 1
        assert [claim.holder for claim in claims] == [leaders[0].value] * 3
        assert max(held)[1] == leaders[0].value
        await tasks.close()

    simulate(seed, check)
    owners: dict[int, bytes] = {}
    for epoch, value in held:
        assert owners.setdefault(epoch, value) == value, f"epoch {epoch} was held by {value!r} and {owners[epoch]!r}"


@pytest.mark.feature("F-MD-04", "F-MD-05")
@pytest.mark.parametrize("seed", SEEDS)
def test_under_any_weather_a_cache_never_goes_back_and_ends_up_right(seed: int) -> None:
    async def check(model: MetadataModel) -> None:
        model.faults = MetadataFaults(
            delay_tail_ms=20, request_lost_chance=0.02, answer_lost_chance=0.02, watch_delay_tail_ms=50
        )
        stores = [model.open_session() for _ in range(2)]
        caches = [RecordCache(store, "/c", decode=int, encode=lambda value: b"%d" % value) for store in stores]
        loop = asyncio.get_running_loop()

        async def write(cache: RecordCache[int]) -> None:
            while loop.time() < 120.0:
                with contextlib.suppress(MetadataError):
                    await cache.update("/c/sum", lambda value: (value or 0) + 1)
                await asyncio.sleep(0.2)

        async def read(cache: RecordCache[int]) -> None:
            newest = -1
            while loop.time() < 120.0:
                try:
                    cached = await cache.get("/c/sum")
                except MetadataError:
                    cached = None
                if cached is not None:
                    assert cached.version >= newest, f"version {cached.version} after {newest}"
                    newest = cached.version
                await asyncio.sleep(0.05)

        async with asyncio.TaskGroup() as group:
            group.create_task(_weather(model, stores, until_s=100.0))
            for cache in caches:
                group.create_task(write(cache))
                group.create_task(read(cache))
        await asyncio.sleep(30.0)
        held = model.tree.get("/c/sum")
        assert held is not None
        for cache in caches:
            assert await cache.get("/c/sum") == (int(held.value), held.version)

    simulate(seed, check)
