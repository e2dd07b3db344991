# SPDX-License-Identifier: Apache-2.0
"""A message as a consumer sees it. Method names are those of the official Python client.

A message is small: what belongs to its entry is shared by all messages of a batch, and values are decoded when they
are asked for.
Decides.
"""

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from magnetar.client.message_id import TopicMessageId
from magnetar.ids import MessageId, Position
from magnetar.wire import batch, broker_entry
from magnetar.wire import message as wire_message
from magnetar.wire.proto import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from magnetar.client.schema import Schema

T = TypeVar("T")


class BatchAcks:
    """Which messages of one delivered batch are still to be acknowledged: a bit each, as the protocol has it."""

    __slots__ = ("left", "size")

    def __init__(self, size: int, ack_set: Sequence[int] = ()) -> None:
        self.size = size
        self.left = (1 << size) - 1
        if ack_set:
            words = sum((word & 0xFFFF_FFFF_FFFF_FFFF) << (64 * index) for index, word in enumerate(ack_set))
            self.left &= words

    def ack(self, index: int) -> bool:
        """One is done; true if all are."""
        self.left &= ~(1 << index)
        return self.left == 0

    def ack_up_to(self, index: int) -> bool:
        self.left &= -1 << (index + 1)
        return self.left == 0

    def words(self) -> list[int]:
        """As the protocol writes it: signed words, lowest first."""
        count = (self.size + 63) // 64
        found = []
        for index in range(count):
            word = self.left >> (64 * index) & 0xFFFF_FFFF_FFFF_FFFF
            found.append(word - 2**64 if word >= 2**63 else word)
        return found


class Source(Protocol):
    """The consumer of one topic that an entry was delivered to."""

    generation: int
    topic_text: str
    partition: int
    schema: "Schema[Any]"

    def on_taken(self, message: "Message[Any]") -> None: ...
    def on_put_back(self, message: "Message[Any]") -> None: ...


class DeliveredEntry:
    """What all messages of one delivery share. Its metadata is parsed when somebody asks, unless it was needed before.

    `attachment` is the source's generation that it came in; what is older is not handed out.
    """

    __slots__ = (
        "_body",
        "_metadata",
        "acks",
        "attachment",
        "chunk_positions",
        "encryption",
        "ledger_entry",
        "redelivery_count",
        "source",
    )

    def __init__(
        self,
        source: Source,
        position: Position,
        body: bytes,
        metadata: pb.MessageMetadata | None = None,
        redelivery_count: int = 0,
    ) -> None:
        self.source = source
        self.attachment = source.generation
        self.ledger_entry = position
        self.redelivery_count = redelivery_count
        self.acks: BatchAcks | None = None
        self.chunk_positions: list[Position] | None = None
        # Set where the payload could not be decrypted and the consumer wanted it all the same.
        self.encryption: EncryptionContext | None = None
        self._body = body
        self._metadata = metadata

    @property
    def metadata(self) -> pb.MessageMetadata:
        metadata = self._metadata
        if metadata is None:
            metadata = self._metadata = wire_message.read_metadata(self._body, broker_entry.message_start(self._body))
        return metadata

    @property
    def broker_metadata(self) -> pb.BrokerEntryMetadata | None:
        return broker_entry.read(self._body)

    @property
    def topic(self) -> str:
        return self.source.topic_text

    @property
    def partition(self) -> int:
        return self.source.partition


class EncryptionContext:
    """What one needs to decrypt a payload oneself."""

    __slots__ = ("algorithm", "compression", "is_batch", "keys", "parameter", "uncompressed_size")

    def __init__(self, metadata: pb.MessageMetadata) -> None:
        self.keys = {key.key: (key.value, {p.key: p.value for p in key.metadata}) for key in metadata.encryption_keys}
        self.parameter = metadata.encryption_param
        self.algorithm = metadata.encryption_algo
        self.compression = int(metadata.compression)
        self.uncompressed_size = metadata.uncompressed_size
        self.is_batch = metadata.HasField("num_messages_in_batch")


class Message(Generic[T]):
    """Where its bytes lie in a buffer that others may share; `data` takes them out."""

    __slots__ = ("_buffer", "_end", "_single", "_start", "batch_index", "entry")

    def __init__(
        self,
        entry: DeliveredEntry,
        buffer: bytes | memoryview,
        start: int = 0,
        end: int | None = None,
        batch_index: int = -1,
        single: "int | pb.SingleMessageMetadata | None" = None,
    ) -> None:
        """`single`: its own metadata in a batch, or where in the buffer that lies, just before the payload."""
        self.entry = entry
        self._buffer = buffer
        self._start = start
        self._end = len(buffer) if end is None else end
        self.batch_index = batch_index
        self._single = single

    def data(self) -> bytes:
        """The payload, decompressed and decrypted."""
        return bytes(self._buffer[self._start : self._end])

    def size(self) -> int:
        return self._end - self._start

    @property
    def _own(self) -> "pb.SingleMessageMetadata | pb.MessageMetadata":
        """Where what belongs to this message alone is written."""
        single = self._single
        if single is None:
            return self.entry.metadata
        if type(single) is int:
            single = self._single = batch.parse_single(bytes(self._buffer[single : self._start]), self.batch_index)
        assert not isinstance(single, int)
        return single

    def value(self) -> T:
        """The payload decoded by the schema. Raises BadSchema; None for a null value."""
        if self.has_null_value():
            return None  # type: ignore[return-value]
        value: T = self.entry.source.schema.decode_message(self)
        return value

    def has_null_value(self) -> bool:
        return self._own.null_value

    def message_id(self) -> TopicMessageId:
        entry = self.entry
        first = None
        if entry.chunk_positions:
            first = MessageId(*entry.chunk_positions[0], entry.partition)
        size = entry.acks.size if entry.acks is not None else 0
        return TopicMessageId(entry.topic, *entry.ledger_entry, entry.partition, self.batch_index, size, first)

    @property
    def position(self) -> Position:
        return self.entry.ledger_entry

    def topic_name(self) -> str:
        return self.entry.topic

    def properties(self) -> dict[str, str]:
        return {pair.key: pair.value for pair in self._own.properties}

    def has_key(self) -> bool:
        return self._own.HasField("partition_key")

    def partition_key(self) -> str:
        """The key as text; empty if there is none. A key of bytes is given as the base64 it travels in."""
        return self._own.partition_key

    def key_bytes(self) -> bytes | None:
        metadata = self._own
        if not metadata.HasField("partition_key"):
            return None
        key = metadata.partition_key
        return base64.b64decode(key) if metadata.partition_key_b64_encoded else key.encode()

    def has_bytes_key(self) -> bool:
        return self._own.partition_key_b64_encoded

    def ordering_key(self) -> bytes:
        return self._own.ordering_key

    def event_timestamp(self) -> int:
        """Milliseconds since 1970, 0 if the producer gave none."""
        return self._own.event_time

    def publish_timestamp(self) -> int:
        return self.entry.metadata.publish_time

    def broker_publish_timestamp(self) -> int | None:
        """When the broker took it, if brokers add that."""
        metadata = self.entry.broker_metadata
        return metadata.broker_timestamp if metadata is not None and metadata.HasField("broker_timestamp") else None

    def index(self) -> int | None:
        """Its number in the topic, if brokers add that."""
        metadata = self.entry.broker_metadata
        if metadata is None or not metadata.HasField("index"):
            return None
        if self.batch_index < 0:
            return metadata.index
        return metadata.index - self.entry.metadata.num_messages_in_batch + 1 + self.batch_index

    def sequence_id(self) -> int:
        own = self._own
        return own.sequence_id if own.HasField("sequence_id") else self.entry.metadata.sequence_id

    def producer_name(self) -> str:
        return self.entry.metadata.producer_name

    def redelivery_count(self) -> int:
        return self.entry.redelivery_count

    def schema_version(self) -> str:
        """As the official client gives it: the version's bytes as text."""
        return self.entry.metadata.schema_version.decode("latin-1")

    def schema_version_bytes(self) -> bytes:
        return self.entry.metadata.schema_version

    def replicated_from(self) -> str:
        return self.entry.metadata.replicated_from

    def encryption_context(self) -> EncryptionContext | None:
        return self.entry.encryption

    def __repr__(self) -> str:
        return f"Message({self.message_id()}, {self.size()} bytes, {self.entry.topic})"
