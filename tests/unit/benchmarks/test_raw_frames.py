# SPDX-License-Identifier: Apache-2.0
"""Frames built beforehand are the frames that a client would send."""

import pytest

from benchmarks.raw_frames import Shape
from magnetar.wire import batch, frame, message
from magnetar.wire.proto import pulsar_api_pb2 as pb


def opened(data: bytes) -> tuple[pb.BaseCommand, pb.MessageMetadata, bytes]:
    ((command, body),) = frame.FrameCutter().feed(data)
    assert message.is_intact(body)
    metadata, payload = message.split(body)
    return pb.BaseCommand.FromString(command), metadata, bytes(payload)


@pytest.mark.parametrize("size", [8, 100, 1024])
def test_an_unbatched_frame_carries_its_index(size: int) -> None:
    shape = Shape(size, keys=3)
    command, metadata, payload = opened(shape.send(5, 77, 9))
    assert (command.send.producer_id, command.send.sequence_id, command.send.num_messages) == (5, 9, 1)
    assert (metadata.sequence_id, metadata.partition_key, len(payload)) == (9, "key-2", size)
    assert shape.index_of(memoryview(payload)) == 77


def test_a_batched_frame_holds_as_many_messages_as_it_says() -> None:
    command, metadata, payload = opened(Shape(100, 7).send(0, 1, 2))
    assert command.send.num_messages == metadata.num_messages_in_batch == 7
    assert [len(bytes(each.payload)) for each in batch.split(payload, 7)] == [100] * 7
