# SPDX-License-Identifier: Apache-2.0
"""Parts of stored bytes: put together as a column of bytes, and checked against their checksum.

The functions here are the plain ones; at the end the compiled twins (`native/_rows.pyx`) take their names, where there
are any.
Decides.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from magnetar.wire import compiled, message

Array: TypeAlias = "pa.Array[Any]"
Numbers: TypeAlias = "NDArray[np.int64]"
Piece: TypeAlias = tuple[bytes, Numbers]
"""A buffer, and the spans of it that are wanted, from front to back: where each begins and ends."""

MODULE: Final = "magnetar.spark._rows"


def column(pieces: list[Piece], nulls: "NDArray[np.bool_] | None" = None) -> Array:
    """The spans of all pieces, in their order, as one binary column. Raises ValueError for a span out of its buffer."""
    offsets, data = gather(pieces, pa.allocate_buffer)
    count = len(offsets) // 4 - 1
    valid = None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), count, [valid, pa.py_buffer(offsets), pa.py_buffer(data)])


def gather(pieces: list[Piece], allocate: Callable[[int], Any]) -> tuple[Any, Any]:
    """Where each span begins in the bytes of all of them (and the last ends), as numbers of 32 bits; and these bytes.

    `allocate` makes the buffer that the compiled twin fills.
    """
    ends = np.cumsum([0, *(len(data) for data, _ in pieces)])
    for data, spans in pieces:
        if len(spans) and (spans.min() < 0 or spans[:, 1].max() > len(data) or (spans[:, 1] < spans[:, 0]).any()):
            raise ValueError("a span lies outside of its buffer")
    wanted = [spans + base for (_, spans), base in zip(pieces, ends, strict=False) if len(spans)]
    if not wanted:
        return bytes(4), b""
    if ends[-1] >= 2**31:
        raise ValueError("more than a column of bytes holds")
    bounds = np.concatenate(wanted).astype(np.int32)
    whole = pieces[0][0] if len(pieces) == 1 else b"".join(data for data, _ in pieces)
    # Arrow sees a column of the spans and of what lies between them, and takes every other one.
    both = pa.Array.from_buffers(
        pa.binary(), 2 * len(bounds) - 1, [None, pa.py_buffer(bounds.reshape(-1)), pa.py_buffer(whole)]
    )
    found = both.take(pa.array(np.arange(0, 2 * len(bounds), 2)))
    _, offsets, data = found.buffers()
    assert offsets is not None
    return memoryview(offsets)[: 4 * (len(found) + 1)], data if data is not None else b""


def is_intact(body: bytes, start: int) -> bool:
    """Whether the checksum of the message from a byte on matches; without one it is taken as it is."""
    return message.is_intact(body, start)


PLAIN: Final = (gather, is_intact)

if (_twins := compiled.load(MODULE)) is not None:
    gather = _twins.gather
    is_intact = _twins.is_intact
