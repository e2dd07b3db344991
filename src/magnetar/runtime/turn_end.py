# SPDX-License-Identifier: Apache-2.0
"""What is done once for everything that one event caused: hand over what was gathered, send what was queued.

A callback queued with the loop waits for all that was queued before it, a reader's next step among it, and for
another look at the sockets. What is queued here runs as soon as the event that caused it has been dealt with: whoever
is called by the loop says when that is. Where nobody says it, the loop's next turn does. Carries.
"""

import asyncio
import os
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final
from weakref import WeakKeyDictionary


class TurnEnd:
    """One for a process; asked for by `turn_end()`."""

    __slots__ = ("_is_scheduled", "_waiting", "threads_at_work")

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []
        self._is_scheduled = False
        # Those that have not said yet that all is done that this one gave them.
        self.threads_at_work = 0

    def call(self, step: Callable[[], None]) -> None:
        """Call this when the event that is being dealt with is over, after all that was asked for before."""
        if not self._is_scheduled:
            asyncio.get_running_loop().call_soon(self._on_next_turn)
            self._is_scheduled = True
        self._waiting.append(step)

    def run(self) -> None:
        """The event is over. What this causes in its turn is done, too; one that fails takes no other along."""
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            for step in waiting:
                try:
                    step()
                except Exception as error:
                    # As of a bare callback, which it would be without us: its process fails.
                    message = f"{step} failed at the end of a turn"
                    about = {"message": message, "exception": error, "handle": None}
                    asyncio.get_running_loop().call_exception_handler(about)

    def give_way(self) -> None:
        """Let a thread that is waited for in, where it stands behind this one on its processor (0385)."""
        if self.threads_at_work:
            os.sched_yield()

    def _on_next_turn(self) -> None:
        self._is_scheduled = False
        self.run()


# Where several processes share a loop, as in simulation: what one of them queued must die with it.
OF_PROCESS: Final[ContextVar[TurnEnd]] = ContextVar("turn end of this process")
_OF_LOOPS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, TurnEnd]] = WeakKeyDictionary()


def turn_end() -> TurnEnd:
    """The process's own, which is the running loop's unless somebody has said otherwise."""
    if (own := OF_PROCESS.get(None)) is not None:
        return own
    loop = asyncio.get_running_loop()
    found = _OF_LOOPS.get(loop)
    if found is None:
        found = _OF_LOOPS[loop] = TurnEnd()
    return found
