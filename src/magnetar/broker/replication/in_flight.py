# SPDX-License-Identifier: Apache-2.0
"""What of a topic is on its way to another cluster, in the order of the log, and how far all of it has arrived.

Entries that do not go are done when they are seen, but count only once all before them have arrived.
Invariants: entries are in log order; `through` never skips one that has not arrived.
Decides.
"""

from collections import deque
from typing import NamedTuple

from magnetar.errors import BadSequence
from magnetar.ids import Position


class Sent(NamedTuple):
    position: Position
    # None: it stays here.
    sequence_id: int | None
    size: int = 0
    messages: int = 0
    publish_time_ms: int = 0


class InFlight:
    __slots__ = ("_entries", "messages", "size", "through")

    def __init__(self) -> None:
        self._entries: deque[Sent] = deque()
        # Up to here everything has arrived or stays; None: nothing was seen.
        self.through: Position | None = None
        self.messages = 0
        self.size = 0

    def add(self, sent: Sent) -> None:
        if sent.sequence_id is None and not self._entries:
            self.through = sent.position
            return
        self._entries.append(sent)
        self.size += sent.size
        self.messages += sent.messages

    def on_receipt(self, sequence_id: int) -> Sent | None:
        """The oldest has arrived; None for a receipt that nobody waits for. BadSequence when it is not the oldest's."""
        if not self._entries:
            return None
        oldest = self._entries[0]
        assert oldest.sequence_id is not None, "what stays is never the oldest that waits"
        if sequence_id < oldest.sequence_id:
            return None
        if sequence_id > oldest.sequence_id:
            raise BadSequence(f"A receipt for {sequence_id} came before that for {oldest.sequence_id}")
        self._entries.popleft()
        self.size -= oldest.size
        self.messages -= oldest.messages
        self.through = oldest.position
        while self._entries and self._entries[0].sequence_id is None:
            self.through = self._entries.popleft().position
        return oldest

    @property
    def oldest_publish_time_ms(self) -> int:
        """When the message that waits the longest was published; 0: none waits."""
        return self._entries[0].publish_time_ms if self._entries else 0

    def __len__(self) -> int:
        return len(self._entries)
