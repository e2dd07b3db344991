# SPDX-License-Identifier: Apache-2.0
"""Supervised tasks: crashes are told, closing ends everything, numbers are bounded."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

import pytest

from magnetar.errors import OwnerClosed, TooManyRequests
from magnetar.runtime import tasks as tasks_module
from magnetar.runtime.tasks import Tasks


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main)


def unexpected(name: str, error: BaseException) -> None:
    raise AssertionError(f"{name} crashed: {error!r}")


def test_a_result_is_returned_and_the_task_is_forgotten() -> None:
    async def seven() -> int:
        return 7

    async def main() -> None:
        tasks = Tasks("topic", unexpected)
        task = tasks.start(seven(), "count")
        assert tasks.names() == ["topic/count"]
        assert await task == 7
        await tasks.close()
        assert len(tasks) == 0

    run(main())


def test_a_crash_is_logged_with_owner_and_name_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    crashes: list[tuple[str, BaseException]] = []

    async def fails() -> None:
        raise ValueError("out of cheese")

    async def main() -> None:
        told = asyncio.Event()

        def on_crash(name: str, error: BaseException) -> None:
            crashes.append((name, error))
            told.set()

        tasks = Tasks("journal", on_crash)
        tasks.start(fails(), "writer")
        await told.wait()
        assert len(tasks) == 0
        await tasks.close()

    with caplog.at_level(logging.ERROR):
        run(main())
    assert [(name, str(error)) for name, error in crashes] == [("journal/writer", "out of cheese")]
    record = caplog.records[0]
    assert record.getMessage() == "task journal/writer crashed"
    assert record.__dict__["owner"] == "journal"
    assert record.exc_info is not None


def test_close_cancels_in_order_of_starting_and_waits_for_clean_up() -> None:
    ended: list[int] = []

    async def waits(number: int) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0)
            ended.append(number)

    async def main() -> None:
        tasks = Tasks("broker", unexpected)
        for number in range(5):
            tasks.start(waits(number), f"waits-{number}")
        await asyncio.sleep(0)
        await tasks.close()

    run(main())
    assert ended == [0, 1, 2, 3, 4]


def test_a_crash_during_close_is_told_too() -> None:
    crashes: list[str] = []

    async def fails_when_cancelled() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            raise RuntimeError("clean-up failed")

    async def main() -> None:
        tasks = Tasks("bookie", lambda name, error: crashes.append(name))
        tasks.start(fails_when_cancelled(), "flush")
        await asyncio.sleep(0)
        await tasks.close()

    run(main())
    assert crashes == ["bookie/flush"]


def test_after_close_nothing_starts_and_no_coroutine_is_left_unawaited() -> None:
    async def never() -> None:
        raise AssertionError("must not run")

    async def main() -> None:
        tasks = Tasks("session", unexpected)
        await tasks.close()
        assert tasks.is_closed
        with pytest.raises(OwnerClosed, match="session is closed: lookup"):
            tasks.start(never(), "lookup")

    run(main())


def test_a_full_group_refuses_until_one_has_ended() -> None:
    async def main() -> None:
        gate = asyncio.Event()

        async def waits() -> None:
            await gate.wait()

        tasks = Tasks("session", unexpected, tasks_max=2)
        first = tasks.start(waits(), "a")
        tasks.start(waits(), "b")
        with pytest.raises(TooManyRequests, match="session runs 2 tasks already: c"):
            tasks.start(waits(), "c")
        gate.set()
        await first
        await asyncio.sleep(0)
        await tasks.start(waits(), "d")
        await tasks.close()

    run(main())


def test_a_task_may_close_its_own_group() -> None:
    async def main() -> None:
        tasks = Tasks("connection", unexpected)
        cancelled: list[str] = []

        async def waits() -> None:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                cancelled.append("waits")
                raise

        async def closes() -> str:
            await tasks.close()
            return "closed"

        tasks.start(waits(), "waits")
        await asyncio.sleep(0)
        assert await tasks.start(closes(), "closes") == "closed"
        assert cancelled == ["waits"]

    run(main())


def test_a_task_that_swallows_its_cancellation_is_named_and_cancelled_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks_module, "CLOSE_PATIENCE_S", 0.01)

    async def stubborn() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            await asyncio.get_running_loop().create_future()

    async def main() -> None:
        tasks = Tasks("dispatcher", unexpected)
        tasks.start(stubborn(), "stubborn")
        await asyncio.sleep(0)
        await tasks.close()
        assert len(tasks) == 0

    run(main())
    assert "dispatcher/stubborn" in caplog.text
