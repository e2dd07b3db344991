# SPDX-License-Identifier: Apache-2.0
"""An entry as it is read: where it lies, and its bytes. Nothing is copied: the body is a view of the packed entry.

Decides.
"""

from magnetar.ids import Position


class Entry:
    __slots__ = ("body", "entry_id", "ledger_id")

    def __init__(self, ledger_id: int, entry_id: int, body: memoryview) -> None:
        self.ledger_id = ledger_id
        self.entry_id = entry_id
        self.body = body

    @property
    def position(self) -> Position:
        return Position(self.ledger_id, self.entry_id)

    def __repr__(self) -> str:
        return f"Entry({self.ledger_id}:{self.entry_id}, {len(self.body)} bytes)"
