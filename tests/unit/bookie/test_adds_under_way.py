# SPDX-License-Identifier: Apache-2.0
"""Who adds, and how long others wait for them."""

import asyncio
from collections.abc import Callable

from magnetar.bookie.adds_under_way import AddsUnderWay
from tests.conftest import RunOnLoop


class OneJournal:
    def __init__(self) -> None:
        self.is_busy = False
        self.syncs = 0
        self.after_sync: list[Callable[[], None]] = []

    def sync(self) -> None:
        self.syncs += 1
        self.is_busy = False
        callbacks, self.after_sync = self.after_sync, []
        for callback in callbacks:
            callback()


def test_adds_are_recent_while_they_wait_and_for_a_moment_after() -> None:
    journal, now = OneJournal(), [100.0]
    adds = AddsUnderWay([journal], lambda: now[0])  # type: ignore[list-item]
    assert not adds.are_recent()
    journal.is_busy = True
    assert adds.are_recent()
    journal.sync()
    assert adds.are_recent()
    now[0] += 0.019
    assert adds.are_recent()
    now[0] += 0.002
    assert not adds.are_recent()
    journal.sync()
    assert adds.are_recent(), "one came and went between two questions"


def test_who_lets_adds_pass_waits_for_their_sync_and_not_for_ever(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        journal = OneJournal()
        adds = AddsUnderWay([journal], asyncio.get_running_loop().time)  # type: ignore[list-item]
        await adds.let_pass(60)
        journal.is_busy = True
        waiting = asyncio.ensure_future(adds.let_pass(60))
        await asyncio.sleep(0)
        assert not waiting.done()
        journal.sync()
        await waiting
        journal.is_busy = True
        await adds.let_pass(0.001)
        journal.sync()

    loop_run(scenario())
