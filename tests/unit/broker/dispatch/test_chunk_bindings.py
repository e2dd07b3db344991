# SPDX-License-Identifier: Apache-2.0
"""Chunked messages of a Shared subscription that everybody leaves in the middle of them."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from tests.unit.broker.worlds import World, client_of

PARTS = 4


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


@pytest.mark.feature("D-28")
@pytest.mark.parametrize("sent", range(PARTS + 1))
@pytest.mark.parametrize("rest", ["unread", "being read", "waiting for its consumer"])
def test_when_the_last_consumer_leaves_a_chunked_message_the_next_gets_all_its_parts(sent: int, rest: str) -> None:
    """F99: some parts were sent, and none is acknowledged."""

    async def main() -> None:
        world = World()
        leaving = world.join(permits=sent)
        for part in range(sent):
            world.publish(chunk=(part, PARTS))
        await world.settle()
        world.log.is_cold, world.log.gate = rest == "being read", asyncio.Event()
        if rest == "being read":
            world.subscription.on_flow(leaving, PARTS)
        beside = world.join(permits=100) if rest == "waiting for its consumer" else None
        for part in range(sent, PARTS):
            world.publish(chunk=(part, PARTS))
        whole = world.publish()
        await world.settle()
        assert client_of(leaving).ids() == list(range(sent))
        if beside is not None:
            assert client_of(beside).ids() == [whole.entry_id] or sent in (0, PARTS)
            world.subscription.remove_consumer(beside)
        world.subscription.remove_consumer(leaving)
        await world.settle()
        world.log.gate.set()
        await world.settle()
        following = world.join(permits=100)
        for _ in range(3):
            await world.settle()
        assert client_of(following).ids() == [*range(PARTS), whole.entry_id]
        assert client_of(leaving).ids() == list(range(sent))
        await world.tasks.close()

    run(main())
