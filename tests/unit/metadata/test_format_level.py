# SPDX-License-Identifier: Apache-2.0
"""The format level: rises when all can read it, never falls, and is read before anything is written."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import pytest

from magnetar.config.metadata import MetadataSettings
from magnetar.errors import CannotStart, NewerFormat
from magnetar.metadata.format_level import FormatLevel
from magnetar.metadata.format_level_record import (
    PATH,
    LevelRecord,
    announced_level,
    common_level,
    decode,
    encode,
    held_back_by,
)
from magnetar.metadata.memory import MemoryStore, MemoryTree
from magnetar.runtime.clock import SystemClock


def new_tree() -> MemoryTree:
    return MemoryTree(SystemClock(), MetadataSettings())


def saying(announced: Mapping[str, int]) -> Callable[[], Awaitable[Mapping[str, int]]]:
    async def answer() -> Mapping[str, int]:
        return announced

    return answer


def test_a_store_without_the_record_is_of_the_first_level() -> None:
    assert decode(None) == LevelRecord(1, 0)
    assert decode(encode(LevelRecord(3, 4))) == LevelRecord(3, 4)


@pytest.mark.parametrize("value", [b"", b"2", b"{}", b'{"version": 1, "level": "x", "proposed": 0}', b"\xff"])
def test_a_damaged_record_stops_the_start(value: bytes) -> None:
    with pytest.raises(CannotStart, match="Nothing was changed"):
        decode(value)


def test_a_record_of_a_later_form_is_refused() -> None:
    with pytest.raises(NewerFormat, match="start the newer version"):
        decode(b'{"version": 2, "level": 1, "proposed": 0}')


@pytest.mark.parametrize(("said", "level"), [(None, 1), ("", 1), ("x", 1), ("2", 2), (3, 3), (-7, 1)])
def test_what_a_member_says_is_not_trusted_to_be_a_number(said: object, level: int) -> None:
    assert announced_level(said) == level


def test_the_slowest_member_decides() -> None:
    announced = {"broker a": 3, "bookie b": 2, "bookie c": 2}
    assert common_level(announced) == 2
    assert common_level({}) == 1
    assert held_back_by(announced, 3) == ["bookie b", "bookie c"]


def test_it_rises_when_all_can_read_it_and_never_falls(loop_run: Callable[..., None]) -> None:
    async def scenario() -> None:
        store = MemoryStore(new_tree())
        level = FormatLevel(store, 2)
        await level.check()
        assert level.current == 1
        assert not await level.raise_to(2, saying({"broker a": 2, "bookie b": 1}))
        assert level.current == 1
        # Nothing is left of the attempt that would keep the old ones out.
        await FormatLevel(store, 1).check()
        assert await level.raise_to(2, saying({"broker a": 2}))
        assert level.current == 2
        assert not await level.raise_to(1, saying({"broker a": 2}))
        found = await store.get(PATH)
        assert found is not None
        assert decode(found.value) == LevelRecord(2, 0)
        await store.close()

    loop_run(scenario())


def test_an_old_version_refuses_with_one_sentence_and_changes_nothing(loop_run: Callable[..., None]) -> None:
    async def scenario() -> None:
        store = MemoryStore(new_tree())
        await store.put(PATH, encode(LevelRecord(2)))
        with pytest.raises(NewerFormat, match=r"level 2 .* reads up to 1: start the newer version"):
            await FormatLevel(store, 1).check()
        found = await store.get(PATH)
        assert found is not None
        assert found.version == 0
        await store.close()

    loop_run(scenario())


@pytest.mark.parametrize("moment", ["before", "between", "after"])
def test_who_joins_while_the_level_rises_is_seen_or_sees_it(loop_run: Callable[..., None], moment: str) -> None:
    """At whatever moment of the rise an old member registers: it refuses, or the level stays."""

    async def scenario() -> None:
        store = MemoryStore(new_tree())
        members = {"broker new": 2}

        async def join() -> None:
            members["broker old"] = 1
            try:
                await FormatLevel(store, 1).check()
            except NewerFormat:
                del members["broker old"]

        async def announced() -> Mapping[str, int]:
            if moment == "between":
                await join()
            return dict(members)

        if moment == "before":
            await join()
        raised = await FormatLevel(store, 2).raise_to(2, announced)
        if moment == "after":
            await join()
        assert ("broker old" in members) != raised
        await store.close()

    loop_run(scenario())


def test_a_running_member_follows_the_level_and_ends_when_it_cannot(loop_run: Callable[..., None]) -> None:
    async def scenario() -> None:
        tree = new_tree()
        leader, follower = MemoryStore(tree), MemoryStore(tree)
        new, old = FormatLevel(follower, 2), FormatLevel(follower, 1)
        following = asyncio.create_task(new.follow())
        ending = asyncio.create_task(old.follow())
        await asyncio.sleep(0)
        await FormatLevel(leader, 2).raise_to(2, saying({"broker new": 2}))
        with pytest.raises(NewerFormat):
            await ending
        async with asyncio.timeout(10):
            while new.current != 2:  # noqa: ASYNC110 - the level is told by nobody
                await asyncio.sleep(0)
        assert not following.done()
        following.cancel()
        await asyncio.wait([following])
        await leader.close()
        await follower.close()

    loop_run(scenario())


def test_what_a_dead_leader_proposed_is_taken_back_when_a_member_cannot_read_it(
    loop_run: Callable[..., None],
) -> None:
    async def scenario() -> None:
        store = MemoryStore(new_tree())
        await store.put(PATH, encode(LevelRecord(1, 2)))
        level = FormatLevel(store, 2)
        await level.drop_proposal({"broker a": 2})
        with pytest.raises(NewerFormat):
            await FormatLevel(store, 1).check()
        await level.drop_proposal({"broker a": 2, "broker b": 1})
        await FormatLevel(store, 1).check()
        await store.close()

    loop_run(scenario())
