# SPDX-License-Identifier: Apache-2.0
"""An entry as a topic stores it, opened: its place, its metadata, its payload, and the numbers of its messages.

Decides.
"""

from magnetar.ids import Position
from magnetar.spark import spans
from magnetar.spark.search import NumberedEntry
from magnetar.wire import broker_entry, message


class StoredEntry:
    __slots__ = ("first_index", "is_batch", "messages", "metadata", "payload", "position", "size")

    def __init__(self, position: Position, body: bytes) -> None:
        """`body` is what MESSAGE carries. Raises ChecksumMismatch and BadFrame."""
        start = broker_entry.message_start(body)
        if not spans.is_intact(body, start):
            message.check_intact(body, start)  # says what is wrong
        self.position = position
        self.size = len(body)
        self.metadata, self.payload = message.split(body, start)
        self.is_batch = message.is_batch(self.metadata)
        self.messages = message.messages_in(self.metadata) if self.is_batch else 1
        self.first_index: int | None = None
        if start:
            described = broker_entry.read(body)
            if described is not None and described.HasField("index"):
                self.first_index = described.index - self.messages + 1

    @property
    def is_marker(self) -> bool:
        """Written by a broker, not by a producer."""
        return self.metadata.HasField("marker_type")

    @property
    def is_in_transaction(self) -> bool:
        """Whether it counts depends on how a transaction ended, which the entry does not say."""
        return self.metadata.HasField("txnid_most_bits")

    @property
    def is_chunk(self) -> bool:
        return self.metadata.num_chunks_from_msg > 1

    @property
    def numbered(self) -> NumberedEntry | None:
        return None if self.first_index is None else NumberedEntry(self.position, self.first_index, self.messages)
