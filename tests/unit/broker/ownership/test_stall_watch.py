# SPDX-License-Identifier: Apache-2.0
"""After a stall nobody is listened to before the store has answered."""

import asyncio

from magnetar.broker.ownership.stall_watch import StallWatch
from magnetar.metadata.memory import MemoryStore
from magnetar.metadata.store import Record
from tests.unit.broker.ownership.worlds import run, until


class SlowStore(MemoryStore):
    """Answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = asyncio.Event()

    async def get(self, path: str) -> Record | None:
        await self.may_answer.wait()
        return await super().get(path)


def test_clients_are_held_until_the_store_answers() -> None:
    async def scenario() -> None:
        store = SlowStore()
        held: list[float] = []
        watch = StallWatch(store, "/x", 30_000, held.append)
        checking = asyncio.create_task(watch.on_stall(20.0))
        await until(lambda: bool(held))
        assert not checking.done()
        store.may_answer.set()
        await checking
        assert watch.stalls == 1

    run(scenario)


def test_a_store_that_is_away_lets_clients_go_on() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        watch = StallWatch(store, "/x", 30_000, lambda _: None)
        store.disconnect()
        await watch.on_stall(20.0)
        store.reconnect()
        store.expire_session()
        await watch.on_stall(20.0)
        assert watch.stalls == 2

    run(scenario)


def test_a_loop_that_stands_still_is_noticed() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        watch = StallWatch(MemoryStore(), "/x", 50, lambda _: None)
        watching = asyncio.create_task(watch.run())
        await asyncio.sleep(0)
        until_s = loop.time() + 0.1
        while loop.time() < until_s:
            pass
        await until(lambda: watch.stalls > 0)
        watching.cancel()

    run(scenario)
