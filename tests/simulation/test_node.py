# SPDX-License-Identifier: Apache-2.0
"""Nodes: a crash runs no `finally`, a pause holds everything, a restart begins on what is left."""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.simulation.world.node import Node
from tests.simulation.world.process import current_process
from tests.simulation.world.world import Verdict, World


def run(scenario: Callable[[World], Coroutine[Any, Any, None]], seed: int = 1) -> Verdict:
    return World(seed).run("node", scenario)


@pytest.mark.parametrize("crash", [Node.kill, Node.lose_power])
def test_a_crash_runs_no_finally(crash: Callable[[Node], None]) -> None:
    ran: list[str] = []
    at_verdict: list[str] = []

    async def child() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ran.append("finally of a task")

    async def main(node: Node) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(child())
                while True:
                    await asyncio.sleep(1)
                    ran.append("alive")
        finally:
            ran.append("finally")

    async def scenario(world: World) -> None:
        node = world.node("n")
        node.start(main)
        await asyncio.sleep(2.5)
        crash(node)
        gc.collect()
        await asyncio.sleep(7200)
        gc.collect()
        at_verdict.extend(ran)

    assert not run(scenario).violations
    assert at_verdict == ["alive", "alive"]


def test_everything_of_a_process_carries_its_label() -> None:
    labels: list[str] = []

    def note() -> None:
        process = current_process.get()
        labels.append(process.name if process is not None else "world")

    async def child() -> None:
        note()

    async def main(node: Node) -> None:
        note()
        asyncio.get_running_loop().call_later(1, note)
        await asyncio.create_task(child())
        await asyncio.sleep(2)
        note()
        await asyncio.get_running_loop().create_future()

    async def scenario(world: World) -> None:
        world.node("n").start(main)
        await asyncio.sleep(5)
        note()

    run(scenario)
    assert labels == ["n", "n", "n", "n", "world"]


def test_a_paused_node_does_nothing_and_then_everything() -> None:
    ticks: list[float] = []

    async def main(node: Node) -> None:
        while True:
            await asyncio.sleep(1)
            ticks.append(node.world.loop.time())

    async def scenario(world: World) -> None:
        node = world.node("n")
        node.start(main)
        await asyncio.sleep(2.5)
        node.pause()
        await asyncio.sleep(100)
        node.resume()
        await asyncio.sleep(1.5)
        assert node.is_running()

    assert not run(scenario).violations
    assert [int(tick) for tick in ticks] == [1, 2, 102, 103]


def test_a_restart_finds_the_disk_as_the_crash_left_it() -> None:
    found: list[bytes] = []

    async def main(node: Node) -> None:
        if await node.disk.exists("f"):
            found.append(await node.disk.read_file("f", bytes_max=100))
        await node.disk.replace_file("f", b"life %d" % node.lives)
        await asyncio.get_running_loop().create_future()

    async def scenario(world: World) -> None:
        node = world.node("n")
        node.start(main)
        await asyncio.sleep(1)
        node.lose_power()
        node.restart()
        await asyncio.sleep(1)
        node.kill()
        node.restart()
        await asyncio.sleep(1)

    assert not run(scenario).violations
    assert found == [b"life 1", b"life 2"]


def test_a_process_that_ends_is_started_again() -> None:
    async def main(node: Node) -> None:
        await asyncio.sleep(1)
        raise OSError(f"life {node.lives} ended")

    async def scenario(world: World) -> None:
        world.node("n").start(main)
        await asyncio.sleep(4)
        assert [str(error) for _, error in world.exits] == ["life 1 ended", "life 2 ended"]

    assert not run(scenario).violations


def test_a_crash_at_a_disk_call_stops_the_caller_there() -> None:
    reached: list[str] = []

    async def main(node: Node) -> None:
        file = await node.disk.open("f", create=True)
        reached.append("opened")
        try:
            await file.write(0, [b"x"])
        finally:
            reached.append("past the crash")

    async def scenario(world: World) -> None:
        node = world.node("n")

        def on_call(call: Any) -> None:
            if call.number == 1:
                node.kill()

        node.disk.kernel.faults.on_call = on_call
        node.start(main)
        await asyncio.sleep(10)
        assert reached == ["opened"]

    assert not run(scenario).violations


def test_clocks_have_their_own_errors() -> None:
    async def scenario(world: World) -> None:
        one, other = world.node("one").clock, world.node("other").clock
        other.skew_ms = -5000
        await asyncio.sleep(10)
        assert one.now_ms() - other.now_ms() == 5000

    assert not run(scenario).violations


def test_an_error_that_nobody_awaits_is_a_violation() -> None:
    async def scenario(world: World) -> None:
        def fail() -> None:
            raise KeyError("lost")

        world.loop.call_soon(fail)
        await asyncio.sleep(1)

    violations = run(scenario).violations
    assert [violation.promise for violation in violations] == ["R19 no silent death"]
    assert "KeyError" in str(violations[0])


def test_deadlock_and_failure_of_the_scenario_are_violations() -> None:
    async def stuck(world: World) -> None:
        await world.loop.create_future()

    async def wrong(world: World) -> None:
        raise AssertionError("this is wrong")

    assert "deadlock" in str(run(stuck).violations[0])
    assert "this is wrong" in str(run(wrong).violations[0])
