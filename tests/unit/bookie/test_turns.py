# SPDX-License-Identifier: Apache-2.0
"""Steps one after another, also when one fails or is given up."""

import asyncio

import pytest

from magnetar.bookie.turns import Turns
from tests.unit.bookie.benches import run


def test_steps_never_overlap_and_keep_their_order() -> None:
    async def scenario() -> None:
        turns = Turns()
        seen: list[str] = []

        async def step(name: str, *, fails: bool = False) -> str:
            seen.append(f"{name} begins")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            seen.append(f"{name} ends")
            if fails:
                raise ValueError(name)
            return name

        tasks = [asyncio.ensure_future(turns.take(lambda n=n: step(n, fails=n == "b"))) for n in "abcd"]  # type: ignore[misc]
        await asyncio.sleep(0)
        tasks[2].cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(outcome) for outcome in done] == [str, ValueError, asyncio.CancelledError, str]
        assert seen == ["a begins", "a ends", "b begins", "b ends", "d begins", "d ends"]
        assert await turns.take(lambda: step("e")) == "e"

    run(scenario())


def test_a_step_that_is_cancelled_lets_the_next_go_on() -> None:
    async def scenario() -> None:
        turns = Turns()
        forever = asyncio.ensure_future(turns.take(lambda: asyncio.sleep(3600)))
        await asyncio.sleep(0)
        forever.cancel()
        with pytest.raises(asyncio.CancelledError):
            await forever
        await turns.take(lambda: asyncio.sleep(0))

    run(scenario())
