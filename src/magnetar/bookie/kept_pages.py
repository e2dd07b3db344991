# SPDX-License-Identifier: Apache-2.0
"""How much of the newest entry logs stays in the kernel's memory.

Owns which stretches were written, oldest first, as long as they count. A kernel with free memory keeps everything that
was ever written and takes a new page for each one more: where memory comes from a hypervisor, or is a container's
limit, that is dearer than the write. Who catches up reads what is newest. Decides.
"""

from collections import deque
from typing import NamedTuple


class Stretch(NamedTuple):
    log_id: int
    begin: int
    end: int


class KeptPages:
    """Invariant: `bytes_held` is the sum of the stretches, at most bytes_max after `take_surplus`."""

    __slots__ = ("_bytes_max", "_stretches", "bytes_held")

    def __init__(self, bytes_max: int) -> None:
        """0: as much as the kernel likes."""
        self._bytes_max = bytes_max
        self._stretches: deque[Stretch] = deque()
        self.bytes_held = 0

    def note(self, log_id: int, begin: int, end: int) -> None:
        """This was written and synced."""
        if not self._bytes_max or begin >= end:
            return
        last = self._stretches[-1] if self._stretches else None
        if last is not None and last.log_id == log_id and last.end == begin:
            self._stretches[-1] = Stretch(log_id, last.begin, end)
        else:
            self._stretches.append(Stretch(log_id, begin, end))
        self.bytes_held += end - begin

    def take_surplus(self) -> list[Stretch]:
        """What is beyond the bound, oldest first; it does not count any more."""
        surplus: list[Stretch] = []
        while (beyond := self.bytes_held - self._bytes_max) > 0:
            log_id, begin, end = self._stretches.popleft()
            taken = min(end - begin, beyond)
            if begin + taken < end:
                self._stretches.appendleft(Stretch(log_id, begin + taken, end))
            surplus.append(Stretch(log_id, begin, begin + taken))
            self.bytes_held -= taken
        return surplus
