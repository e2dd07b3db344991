# SPDX-License-Identifier: Apache-2.0
"""Messages larger than an entry may be: cut into chunks by the producer, put together again by the consumer.

Assembly is bounded in number and in time. What is given up is named, so that the consumer can acknowledge it or let
it come again.
Decides.
"""

from collections import OrderedDict
from collections.abc import Iterator

from magnetar.ids import Position
from magnetar.wire.proto import pulsar_api_pb2 as pb


def cut(payload: bytes, chunk_bytes_max: int) -> Iterator[bytes]:
    """Pieces of at most so many bytes, in order; one empty piece for an empty payload."""
    view = memoryview(payload)
    for start in range(0, max(1, len(view)), chunk_bytes_max):
        yield bytes(view[start : start + chunk_bytes_max])


class PartialMessage:
    """The chunks of one message so far."""

    __slots__ = ("buffer", "chunks", "expires_ms", "positions", "size")

    def __init__(self, chunks: int, size: int, expires_ms: int) -> None:
        self.chunks = chunks
        self.size = size
        self.expires_ms = expires_ms
        self.buffer = bytearray()
        self.positions: list[Position] = []


class ChunkAssembly:
    """The unfinished messages of one consumer, oldest first."""

    __slots__ = ("_expire_after_ms", "_messages_max", "_partial", "dropped")

    def __init__(self, messages_max: int, expire_after_ms: int) -> None:
        self._messages_max = messages_max
        self._expire_after_ms = expire_after_ms
        self._partial: OrderedDict[str, PartialMessage] = OrderedDict()
        # Positions of chunks that will never be a message here; the owner takes them out.
        self.dropped: list[Position] = []

    def __len__(self) -> int:
        return len(self._partial)

    def add(
        self, metadata: pb.MessageMetadata, payload: bytes | memoryview, position: Position, now_ms: int, bytes_max: int
    ) -> PartialMessage | None:
        """Add one chunk; the whole message if it was the last. A chunk out of order gives its message up."""
        self.expire(now_ms)
        total, count = metadata.total_chunk_msg_size, metadata.num_chunks_from_msg
        if metadata.chunk_id == 0:
            self._begin(metadata.uuid, count, total, now_ms)
        partial = self._partial.get(metadata.uuid)
        if partial is None:
            self.dropped.append(position)
            return None
        expected = len(partial.positions)
        if metadata.chunk_id < expected:
            # Seen already: a producer that was cut off sent it again.
            self.dropped.append(position)
            return None
        too_large = len(partial.buffer) + len(payload) > min(partial.size, bytes_max)
        if metadata.chunk_id > expected or count != partial.chunks or too_large:
            self._drop(metadata.uuid)
            self.dropped.append(position)
            return None
        partial.buffer += payload
        partial.positions.append(position)
        if len(partial.positions) < partial.chunks:
            return None
        del self._partial[metadata.uuid]
        return partial

    def _begin(self, uuid: str, count: int, total: int, now_ms: int) -> None:
        known = self._partial.get(uuid)
        if known is not None:
            # The producer began anew; what came before is of no use.
            self._drop(uuid)
        while len(self._partial) >= self._messages_max:
            self._drop(next(iter(self._partial)))
        self._partial[uuid] = PartialMessage(count, total, now_ms + self._expire_after_ms)

    def expire(self, now_ms: int) -> None:
        if self._expire_after_ms <= 0:
            return
        while self._partial:
            uuid, oldest = next(iter(self._partial.items()))
            if oldest.expires_ms > now_ms:
                return
            self._drop(uuid)

    def _drop(self, uuid: str) -> None:
        self.dropped += self._partial.pop(uuid).positions

    def take_dropped(self) -> list[Position]:
        dropped, self.dropped = self.dropped, []
        return dropped

    def clear(self) -> None:
        self._partial.clear()
        self.dropped = []
