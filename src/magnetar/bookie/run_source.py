# SPDX-License-Identifier: Apache-2.0
"""Consecutive entries of one ledger as adds that came together: who sent them is told of them by their ids.
Carries.
"""

from magnetar.bookie.add_runs import AddListener
from magnetar.bookie.entry_batches import ids_of


class RunSource:
    __slots__ = ("_listener",)

    def __init__(self, listener: AddListener) -> None:
        self._listener = listener

    def batch_listener(self, entries: list[bytes]) -> AddListener:
        return _RunListener(self._listener, ids_of(entries[0])[1])

    def ledger_listener(self, ledger_id: int) -> AddListener:
        return self._listener


class _RunListener:
    __slots__ = ("_first", "_listener")

    def __init__(self, listener: AddListener, first: int) -> None:
        self._listener = listener
        self._first = first

    def on_added(self, bookie: str, first: int, last: int, code: int) -> None:
        self._listener.on_added(bookie, self._first + first, self._first + last, code)
