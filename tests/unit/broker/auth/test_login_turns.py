# SPDX-License-Identifier: Apache-2.0
"""Who fails again and again waits, in a row; who is right gets in all the same."""

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

from magnetar.broker.auth import login_turns
from magnetar.broker.auth.authenticator import Identity
from magnetar.broker.auth.login_turns import FORGOTTEN_AFTER_S, FREE_FAILURES, PAUSE_S_MIN, WAITING_MAX, LoginTurns
from magnetar.errors import NotAuthenticated, TooManyRequests
from tests.simulation.world.loop import SimLoop
from tests.simulation.world.schedule import Policy, Schedule

pytestmark = pytest.mark.feature("F-SEC-01")


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Time is the loop's own, and costs none."""
    with asyncio.Runner(loop_factory=lambda: SimLoop(Schedule(Policy.FIFO, Random(1)))) as runner:
        runner.run(scenario)


async def _wrong() -> Identity:
    raise NotAuthenticated("Failed to authenticate")


async def _right() -> Identity:
    return Identity("ada")


async def _failures(turns: LoginTurns, address: str, times: int) -> list[float]:
    """How long each refusal was held back."""
    loop = asyncio.get_running_loop()
    held = []
    for _ in range(times):
        since_s = loop.time()
        with pytest.raises(NotAuthenticated):
            await turns.check(address, _wrong)
        held.append(round(loop.time() - since_s, 3))
    return held


def test_refusals_are_held_back_longer_and_longer_and_only_for_that_address() -> None:
    async def scenario() -> None:
        turns = LoginTurns(pause_s_max=0.5)
        assert await _failures(turns, "bad", FREE_FAILURES) == [0.0] * FREE_FAILURES
        assert await _failures(turns, "bad", 4) == [PAUSE_S_MIN, 2 * PAUSE_S_MIN, 4 * PAUSE_S_MIN, 0.5]
        assert await _failures(turns, "other", 1) == [0.0]
        await asyncio.sleep(FORGOTTEN_AFTER_S + 1)
        assert await _failures(turns, "bad", 1) == [0.0]

    run(scenario())


def test_right_credentials_pass_in_their_turn() -> None:
    async def scenario() -> None:
        turns = LoginTurns(pause_s_max=0.5)
        await _failures(turns, "shared", FREE_FAILURES)
        guess = asyncio.create_task(_failures(turns, "shared", 1))
        await asyncio.sleep(0)
        assert (await turns.check("shared", _right)).role == "ada"
        assert await guess == [PAUSE_S_MIN]
        # Being right once does not make up for the guesses.
        assert await _failures(turns, "shared", 1) == [2 * PAUSE_S_MIN]

    run(scenario())


def test_guesses_at_one_time_are_checked_one_by_one_and_few_may_wait() -> None:
    async def scenario() -> None:
        turns = LoginTurns(pause_s_max=0.5)
        await _failures(turns, "bad", FREE_FAILURES)
        checked, refused = 0, 0

        async def guess() -> None:
            nonlocal checked, refused
            try:
                await turns.check("bad", counted)
            except TooManyRequests:
                refused += 1
            except NotAuthenticated:
                pass

        async def counted() -> Identity:
            nonlocal checked
            checked += 1
            return await _wrong()

        guesses = [asyncio.create_task(guess()) for _ in range(100)]
        await asyncio.sleep(0.01)
        assert (checked, refused) == (1, 100 - WAITING_MAX)
        await asyncio.gather(*guesses)
        assert checked == WAITING_MAX

    run(scenario())


def test_addresses_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_turns, "ADDRESSES_MAX", 10)

    async def scenario() -> None:
        turns = LoginTurns(pause_s_max=0.5)
        for number in range(100):
            await _failures(turns, f"10.0.0.{number}", 1)
        assert len(turns._failed) == 10

    run(scenario())
