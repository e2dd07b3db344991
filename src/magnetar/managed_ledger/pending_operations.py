# SPDX-License-Identifier: Apache-2.0
"""How many operations on whole ledgers a managed ledger waits for at this moment, by what they do and to what.

Only counts what others do.
Decides.
"""

from collections import Counter
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
        self._running: Counter[tuple[Operation, bool]] = Counter()

    @contextmanager
    def counted(self, operation: Operation, *, of_cursor: bool = False) -> Iterator[None]:
        """Counts as long as the block runs, on a ledger of entries or of a cursor's states."""
        self._running[operation, of_cursor] += 1
        try:
            yield
        finally:
            self._running[operation, of_cursor] -= 1

    def count(self, operation: Operation, *, of_cursor: bool) -> int:
        return self._running[operation, of_cursor]
