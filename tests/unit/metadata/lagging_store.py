# SPDX-License-Identifier: Apache-2.0
"""A session at a server that is behind the others: it reads what was there, until something brings it up to date.

Carries.
"""

from typing import Any

from magnetar.metadata.memory import MemoryStore, MemoryTree
from magnetar.metadata.store import Change, Record, Stored
from magnetar.metadata.tree import RecordTree


class LaggingStore(MemoryStore):
    """What was passed on to the leader and answered brings it up to date: a write, and a list as a store promises it.

    With `lists_lag` only a write does: so old lists are when nobody asks the leader for them.
    """

    def __init__(self, tree: MemoryTree, *, lists_lag: bool = False) -> None:
        super().__init__(tree)
        self._lists_lag = lists_lag
        self._was: RecordTree | None = None
        self._untold: list[Change] = []

    def fall_behind(self) -> None:
        """Whatever is stored from now on is not seen here."""
        self._was = RecordTree(self._tree.settings)
        self._was.apply(list(self._tree.records.contents()))

    def catch_up(self) -> None:
        self._was = None
        untold, self._untold = self._untold, []
        self.on_changes(untold)

    def on_changes(self, changes: list[Change]) -> None:
        if self._was is None:
            super().on_changes(changes)
        else:
            self._untold += changes

    async def get(self, path: str) -> Record | None:
        if self._was is None:
            return await super().get(path)
        held = self._was.get(path)
        return None if held is None else held.record()

    async def put(self, path: str, value: bytes, **options: Any) -> Stored:
        self.catch_up()
        return await super().put(path, value, **options)

    async def delete(self, path: str, **options: Any) -> None:
        self.catch_up()
        await super().delete(path, **options)

    async def children(self, path: str) -> list[str]:
        if self._was is not None and self._lists_lag:
            return self._was.children(path)
        self.catch_up()
        return await super().children(path)
