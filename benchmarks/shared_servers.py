# SPDX-License-Identifier: Apache-2.0
"""The servers that loads share: one of each side, started when it is first asked for, and what they leave on the disk.

Loads one after another on the same servers are nearer to a server's life than a new one for each, and save its start.
But what they publish stays, so where the disk is too small for all of them the servers are given back before the load
for which they would leave no room, and the next ones begin with empty directories.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

Found = TypeVar("Found")


class SharedServers:
    """`room_gb` says how much may be written still, as the disk is now."""

    def __init__(self, scratch: Path, room_gb: Callable[[], float]) -> None:
        self._scratch = scratch
        self._room_gb = room_gb
        self._running: dict[str, Any] = {}
        self._stack = ExitStack()
        self._made = 0

    def make_room(self, wanted_gb: float) -> bool:
        """Give the servers back if they leave no room for so much more; whether that was done."""
        if not self._running or wanted_gb <= self._room_gb():
            return False
        self.close()
        return True

    def of(
        self, name: str, make: Callable[[Path], AbstractContextManager[Found]], begin: Callable[[Found], None]
    ) -> Found:
        """The side's server; the first time it is made on a directory of its own, entered, and told to begin."""
        if name not in self._running:
            self._made += 1
            directory = self._scratch / f"{name}-shared-{self._made}"
            self._stack.enter_context(given_back(directory))
            server = self._stack.enter_context(make(directory))
            begin(server)
            self._running[name] = server
        found: Found = self._running[name]
        return found

    def close(self) -> None:
        self._running.clear()
        self._stack.close()


@contextmanager
def given_back(directory: Path) -> Iterator[None]:
    """What a load leaves is in nobody's way afterwards: a disk that is nearly full makes servers read-only."""
    try:
        yield
    finally:
        shutil.rmtree(directory, ignore_errors=True)
