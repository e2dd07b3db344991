# SPDX-License-Identifier: Apache-2.0
"""One operation again and again, each time cancelled at its next await: while it waits, and when it need not any more.

The second moment is the treacherous one: what was waited for has come, and so has the cancellation. A sweep runs one
story per await and moment, each on a simulated loop of its own, where waiting for what never comes is a deadlock.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from enum import Enum
from itertools import count
from random import Random
from types import coroutine
from typing import Any

from tests.simulation.world.loop import SimLoop
from tests.simulation.world.schedule import Policy, Schedule


class Moment(Enum):
    WAITING = "while it waits"
    ANSWERED = "when what it waited for has come"


class Canceller:
    """Cancels the operation of one story. `reached`: it had so many awaits."""

    def __init__(self, number: int, moment: Moment) -> None:
        self._number = number
        self._moment = moment
        self.reached = False

    async def cancel(self, operation: Coroutine[Any, Any, Any]) -> None:
        """Carry it out up to the await that is this story's; it must end with that, or without having got there."""
        task = asyncio.get_running_loop().create_task(self._drive(operation))
        await asyncio.wait((task,))
        if task.cancelled():
            assert self.reached, "cancelled by somebody else"
            return
        task.result()
        assert not self.reached, f"it swallowed a cancellation at await {self._number}, {self._moment.value}"

    async def _drive(self, operation: Coroutine[Any, Any, Any]) -> None:
        await self._counted(operation)

    @coroutine
    def _counted(self, operation: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
        task = asyncio.current_task()
        assert task is not None
        step: Callable[[], Any] = lambda: operation.send(None)  # noqa: E731 - the next one may be a throw
        for number in count():
            try:
                awaited = step()
            except StopIteration as end:
                return end.value
            if number == self._number:
                self.reached = True
                if self._moment is Moment.WAITING or awaited is None:
                    task.cancel()
                else:
                    # Before the task's own callback: it is cancelled when it is about to go on.
                    awaited.add_done_callback(lambda _: task.cancel())
            try:
                answer = yield awaited
            except BaseException as error:
                step = _throwing(operation, error)
            else:
                step = _sending(operation, answer)
        return None


def _throwing(operation: Coroutine[Any, Any, Any], error: BaseException) -> Callable[[], Any]:
    return lambda: operation.throw(error)


def _sending(operation: Coroutine[Any, Any, Any], answer: object) -> Callable[[], Any]:
    return lambda: operation.send(answer)


Story = Callable[[Canceller], Coroutine[Any, Any, None]]


def sweep_cancellations(story: Story) -> int:
    """Tell the story for every await and moment; returns how many awaits the operation has."""
    awaits = 0
    for moment in Moment:
        for number in count():
            canceller = Canceller(number, moment)
            _run(story(canceller))
            if not canceller.reached:
                awaits = max(awaits, number)
                break
    return awaits


def _run(story: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=lambda: SimLoop(Schedule(Policy.FIFO, Random(0)))) as runner:
        runner.run(story)
