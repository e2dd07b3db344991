# SPDX-License-Identifier: Apache-2.0
"""The clock that is moved by hand, against a list that is sorted anew each time."""

import asyncio
from functools import partial
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from magnetar.runtime.tasks import Tasks
from magnetar.runtime.virtual_clock import VirtualClock

START_MS = 1_000_000


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("set"), st.integers(0, 5_000)),
            st.tuples(st.just("chain"), st.integers(1, 2_000)),
            st.tuples(st.just("cancel"), st.integers(0, 20)),
            st.tuples(st.just("advance"), st.integers(0, 3_000)),
        ),
        max_size=30,
    )
)
@example([("set", 1_001), ("advance", 1_001)])
def test_timers_fire_in_the_order_of_their_times(steps: list[tuple[str, int]]) -> None:
    async def scenario() -> None:
        clock = VirtualClock(START_MS)
        fired: list[tuple[int, int]] = []
        handles: list[Any] = []
        twin: dict[int, int] = {}
        now, number = 0, 0

        def tell(n: int) -> None:
            fired.append((n, clock.now_ms()))

        for step, amount in steps:
            if step == "set":
                handles.append(clock.call_later(amount / 1000, partial(tell, number)))
                twin[number] = now + amount
                number += 1
            elif step == "chain":

                def first(n: int = number, ms: int = amount) -> None:
                    tell(n)
                    clock.call_later(ms / 1000, partial(tell, -n - 1))

                handles.append(clock.call_later(amount / 1000, first))
                twin[number] = now + amount
                number += 1
            elif step == "cancel":
                if handles:
                    handles[amount % len(handles)].cancel()
            else:
                await clock.advance(amount, turns)
                now += amount
        await turns()
        assert clock.now_ms() == START_MS + now
        times = [at for _, at in fired]
        assert times == sorted(times)
        for n, at in fired:
            if n >= 0:
                assert at == START_MS + twin[n]
        # Everything set, not cancelled and due has fired, once.
        seen = [n for n, _ in fired]
        assert len(seen) == len(set(seen))
        for n, due in twin.items():
            if due <= now and not _was_cancelled(steps, n):
                assert n in seen

    asyncio.run(scenario())


def _was_cancelled(steps: list[tuple[str, int]], number: int) -> bool:
    made = 0
    for step, amount in steps:
        if step in ("set", "chain"):
            made += 1
        elif step == "cancel" and made and amount % made == number:
            return True
    return False


def test_upkeep_runs_before_what_is_due_and_missed_rounds_are_one() -> None:
    async def scenario() -> None:
        clock = VirtualClock(START_MS)
        told: list[tuple[str, int]] = []

        async def upkeep() -> None:
            while True:
                await clock.pause(60)
                told.append(("upkeep", clock.now_ms() - START_MS))

        tasks = Tasks("test", lambda *_: None)
        tasks.start(upkeep(), "upkeep")
        clock.call_later(3_600, lambda: told.append(("timer", clock.now_ms() - START_MS)))
        await turns()
        await clock.advance(7_200_000, turns)
        assert told == [("upkeep", 3_600_000), ("timer", 3_600_000), ("upkeep", 7_200_000)]
        assert not clock.is_working
        await tasks.close()

    asyncio.run(scenario())


def test_upkeep_that_is_under_way_is_known() -> None:
    async def scenario() -> None:
        clock = VirtualClock(START_MS)
        may_end = asyncio.Event()

        async def upkeep() -> None:
            await clock.pause(1)
            await may_end.wait()

        tasks = Tasks("test", lambda *_: None)
        tasks.start(upkeep(), "slow")
        await turns()
        await clock.advance(2_000, turns)
        assert clock.working() == ["test/slow"]
        may_end.set()
        await turns()
        assert not clock.is_working
        await tasks.close()

    asyncio.run(scenario())


def test_nothing_waits_for_a_delay_of_nothing() -> None:
    async def scenario() -> None:
        clock = VirtualClock(START_MS)
        told: list[int] = []
        clock.call_later(0, lambda: told.append(1))
        await turns()
        assert told == [1]

    asyncio.run(scenario())
