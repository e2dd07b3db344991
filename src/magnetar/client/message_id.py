# SPDX-License-Identifier: Apache-2.0
"""Message ids as applications hold them: with the names of the official Python client, and with their topic.

Decides.
"""

from typing import ClassVar

from magnetar import ids
from magnetar.ids import EARLIEST, LATEST


class MessageId(ids.MessageId):
    """`MessageId.earliest` and `MessageId.latest` are the ends of every topic."""

    __slots__ = ()

    earliest: ClassVar["MessageId"]
    latest: ClassVar["MessageId"]

    def serialize(self) -> bytes:
        """The bytes that every official client reads."""
        return self.encode()

    @staticmethod
    def deserialize(data: bytes) -> "MessageId":
        """Raises BadMessageId."""
        return MessageId.of(ids.MessageId.decode(data))

    @staticmethod
    def of(found: ids.MessageId) -> "MessageId":
        return MessageId(
            found.ledger_id, found.entry_id, found.partition, found.batch_index, found.batch_size, found.first_chunk
        )


MessageId.earliest = MessageId(*EARLIEST)
MessageId.latest = MessageId(*LATEST)


class TopicMessageId(MessageId):
    """A message id that knows its topic, so that a consumer of several topics finds whose it is."""

    __slots__ = ("topic",)

    def __init__(
        self,
        topic: str,
        ledger_id: int,
        entry_id: int,
        partition: int = -1,
        batch_index: int = -1,
        batch_size: int = 0,
        first_chunk: ids.MessageId | None = None,
    ) -> None:
        super().__init__(ledger_id, entry_id, partition, batch_index, batch_size, first_chunk)
        self.topic = topic
