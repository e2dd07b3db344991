# SPDX-License-Identifier: Apache-2.0
"""How many messages an entry has and which number its last one has, as far as memory can tell.

For cursors that count messages: what was read or written lately is known, and that is what is acknowledged. Never
reads from storage.
Decides.
"""

from magnetar.broker.entry_facts import FactsTable, parse_facts
from magnetar.broker.stored_message import stored_index
from magnetar.ids import Position
from magnetar.managed_ledger.entry import Entry
from magnetar.managed_ledger.managed_ledger import ManagedLedger


class EntryLookups:
    __slots__ = ("_facts", "_managed_ledger")

    def __init__(self, managed_ledger: ManagedLedger, facts: FactsTable) -> None:
        self._managed_ledger = managed_ledger
        self._facts = facts

    def size_of(self, position: Position) -> int | None:
        """The messages of an entry; None when memory does not have it."""
        facts = self._facts.known(position)
        if facts is not None:
            return facts.messages
        entry = self._cached(position)
        return None if entry is None else parse_facts(entry).messages

    def number_of(self, position: Position) -> int | None:
        """The number of an entry's last message; None when memory does not have it or it was given none."""
        entry = self._cached(position)
        number = -1 if entry is None else stored_index(entry)
        return None if number < 0 else number

    def _cached(self, position: Position) -> Entry | None:
        entries = self._managed_ledger.read_cached(position, 1, 1)
        return entries[0] if entries and entries[0].position == position else None
