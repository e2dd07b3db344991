# SPDX-License-Identifier: Apache-2.0
"""One life of a simulated process: the label that every callback of it carries, and its grave.

A context variable holds the label; tasks, timers and callbacks inherit it. The loop drops what a dead process left and
holds what a paused one has to do. What a dead process had running stays referenced here, because collecting a coroutine
would run its `finally`, which a crash never does.
"""

import asyncio
from contextvars import ContextVar


class SimProcess:
    __slots__ = ("buried", "dead", "held", "index", "name", "paused")

    def __init__(self, name: str, index: int) -> None:
        self.name = name
        # Small and stable, for the trace.
        self.index = index
        self.dead = False
        self.paused = False
        self.held: list[asyncio.Handle] = []
        self.buried: list[object] = []

    def __repr__(self) -> str:
        return f"<{self.name}{' dead' if self.dead else ' paused' if self.paused else ''}>"


# None is the world itself: scenario, nemesis, checkers.
current_process: ContextVar[SimProcess | None] = ContextVar("current_process", default=None)
