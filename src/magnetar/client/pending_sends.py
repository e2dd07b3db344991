# SPDX-License-Identifier: Apache-2.0
"""Entries that a producer has given away and has no receipt for, oldest first.

Receipts come in order. One for the head settles it; one for something older is stale; one for something newer means
that the head was lost on the way, and everything must be sent again. `unwritten` counts from the end what has not been
handed to the present connection yet.
Decides.
"""

from collections import deque
from collections.abc import Callable
from enum import Enum

from magnetar.client.message_id import MessageId
from magnetar.client.outgoing import OutgoingMessage


class PendingSend:
    """One entry: the buffers to write, and the messages that wait for its receipt."""

    __slots__ = (
        "buffers",
        "chunk_count",
        "chunk_index",
        "count",
        "created_s",
        "first_chunk",
        "flushers",
        "highest_sequence_id",
        "messages",
        "sequence_id",
        "size",
    )

    def __init__(
        self,
        buffers: tuple[bytes | memoryview, ...],
        messages: list[OutgoingMessage],
        sequence_id: int,
        highest_sequence_id: int,
        size: int,
        created_s: float,
    ) -> None:
        self.buffers = buffers
        self.messages = messages
        self.count = len(messages)
        self.sequence_id = sequence_id
        self.highest_sequence_id = highest_sequence_id
        # Bytes of client memory that the messages took.
        self.size = size
        self.created_s = created_s
        self.chunk_index = 0
        self.chunk_count = 1
        self.first_chunk: MessageId | None = None
        # Called once the entry is settled, well or badly.
        self.flushers: list[Callable[[], None]] = []

    @property
    def is_last_chunk(self) -> bool:
        return self.chunk_index == self.chunk_count - 1


class ReceiptMatch(Enum):
    SETTLED = 1
    STALE = 2
    GAP = 3


class PendingSends:
    __slots__ = ("_queue", "unwritten")

    def __init__(self) -> None:
        self._queue: deque[PendingSend] = deque()
        self.unwritten = 0

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def head(self) -> PendingSend | None:
        return self._queue[0] if self._queue else None

    @property
    def tail(self) -> PendingSend | None:
        return self._queue[-1] if self._queue else None

    def add(self, send: PendingSend) -> None:
        self._queue.append(send)
        self.unwritten += 1

    def rewind(self) -> None:
        """Everything is to be written again, on a new connection or after a loss."""
        self.unwritten = len(self._queue)

    def take_unwritten(self, limit: int) -> list[PendingSend]:
        """The next entries to write, oldest first."""
        start = len(self._queue) - self.unwritten
        taken = [self._queue[index] for index in range(start, min(start + limit, len(self._queue)))]
        self.unwritten -= len(taken)
        return taken

    def on_receipt(self, sequence_id: int) -> ReceiptMatch:
        head = self.head
        if head is None or sequence_id < head.sequence_id:
            return ReceiptMatch.STALE
        if sequence_id > head.sequence_id:
            return ReceiptMatch.GAP
        return ReceiptMatch.SETTLED

    def pop(self) -> PendingSend:
        send = self._queue.popleft()
        self.unwritten = min(self.unwritten, len(self._queue))
        return send

    def remove(self, sequence_id: int) -> list[PendingSend]:
        """Take out every entry with this sequence id: one, or all chunks of a message."""
        found = [send for send in self._queue if send.sequence_id == sequence_id]
        if found:
            start = len(self._queue) - self.unwritten
            written_left = sum(1 for index, send in enumerate(self._queue) if index < start and send not in found)
            self._queue = deque(send for send in self._queue if send not in found)
            self.unwritten = len(self._queue) - written_left
        return found

    def pop_all(self) -> list[PendingSend]:
        everything = list(self._queue)
        self._queue.clear()
        self.unwritten = 0
        return everything
