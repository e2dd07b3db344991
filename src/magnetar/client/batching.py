# SPDX-License-Identifier: Apache-2.0
"""Which messages share an entry: batches by count, bytes and, if wanted, by key. Time is the producer's to watch.

Messages leave in the order they came: of a key-based collector, in order per key.
Decides.
"""

from magnetar.client.outgoing import OutgoingMessage

# What a small message takes beside its payload: sizes and its own metadata.
OVERHEAD_BYTES = 16


class Batch:
    """Messages that will be one entry. Never empty once it is given out."""

    __slots__ = ("messages", "payload_bytes")

    def __init__(self) -> None:
        self.messages: list[OutgoingMessage] = []
        self.payload_bytes = 0

    def add(self, message: OutgoingMessage) -> None:
        self.messages.append(message)
        self.payload_bytes += len(message.payload) + OVERHEAD_BYTES


class BatchCollector:
    """Collects one batch at a time, or with `by_key` one per key; `take` empties it."""

    __slots__ = ("_batches", "_bytes", "_bytes_max", "_count", "_first", "_messages_max", "by_key")

    def __init__(self, messages_max: int, bytes_max: int, *, by_key: bool = False) -> None:
        self._messages_max = messages_max if messages_max > 0 else 2**31
        self._bytes_max = bytes_max if bytes_max > 0 else 2**31
        self.by_key = by_key
        self._first: OutgoingMessage | None = None
        self._batches: dict[bytes | None, Batch] = {}
        self._count = 0
        self._bytes = 0

    def __len__(self) -> int:
        return self._count

    def fits(self, message: OutgoingMessage) -> bool:
        """Whether the message may join what is here; if not, take first. An empty collector takes any message."""
        first = self._first
        if first is None:
            return True
        if self._bytes + len(message.payload) + OVERHEAD_BYTES > self._bytes_max:
            return False
        return (
            message.schema_version == first.schema_version
            and message.transaction == first.transaction
            and message.replicate_to == first.replicate_to
        )

    def add(self, message: OutgoingMessage) -> bool:
        """Add one; true if it is time to take."""
        if self._first is None:
            self._first = message
        key = message.order_key if self.by_key else None
        batch = self._batches.get(key)
        if batch is None:
            batch = self._batches[key] = Batch()
        batch.add(message)
        self._count += 1
        self._bytes += len(message.payload) + OVERHEAD_BYTES
        return self._count >= self._messages_max or self._bytes >= self._bytes_max

    def take(self) -> list[Batch]:
        """Everything, by the sequence id of each batch's first message, so that those rise from entry to entry."""
        batches = list(self._batches.values())
        self._batches = {}
        self._first = None
        self._count = self._bytes = 0
        return batches
