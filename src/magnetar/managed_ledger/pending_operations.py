# SPDX-License-Identifier: Apache-2.0
"""How many operations on whole ledgers a managed ledger waits for at this moment, by what they do and to what.

Only counts what others do.
Decides.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum


class Operation(Enum):
    OPEN = "Open"
    CLOSE = "Close"
    CREATE = "Create"
    DELETE = "Delete"


class PendingOperations:
    __slots__ = ("_running",)

    def __init__(self) -> None:
        self._running: dict[tuple[Operation, bool], int] = {}

    @contextmanager
    def counted(self, operation: Operation, *, of_cursor: bool = False) -> Iterator[None]:
        """Counts as long as the block runs, on a ledger of entries or of a cursor's states."""
        kind = operation, of_cursor
        self._running[kind] = self._running.get(kind, 0) + 1
        try:
            yield
        finally:
            self._running[kind] -= 1
            if not self._running[kind]:
                del self._running[kind]

    def count(self, operation: Operation, *, of_cursor: bool) -> int:
        return self._running.get((operation, of_cursor), 0)
