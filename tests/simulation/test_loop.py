# SPDX-License-Identifier: Apache-2.0
"""The simulated loop: virtual time, orders of callbacks, deadlock and escape."""

import asyncio
import threading
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

from tests.simulation.world.loop import SimDeadlock, SimEscape, SimLoop, SimTimeout
from tests.simulation.world.schedule import Policy, Schedule


def run(coroutine: Coroutine[Any, Any, Any], policy: Policy = Policy.FIFO, seed: int = 0, **limits: Any) -> Any:
    loop = SimLoop(Schedule(policy, Random(seed)), **limits)
    try:
        return loop.run_until_complete(coroutine)
    finally:
        for task in asyncio.all_tasks(loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            task.get_coro().close()
        loop.close()


def test_time_jumps_to_the_next_timer() -> None:
    async def scenario() -> float:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(86_000)
        return loop.time()

    assert run(scenario()) == pytest.approx(86_000, abs=0.001)


def test_timers_fire_in_order_of_time_then_of_setting() -> None:
    async def scenario() -> list[str]:
        loop = asyncio.get_running_loop()
        fired: list[str] = []
        loop.call_later(2, fired.append, "late")
        loop.call_later(1, fired.append, "first")
        loop.call_later(1, fired.append, "second")
        loop.call_later(1, fired.append, "cancelled").cancel()
        await asyncio.sleep(3)
        return fired

    assert run(scenario()) == ["first", "second", "late"]


def test_waiting_for_nothing_is_a_deadlock() -> None:
    async def scenario() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(SimDeadlock):
        run(scenario())


def test_an_endless_run_is_ended() -> None:
    async def scenario() -> None:
        while True:  # noqa: ASYNC110  being busy is the point
            await asyncio.sleep(0)

    with pytest.raises(SimTimeout):
        run(scenario(), callbacks_max=10_000)


def test_a_busy_task_cannot_stop_time() -> None:
    async def scenario() -> bool:
        done = asyncio.Event()
        asyncio.get_running_loop().call_later(0.01, done.set)
        while not done.is_set():  # noqa: ASYNC110  being busy is the point
            await asyncio.sleep(0)
        return True

    assert run(scenario())


@pytest.mark.parametrize("policy", list(Policy))
def test_plain_callbacks_keep_their_order_under_every_policy(policy: Policy) -> None:
    async def scenario() -> list[int]:
        loop = asyncio.get_running_loop()
        called: list[int] = []
        for number in range(50):
            loop.call_soon(called.append, number)
        await asyncio.sleep(1)
        return called

    for seed in range(10):
        assert run(scenario(), policy, seed) == list(range(50))


@pytest.mark.parametrize(("policy", "orders"), [(Policy.FIFO, 1), (Policy.UNIFORM, 6), (Policy.PRIORITY, 6)])
def test_policies_explore_orders_of_tasks(policy: Policy, orders: int) -> None:
    async def scenario() -> str:
        order: list[str] = []

        async def step(name: str) -> None:
            order.append(name)

        async with asyncio.TaskGroup() as group:
            for name in "abc":
                group.create_task(step(name))
        return "".join(order)

    seen = {run(scenario(), policy, seed) for seed in range(100)}
    assert len(seen) == orders


@pytest.mark.parametrize("policy", list(Policy))
def test_asyncio_primitives_work(policy: Policy) -> None:
    async def scenario() -> int:
        queue: asyncio.Queue[int] = asyncio.Queue(2)
        lock = asyncio.Lock()
        total = 0

        async def produce() -> None:
            for number in range(10):
                await queue.put(number)

        async def consume() -> None:
            nonlocal total
            for _ in range(10):
                number = await queue.get()
                async with lock:
                    await asyncio.sleep(0.01)
                    total += number

        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            for coroutine in (produce(), consume(), produce(), consume()):
                group.create_task(coroutine)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await asyncio.sleep(2)
        return total

    for seed in range(5):
        assert run(scenario(), policy, seed) == 90


def test_threads_and_sockets_are_escapes() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(SimEscape, match="run_in_executor"):
            await asyncio.to_thread(threading.get_ident)
        with pytest.raises(SimEscape, match="getaddrinfo"):
            await loop.getaddrinfo("localhost", 80)
        with pytest.raises(SimEscape, match="add_signal_handler"):
            loop.add_signal_handler(15, print)
        with pytest.raises(SimEscape, match="ssl"):
            await loop.create_connection(asyncio.Protocol, "host", 80, ssl=True)

    run(scenario())


def test_cancelled_timers_do_not_pile_up() -> None:
    async def scenario() -> int:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        for _ in range(20_000):
            loop.call_later(3600, print).cancel()
        return len(loop._timers)

    assert run(scenario()) < 3000
