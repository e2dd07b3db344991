# SPDX-License-Identifier: Apache-2.0
"""SEND frames, built before a clock starts, so that making them costs a load nothing."""

import struct
from dataclasses import dataclass
from typing import Final

import google_crc32c

from magnetar.wire import batch, frame, hot
from magnetar.wire.proto import pulsar_api_pb2 as pb

PUBLISH_TIME_MS: Final = 1_700_000_000_000
_INDEX: Final = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class Shape:
    """What a load's messages are like. Every entry's payload begins with its index, so that consumers know it."""

    size: int
    batch: int = 1
    keys: int = 0
    deliver_at_ms: int = 0

    @property
    def words(self) -> str:
        size = f"{self.size // 1024} KiB" if self.size % 1024 == 0 else f"{self.size} B"
        return f"{'batched' if self.batch > 1 else 'unbatched'} {size}"

    def entry(self, index: int, sequence_id: int) -> bytes:
        """Metadata and payload, as a SEND frame carries them behind its command."""
        metadata = pb.MessageMetadata(producer_name="raw", sequence_id=sequence_id, publish_time=PUBLISH_TIME_MS)
        payload = _INDEX.pack(index)[: self.size] + b"x" * (self.size - 8)
        if self.keys:
            metadata.partition_key = f"key-{index % self.keys}"
        if self.deliver_at_ms:
            metadata.deliver_at_time = self.deliver_at_ms
        if self.batch > 1:
            single = pb.SingleMessageMetadata(payload_size=len(payload))
            payload = batch.join([batch.BatchedMessage(single, payload)] * self.batch)
            metadata.num_messages_in_batch = self.batch
        head = metadata.SerializeToString()
        covered = struct.pack(">I", len(head)) + head + payload
        return b"\x0e\x01" + struct.pack(">I", google_crc32c.value(covered)) + covered

    def send(self, producer_id: int, index: int, sequence_id: int) -> bytes:
        return frame.join(hot.encode_send(producer_id, sequence_id, self.batch), self.entry(index, sequence_id))

    def index_of(self, message: memoryview) -> int:
        """The index that an entry carries, from the frame of a MESSAGE: each message of a batch has its entry's."""
        (index,) = _INDEX.unpack(message[len(message) - self.size : len(message) - self.size + 8])
        return int(index)


class Tally:
    """Which of so many unbatched entries came, by their indexes, and how many frames that are no such entries."""

    def __init__(self, shape: Shape, count: int) -> None:
        self._shape = shape
        self._times = bytearray(count)
        self.others = 0

    def on_entry(self, message: memoryview) -> None:
        if len(message) < self._shape.size:
            self.others += 1
        else:
            self._times[self._shape.index_of(message)] += 1

    @property
    def missing(self) -> int:
        return self._times.count(0)

    @property
    def repeated(self) -> int:
        return len(self._times) - self.missing - self._times.count(1)
