# SPDX-License-Identifier: Apache-2.0
"""Adds that one read of a socket brought, gathered into runs of consecutive entries of a ledger.

Owns what came and was not handed to the storage yet. A ledger's adds keep their order; those of different ledgers owe
each other none.
Decides.
"""

# Ledger, first entry, master key, entries: consecutive ones. A plain tuple, because with many ledgers each add is one.
Arrival = tuple[int, int, bytes, list[bytes]]


class Arrivals:
    """Invariant: every newest run is among the runs, and is its ledger's last."""

    __slots__ = ("_newest", "_runs")

    def __init__(self) -> None:
        self._runs: list[Arrival] = []
        self._newest: dict[int, Arrival] = {}

    def __bool__(self) -> bool:
        return bool(self._runs)

    def take(self, ledger_id: int, entry_id: int, master_key: bytes, entry: bytes) -> None:
        run = self._newest.get(ledger_id)
        if run is not None and run[1] + len(run[3]) == entry_id and run[2] == master_key:
            run[3].append(entry)
            return
        self._newest[ledger_id] = run = (ledger_id, entry_id, master_key, [entry])
        self._runs.append(run)

    def drain(self) -> list[Arrival]:
        """Everything taken so far, in an order that keeps each ledger's; nothing is left."""
        runs, self._runs = self._runs, []
        self._newest.clear()
        return runs
