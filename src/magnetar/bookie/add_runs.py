# SPDX-License-Identifier: Apache-2.0
"""Runs of consecutive entries that share one outcome, so that a listener is told once per run.

Owns which entries of which listener came together. Knows neither why nor when they are answered.
Decides.
"""

from typing import Any, Protocol


class AddListener(Protocol):
    """Whoever waits for adds; the same shape as the ledger client's listener, which this layer may not import."""

    def on_added(self, bookie: str, first: int, last: int, code: int) -> None: ...


class AddSource(Protocol):
    """Where adds of many ledgers come from together."""

    def batch_listener(self, entries: list[bytes]) -> AddListener:
        """Who is told of these entries, by their numbers among them instead of their ids."""

    def ledger_listener(self, ledger_id: int) -> AddListener:
        """Who is told of entries of one ledger."""


# Listener, first and last entry.
Run = list[Any]


class AddRuns:
    """Entries in the order they came; a listener's runs are told in that order."""

    __slots__ = ("_newest", "_runs")

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self._newest: dict[AddListener, Run] = {}

    def __bool__(self) -> bool:
        return bool(self._runs)

    def add(self, listener: AddListener, entry_id: int) -> None:
        run = self._newest.get(listener)
        if run is not None and run[2] + 1 == entry_id:
            run[2] = entry_id
        else:
            self._newest[listener] = run = [listener, entry_id, entry_id]
            self._runs.append(run)

    def add_all(self, listener: AddListener, first: int, last: int) -> None:
        run = self._newest.get(listener)
        if run is not None and run[2] + 1 == first:
            run[2] = last
        else:
            self._newest[listener] = run = [listener, first, last]
            self._runs.append(run)

    def join(self, later: "AddRuns") -> None:
        """Take over the runs of a later group; where one continues ours, the two become one."""
        for listener, first, last in later._runs:
            self.add_all(listener, first, last)

    def take(self) -> list[Run]:
        """The runs, for whoever tells them; nothing may be added any more."""
        return self._runs

    def tell(self, bookie: str, code: int) -> None:
        for listener, first, last in self._runs:
            listener.on_added(bookie, first, last, code)
