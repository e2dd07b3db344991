# SPDX-License-Identifier: Apache-2.0
"""The compiled loops of the data source beside the plain ones, and both beside protobuf.

Decides.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa

from magnetar.spark import batch_layout, spans
from magnetar.wire import batch, message
from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.fuzz.target import answer_of


def _compiled() -> Any:
    from tests.fuzz.twins import ROWS

    return ROWS


def layouts(data: bytes) -> None:
    for count, start in ((1, 0), (2, 0), (5, 0), (6, 3)):
        plain = batch_layout.lay_out_plainly(data, count, start)
        fast = _compiled().lay_out(data, count, start)
        found = None if plain is None else (plain.rows.tobytes(), plain.pairs.tobytes())
        assert found == fast, f"plainly {found!r:.200}, compiled {fast!r:.200}"
        if plain is not None:
            _as_protobuf(data[start:], count, plain, start)


def _as_protobuf(data: bytes, count: int, layout: batch_layout.BatchLayout, start: int) -> None:
    said: Any = answer_of(lambda: batch.split(data, count))
    if not isinstance(said, list):
        # Text that is no UTF-8 is seen by who reads it; nothing else may be passed over.
        keys = [data[row[batch_layout.KEY_START] - start : row[batch_layout.KEY_END] - start] for row in layout.rows]
        assert any(not _is_text(key) for key in keys), f"laid out, and refused by protobuf: {said}"
        return
    for row, each in zip(layout.rows.tolist(), said, strict=True):
        metadata = each.metadata
        assert data[row[0] - start : row[1] - start] == bytes(each.payload)
        key = data[row[2] - start : row[3] - start]
        assert key == metadata.partition_key.encode()
        assert bool(row[6] & batch_layout.HAS_KEY) == metadata.HasField("partition_key")
        assert row[4] == metadata.event_time
        assert row[5] == (metadata.sequence_id if metadata.HasField("sequence_id") else -1)
        assert bool(row[6] & batch_layout.IS_NULL) == metadata.null_value
        assert bool(row[6] & batch_layout.IS_COMPACTED_OUT) == metadata.compacted_out
        assert bool(row[6] & batch_layout.KEY_IS_BASE64) == metadata.partition_key_b64_encoded
        assert row[7] == len(metadata.properties)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def gathered(data: bytes) -> None:
    """Spans that lie anywhere: refused by both, or the same bytes."""
    numbers = np.frombuffer(data[: len(data) // 8 * 8], ">i4").astype(np.int64).reshape(-1, 2)
    pieces = [(data, numbers[:50]), (data, np.array([[0, len(data)]], np.int64))]
    plain, fast = _gathered(spans.PLAIN[0], pieces), _gathered(_compiled().gather, pieces)
    assert plain == fast, f"plainly {plain!r:.200}, compiled {fast!r:.200}"


def _gathered(gather: Callable[..., Any], pieces: list[spans.Piece]) -> object:
    try:
        offsets, found = gather(pieces, pa.allocate_buffer)
    except ValueError:
        return "refused"
    return bytes(offsets), bytes(found)


def intact(data: bytes) -> None:
    for start in (0, 1, len(data)):
        assert _compiled().is_intact(data, start) == spans.PLAIN[1](data, start)


_SINGLES: Final = [
    pb.SingleMessageMetadata(payload_size=0, sequence_id=number, partition_key="key", event_time=5)
    for number in range(100, 108)
]
_BATCH: Final = batch.join([batch.BatchedMessage(each, b"x" * 5) for each in _SINGLES])
_WITH_PAIRS: Final = pb.SingleMessageMetadata(
    payload_size=0, properties=[pb.KeyValue(key="a", value="b")], null_value=True
)
_MESSAGE: Final = b"".join(
    map(
        bytes,
        message.join(pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1).SerializeToString(), b"xy"),
    )
)
_SPANS: Final = np.array([[0, 4], [4, 9], [2, 40]], ">i4").tobytes() + bytes(40)

COMPARED: Final = (
    ("layouts", layouts, (_BATCH, b"abc" + _BATCH, batch.join([batch.BatchedMessage(_WITH_PAIRS, b"xx")] * 3))),
    ("gathering", gathered, (_SPANS,)),
    ("checksum of rows", intact, (_MESSAGE, b"a" + _MESSAGE)),
)
