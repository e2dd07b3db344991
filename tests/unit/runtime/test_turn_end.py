# SPDX-License-Identifier: Apache-2.0
"""What one event caused is done when that event is over, before anybody else's step; else in the next turn."""

import asyncio
from typing import Any

import pytest

from magnetar.runtime.turn_end import turn_end


@pytest.mark.anyio
async def test_what_was_asked_for_is_done_in_order_before_what_the_loop_has_queued() -> None:
    done: list[str] = []
    loop = asyncio.get_running_loop()
    loop.call_soon(done.append, "somebody's step")
    turn_end().call(lambda: done.append("hand over"))
    turn_end().call(lambda: done.append("send"))
    turn_end().run()
    assert done == ["hand over", "send"]
    await asyncio.sleep(0)
    assert done == ["hand over", "send", "somebody's step"]


@pytest.mark.anyio
async def test_where_nobody_says_that_the_event_is_over_the_next_turn_does() -> None:
    done: list[int] = []
    for number in range(3):
        turn_end().call(lambda number=number: done.append(number))  # type: ignore[misc]
    assert done == []
    await asyncio.sleep(0)
    assert done == [0, 1, 2]
    turn_end().call(lambda: done.append(3))
    await asyncio.sleep(0)
    assert done[-1] == 3, "the next one is not forgotten"


@pytest.mark.anyio
async def test_what_a_step_causes_is_done_in_the_same_turn() -> None:
    done: list[str] = []

    def wake() -> None:
        done.append("wake")
        turn_end().call(lambda: done.append("send"))

    turn_end().call(wake)
    turn_end().run()
    assert done == ["wake", "send"]


@pytest.mark.anyio
async def test_a_step_that_fails_is_told_to_the_loop_and_takes_no_other_along() -> None:
    told: list[dict[str, Any]] = []
    done: list[int] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: told.append(about))
    turn_end().call(lambda: 1 // 0)  # type: ignore[arg-type]
    turn_end().call(lambda: done.append(1))
    turn_end().run()
    assert done == [1]
    assert isinstance(told[0]["exception"], ZeroDivisionError)
    assert "handle" in told[0], "as a bare callback's, which fails its process"


def test_each_loop_has_its_own_and_it_goes_with_it() -> None:
    async def own() -> int:
        return id(turn_end())

    with asyncio.Runner() as first, asyncio.Runner() as second:
        assert first.run(own()) != second.run(own())
