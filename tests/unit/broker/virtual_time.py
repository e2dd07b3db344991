# SPDX-License-Identifier: Apache-2.0
"""Hours in a moment: a loop whose time is its own, and a wall clock that follows it.

Carries.
"""

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any, Final

from magnetar.runtime.clock import WallClock
from tests.simulation.world.loop import SimLoop
from tests.simulation.world.schedule import Policy, Schedule

_START_MS: Final = 1_767_225_600_000


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Time passes when nothing else is to be done, and costs none."""
    with asyncio.Runner(loop_factory=lambda: SimLoop(Schedule(Policy.FIFO, Random(1)))) as runner:
        runner.run(scenario)


class LoopClock(WallClock):
    def now_ms(self) -> int:
        return _START_MS + int(asyncio.get_running_loop().time() * 1000)
