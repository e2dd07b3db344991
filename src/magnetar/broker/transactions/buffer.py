# SPDX-License-Identifier: Apache-2.0
"""What of a topic readers may see: nothing from the first message of the oldest open transaction on, and never what
an aborted one sent.

Told of the messages and markers of transactions in the order in which they lie in the log, as they become durable or
as they are replayed: the same calls either way, so a restart comes to the same answers. One per topic, read by its
subscriptions. Never reads, never writes.

Invariants: `open` is in the order of first messages, `aborted` in that of the ends; `through` is the place before the
first open one, or None; the first `sealed` of the aborted are in segments, and need not be in a snapshot.
Decides.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import islice, takewhile
from typing import Final

from magnetar.broker.transactions.marker import read_in_transaction
from magnetar.broker.transactions.txn_id import TxnId
from magnetar.ids import Position
from magnetar.managed_ledger.entry import Entry
from magnetar.managed_ledger.ledger_list import LedgerList

_OPEN: Final = "open"
_ABORTED: Final = "aborted"


class TransactionBuffer:
    __slots__ = ("_from", "_ledgers", "_looked", "aborted", "changes", "on_early", "open", "sealed", "through")

    def __init__(self) -> None:
        # By transaction: where its first message lies.
        self.open: dict[TxnId, Position] = {}
        # By transaction: where it was aborted.
        self.aborted: dict[TxnId, Position] = {}
        self.sealed = 0
        # The last place that readers may see; None: all.
        self.through: Position | None = None
        # Transactions that began or ended, in all.
        self.changes = 0
        self._ledgers: LedgerList | None = None
        # Of a topic that others write: from where and how far it was looked at; None where all is told.
        self._from: Position | None = None
        self._looked: Position | None = None
        # Asked to look from an earlier place, because somebody reads there.
        self.on_early: Callable[[Position], None] = _ignore

    def attach(self, ledgers: LedgerList) -> None:
        self._ledgers = ledgers

    def on_message(self, txn_id: TxnId, position: Position) -> None:
        if txn_id not in self.open:
            self.open[txn_id] = position
            self._on_changed()

    def on_marker(self, txn_id: TxnId, position: Position, *, commit: bool) -> None:
        """One that nothing was sent in leaves no trace."""
        if self.open.pop(txn_id, None) is None:
            return
        if not commit:
            self.aborted[txn_id] = position
        self._on_changed()

    def is_aborted(self, txn_id: TxnId) -> bool:
        return txn_id in self.aborted

    def has_aborted(self, entry: Entry) -> bool:
        """Whether a stored entry was sent in an aborted transaction."""
        if not self.aborted:
            return False
        found = read_in_transaction(entry)
        return found is not None and found.commit is None and found.txn_id in self.aborted

    @property
    def oldest(self) -> TxnId | None:
        """The open transaction that readers wait for."""
        return next(iter(self.open), None)

    def look_from(self, position: Position) -> None:
        """Nothing is known any more; from this place on it will be told, and `on_looked` tells how far."""
        assert self._ledgers is not None
        self.open.clear()
        self.aborted.clear()
        self.sealed = 0
        self._from, self._looked = position, self._ledgers.previous_position(position)
        self._on_changed()

    def on_looked(self, position: Position) -> None:
        self._looked = position
        self._on_changed()

    def hides(self, position: Position) -> bool:
        if self._from is not None and position < self._from:
            self.on_early(position)
            return True
        return self.through is not None and position > self.through

    def on_trimmed(self) -> None:
        """Forget what was aborted in ledgers that are gone."""
        if self._ledgers is None or not self.aborted:
            return
        first = self._ledgers.before_first
        gone = [txn_id for txn_id, _ in takewhile(lambda each: each[1] < first, self.aborted.items())]
        for txn_id in gone:
            del self.aborted[txn_id]
        self.sealed = max(0, self.sealed - len(gone))

    @property
    def unsealed(self) -> int:
        """How many of the aborted are in no segment."""
        return len(self.aborted) - self.sealed

    def oldest_unsealed(self, count: int) -> list[tuple[TxnId, Position]]:
        """For the next segment."""
        return list(islice(self.aborted.items(), self.sealed, self.sealed + count))

    def seal(self, aborted: Iterable[tuple[TxnId, Position]]) -> None:
        """These, which were the oldest, are in a segment now; some may have been forgotten meanwhile."""
        self.sealed += sum(txn_id in self.aborted for txn_id, _ in aborted)

    def snapshot(self) -> dict[str, int]:
        """As properties of a cursor: kind, transaction and ledger in the name, the entry as the value."""
        self.on_trimmed()
        kinds = ((_OPEN, self.open.items()), (_ABORTED, islice(self.aborted.items(), self.sealed, None)))
        return {
            f"{kind}:{txn_id.most}:{txn_id.least}:{position.ledger_id}": position.entry_id
            for kind, places in kinds
            for txn_id, position in places
        }

    def restore(self, properties: Mapping[str, int], segments: Iterable[tuple[TxnId, Position]] = ()) -> None:
        """A snapshot, and what its segments hold, all of which is older than the aborted in the snapshot itself."""
        self.aborted = dict(sorted(segments, key=lambda each: each[1]))
        self.sealed = len(self.aborted)
        found: list[tuple[Position, TxnId, str]] = []
        for name, entry_id in properties.items():
            kind, _, rest = name.partition(":")
            if kind in (_OPEN, _ABORTED):
                most, least, ledger_id = map(int, rest.split(":"))
                found.append((Position(ledger_id, entry_id), TxnId(most, least), kind))
        for position, txn_id, kind in sorted(found):
            (self.open if kind == _OPEN else self.aborted)[txn_id] = position
        self._on_changed()

    def _on_changed(self) -> None:
        self.changes += 1
        first = next(iter(self.open.values()), None)
        if first is None:
            self.through = self._looked
        else:
            assert self._ledgers is not None
            before = self._ledgers.previous_position(first)
            self.through = before if self._looked is None else min(before, self._looked)


def _ignore(position: Position) -> None: ...
