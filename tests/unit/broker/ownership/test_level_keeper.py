# SPDX-License-Identifier: Apache-2.0
"""The leader raises the format level when all have announced it for long enough, brokers and bookies alike."""

from collections.abc import Mapping

import pytest

from magnetar.broker.ownership.level_keeper import LevelKeeper, announced_in
from magnetar.broker.ownership.load_data import decode_load, encode_load
from magnetar.broker.ownership.membership import BROKERS_ROOT
from magnetar.config.balance import BalanceSettings
from magnetar.errors import NewerFormat
from magnetar.metadata.format_level import FormatLevel
from magnetar.metadata.format_level_record import PATH, LevelRecord, encode
from magnetar.metadata.memory import MemoryStore
from magnetar.wire.bookkeeper.registry import (
    AVAILABLE,
    BOOTS,
    COOKIES,
    FORMAT_LEVEL_PROPERTY,
    READONLY,
    decode_listing,
    encode_listing,
)
from tests.unit.broker.ownership.worlds import Member, Members, run, until

SETTINGS = BalanceSettings(claim_timeout_ms=2_000, report_interval_min_ms=1_000_000)
LISTED = encode_listing((), {FORMAT_LEVEL_PROPERTY: "2"})


async def has_bookie(store: MemoryStore, name: str, listing: bytes | None, *, ours: bool = True) -> None:
    await store.put(f"{COOKIES}/{name}", b"cookie")
    if ours:
        await store.put(f"{BOOTS}/{name}", b"1")
    if listing is not None:
        await store.put(f"{AVAILABLE}/{name}", listing)


def test_members_are_brokers_that_run_and_bookies_of_ours_that_belong() -> None:
    async def scenario() -> None:
        async with Members(1) as members:
            store = members.store
            old = Member(members.tree, 7, SETTINGS, highest=1)
            await old.join()
            await has_bookie(store, "new:3181", LISTED)
            await has_bookie(store, "first-release:3181", encode_listing((), {}))
            await has_bookie(store, "away:3181", None)
            await has_bookie(store, "apache:3181", encode_listing((), {}), ours=False)
            await has_bookie(store, "full:3181", None)
            await store.put(f"{READONLY}/full:3181", LISTED)
            # It was decommissioned.
            await store.put(f"{BOOTS}/gone:3181", b"1")
            assert await announced_in(store) == {
                "broker b0:8080": 2,
                "broker b7:8080": 1,
                "bookie away:3181": 1,
                "bookie first-release:3181": 1,
                "bookie full:3181": 2,
                "bookie new:3181": 2,
            }
            await old.close()

    run(scenario)


def test_who_announces_is_read_by_those_who_know_nothing_of_it() -> None:
    assert decode_listing(LISTED) == []
    load = decode_load(b'{"webServiceUrl": "http://b:8080"}')
    assert load.format_level == 1
    assert decode_load(encode_load(load._replace(format_level=2))).format_level == 2


def test_the_level_rises_when_all_have_announced_it_for_long_enough() -> None:
    async def scenario() -> None:
        async with Members(1) as members:
            delay_ms = 3_600_000
            level = FormatLevel(members.store, 2)
            keeper = LevelKeeper(level, lambda: announced_in(members.store), lambda: True, lambda: delay_ms)
            assert not await keeper.look()
            assert not await keeper.look()
            delay_ms = 0
            old = Member(members.tree, 7, SETTINGS, highest=1)
            await old.join()
            assert not await keeper.look()
            assert (await keeper.explain())["heldBackBy"] == ["broker b7:8080"]
            await old.cluster.membership.withdraw()
            assert await keeper.look()
            assert level.current == 2
            assert (await keeper.explain())["heldBackBy"] == []
            # Whoever runs on unregistered stops, and whoever comes refuses and has left again.
            await until(lambda: [type(crash) for crash in old.crashes] == [NewerFormat])
            old.crashes.clear()
            late = Member(members.tree, 8, SETTINGS, highest=1)
            with pytest.raises(NewerFormat):
                await late.join()
            assert await members.store.children(BROKERS_ROOT) == ["b0:8080"]
            await old.close()
            await late.close()

    run(scenario)


def test_a_new_leader_takes_back_what_the_last_one_could_not_finish() -> None:
    async def scenario() -> None:
        async with Members(0) as members:
            await members.store.put(PATH, encode(LevelRecord(1, 3)))

            async def announced() -> Mapping[str, int]:
                return {"broker a": 2}

            keeper = LevelKeeper(FormatLevel(members.store, 2), announced, lambda: True, lambda: 10**9)
            assert not await keeper.look()
            await FormatLevel(members.store, 1).check()

    run(scenario)
