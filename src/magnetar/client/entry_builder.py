# SPDX-License-Identifier: Apache-2.0
"""From messages to the entries that a producer sends: metadata, batches, compression, encryption, chunks.

In that order: a payload is compressed whole, then encrypted, then cut if it is larger than an entry may be. Never
sends, never numbers: sequence ids are there when a message comes here.
Decides.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from magnetar.client.batching import Batch
from magnetar.client.chunks import cut
from magnetar.client.options import CompressionType, ProducerOptions
from magnetar.client.outgoing import MetadataEncoder, OutgoingMessage
from magnetar.client.pending_sends import PendingSend
from magnetar.errors import MessageTooLarge
from magnetar.wire import frame, message
from magnetar.wire.compression import compress
from magnetar.wire.hot import encode_send
from magnetar.wire.proto import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from magnetar.client.encryption import MessageEncryption

# What metadata may grow by when a message becomes chunks: uuid, numbers, sizes.
_CHUNK_METADATA_BYTES: Final = 64


class EntryBuilder:
    """Entries of one producer on one topic."""

    __slots__ = ("_compression", "_encryption", "_metadata", "_name", "_options", "_producer_id", "bytes_max")

    def __init__(
        self,
        producer_id: int,
        producer_name: str,
        options: ProducerOptions,
        encryption: "MessageEncryption | None",
        bytes_max: int,
    ) -> None:
        self._producer_id = producer_id
        self._name = producer_name
        self._metadata = MetadataEncoder(producer_name)
        self._options = options
        self._compression = options.compression_type
        self._encryption = encryption
        # The largest message that the broker announced.
        self.bytes_max = bytes_max

    def single(self, outgoing: OutgoingMessage, now_ms: int, now_s: float) -> Iterator[PendingSend]:
        """The entry, or the chunks, of one message. Raises MessageTooLarge."""
        optional: pb.MessageMetadata | None = None
        if not (outgoing.is_plain and outgoing.group == (b"", None, ()) and not outgoing.deliver_at_ms):
            optional = pb.MessageMetadata()
            outgoing.fill(optional)
            outgoing.fill_group(optional)
        payload = outgoing.payload
        if self._compression and len(payload) >= self._options.compression_min_bytes:
            optional = optional or pb.MessageMetadata()
            payload = self._compress(optional, payload)
        limit = min(self._options.chunk_bytes_max or self.bytes_max, self.bytes_max)
        is_large = len(payload) + len(outgoing.partition_key or "") > limit
        if not is_large or not self._options.chunking_enabled:
            yield self._entry([outgoing], payload, optional, now_ms, now_s)
            return
        yield from self._chunks(outgoing, payload, optional or pb.MessageMetadata(), (now_ms, now_s), limit)

    def batch(self, batch: Batch, now_ms: int, now_s: float) -> Iterator[PendingSend]:
        """One entry of several messages; a batch of one is an ordinary message."""
        messages = batch.messages
        if len(messages) == 1:
            yield from self.single(messages[0], now_ms, now_s)
            return
        optional = pb.MessageMetadata()
        messages[0].fill_group(optional)
        first = messages[0]
        if self._options.batching_type and first.partition_key is not None:
            optional.partition_key = first.partition_key
            optional.partition_key_b64_encoded = first.is_key_encoded
        if self._options.batching_type and first.ordering_key is not None:
            optional.ordering_key = first.ordering_key
        parts: list[bytes] = []
        for outgoing in messages:
            metadata = outgoing.single_metadata()
            parts += (len(metadata).to_bytes(4, "big"), metadata, outgoing.payload)
        payload = b"".join(parts)
        optional.num_messages_in_batch = len(messages)
        optional.highest_sequence_id = messages[-1].sequence_id
        if self._compression:
            payload = self._compress(optional, payload)
        yield self._entry(messages, payload, optional, now_ms, now_s)

    def _compress(self, optional: pb.MessageMetadata, payload: bytes) -> bytes:
        optional.compression = pb.CompressionType.ValueType(int(CompressionType(self._compression)))
        optional.uncompressed_size = len(payload)
        return compress(optional.compression, payload)

    def _entry(
        self,
        messages: list[OutgoingMessage],
        payload: bytes,
        optional: pb.MessageMetadata | None,
        now_ms: int,
        now_s: float,
        *,
        is_chunk: bool = False,
    ) -> PendingSend:
        sequence_id, highest = messages[0].sequence_id, messages[-1].highest_sequence_id
        count = messages[0].packed or len(messages)
        if self._encryption is not None:
            optional = optional or pb.MessageMetadata()
            payload = self._encryption.encrypt(payload, optional)
        metadata = self._metadata.encode(sequence_id, now_ms, optional)
        front, body = message.join(metadata, payload)
        if len(front) + len(body) > self.bytes_max + frame.FRAME_PADDING_BYTES // 2 or len(body) > self.bytes_max:
            raise MessageTooLarge(
                f"A message of {len(body)} bytes is larger than the {self.bytes_max} that the broker takes: "
                "send less, or use chunking_enabled"
            )
        transaction = messages[0].transaction
        if transaction is None and not is_chunk:
            command = encode_send(self._producer_id, sequence_id, count, highest if count > 1 else 0)
        else:
            command = self._rare_send(messages, is_chunk)
        buffers = (frame.header(command, len(front) + len(body)) + front, body)
        return PendingSend(buffers, messages, sequence_id, highest, sum(len(one.payload) for one in messages), now_s)

    def _rare_send(self, messages: list[OutgoingMessage], is_chunk: bool) -> bytes:
        command = pb.BaseCommand(type=pb.BaseCommand.SEND)
        send = command.send
        send.producer_id = self._producer_id
        send.sequence_id = messages[0].sequence_id
        if len(messages) > 1:
            send.num_messages = len(messages)
            send.highest_sequence_id = messages[-1].sequence_id
        if messages[0].transaction is not None:
            send.txnid_most_bits, send.txnid_least_bits = messages[0].transaction
        if is_chunk:
            send.is_chunk = True
        return command.SerializeToString()

    def _chunks(
        self,
        outgoing: OutgoingMessage,
        payload: bytes,
        metadata: pb.MessageMetadata,
        now: tuple[int, float],
        limit: int,
    ) -> Iterator[PendingSend]:
        overhead = len(metadata.SerializePartialToString()) + len(self._name) + _CHUNK_METADATA_BYTES
        size = max(1, limit - overhead)
        count = (len(payload) + size - 1) // size
        metadata.uuid = f"{self._name}-{outgoing.sequence_id}"
        metadata.num_chunks_from_msg = count
        metadata.total_chunk_msg_size = len(payload)
        for index, piece in enumerate(cut(payload, size)):
            metadata.chunk_id = index
            del metadata.encryption_keys[:]
            send = self._entry([outgoing], piece, metadata, now[0], now[1], is_chunk=True)
            send.chunk_index, send.chunk_count = index, count
            # Room is given back once, with the last chunk.
            if not send.is_last_chunk:
                send.size = 0
            yield send
