# SPDX-License-Identifier: Apache-2.0
"""Lists of topics share a bounded memory: who finds no room waits in turn, and not for ever."""

import asyncio

import pytest

from magnetar.broker.list_budget import NAME_BYTES, ListBudget
from magnetar.config.broker import BrokerSettings
from magnetar.errors import TooManyRequests

pytestmark = pytest.mark.feature("B-37")

NAMES = ["persistent://public/default/t"] * 10
SIZE = sum(map(len, NAMES)) + NAME_BYTES * len(NAMES)


def budget(room: int, wait_ms: int = 60_000, waiting_max: int = 10) -> ListBudget:
    made = ListBudget(BrokerSettings(list_bytes_max=room, list_wait_ms=wait_ms, list_waiting_max=waiting_max))
    made.learn("a", SIZE)
    return made


async def sent(lists: ListBudget, may_end: asyncio.Event, order: list[int], number: int) -> None:
    async with lists.holding("a") as hold:
        order.append(number)
        hold.made(NAMES)
        await may_end.wait()


def test_lists_wait_in_turn_for_those_that_are_being_sent() -> None:
    async def scenario() -> None:
        lists, may_end = budget(2 * SIZE), [asyncio.Event() for _ in range(4)]
        order: list[int] = []
        tasks = [asyncio.create_task(sent(lists, may_end[number], order, number)) for number in range(4)]
        await asyncio.sleep(0)
        assert (order, lists.held_bytes) == ([0, 1], 2 * SIZE)
        may_end[1].set()
        for _ in range(5):
            await asyncio.sleep(0)
        assert (order, lists.held_bytes) == ([0, 1, 2], 2 * SIZE)
        for event in may_end:
            event.set()
        await asyncio.gather(*tasks)
        assert (order, lists.held_bytes) == ([0, 1, 2, 3], 0)

    asyncio.run(scenario())


def test_a_list_larger_than_everything_goes_alone_and_is_known_then() -> None:
    async def scenario() -> None:
        lists = budget(SIZE // 2)
        async with lists.holding("unknown") as hold:
            hold.made(NAMES)
            assert lists.held_bytes == SIZE
        async with lists.holding("unknown"):
            assert lists.held_bytes == SIZE
        assert lists.held_bytes == 0

    asyncio.run(scenario())


def test_nobody_waits_for_ever_and_few_wait_at_all() -> None:
    async def scenario() -> None:
        lists = budget(SIZE, wait_ms=1, waiting_max=1)
        async with lists.holding("a"):
            waiting = asyncio.create_task(_taken(lists))
            await asyncio.sleep(0)
            with pytest.raises(TooManyRequests, match="wait already"):
                await _taken(lists)
            with pytest.raises(TooManyRequests, match="being sent"):
                await waiting
        async with lists.holding("a"):
            assert lists.held_bytes == SIZE

    asyncio.run(scenario())


def test_who_gives_up_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        lists = budget(SIZE)
        async with lists.holding("a"):
            waiting = asyncio.create_task(_taken(lists))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait((waiting,))
        assert lists.held_bytes == 0
        await _taken(lists)

    asyncio.run(scenario())


async def _taken(lists: ListBudget) -> None:
    async with lists.holding("a"):
        pass
