# SPDX-License-Identifier: Apache-2.0
"""Operations that are counted: how many run now, how many failed, and how long the others took.

Quantiles speak of the last minute or two. Reads the loop's clock and nothing else.
Decides.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from magnetar.runtime.summary import Summary

_WINDOW_S: Final = 60.0


class Timed:
    """One kind of operation; milliseconds."""

    __slots__ = ("_now_s", "_window_s", "failed", "pending", "took_ms")

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._window_s = now_s()
        self.pending = 0
        self.failed = 0
        self.took_ms = Summary()

    @contextmanager
    def one(self) -> Iterator[None]:
        """Around one operation; an error makes it a failed one."""
        started_s = self._now_s()
        self.pending += 1
        try:
            yield
        except BaseException:
            self.failed += 1
            raise
        else:
            self.took_ms.observe((self._now_s() - started_s) * 1000)
        finally:
            self.pending -= 1
            self._turn_window()

    def _turn_window(self) -> None:
        now_s = self._now_s()
        if now_s - self._window_s >= _WINDOW_S:
            self._window_s = now_s
            self.took_ms.rotate()
