# SPDX-License-Identifier: Apache-2.0
"""Frames: where a command begins and ends in a stream of bytes, and how one is put together.

    4 total size | 4 command size | command | body

The total does not count itself; the body, of SEND and MESSAGE, is what `wire/message.py` reads. `FrameCutter` gives the
same frames however the stream is cut into chunks, and checks a size before a byte is kept for it. Frames are plain
`bytes`: the checksum library reads nothing else, and an entry that is kept does not keep its whole chunk alive.
Decides.
"""

from struct import Struct
from typing import Final, TypeAlias

from magnetar.wire import runs
from magnetar.wire.cutter import SIZE_BYTES, Cutter

Frame: TypeAlias = tuple[bytes, bytes]
"""A command, and the body after it (empty for most commands)."""

HEADER_BYTES: Final = 8
MESSAGE_BYTES_MAX: Final = 5 * 1024 * 1024
FRAME_PADDING_BYTES: Final = 10 * 1024
"""What a frame may have beyond the largest message: sizes, command, metadata. Upstream's number."""

_HEADER: Final = Struct(">II")


def frame_bytes_max(message_bytes_max: int) -> int:
    """The largest frame, its size field included, on a connection that announced this largest message."""
    return message_bytes_max + FRAME_PADDING_BYTES


def join(command: bytes, *body: bytes | memoryview) -> bytes:
    """One frame in one buffer."""
    size = SIZE_BYTES + len(command) + sum(map(len, body))
    return b"".join((_HEADER.pack(size, len(command)), command, *body))


def command_header(command_bytes: int) -> bytes:
    """What stands before a command of this size, in a frame without body."""
    return _HEADER.pack(SIZE_BYTES + command_bytes, command_bytes)


def header(command: bytes, body_bytes: int) -> bytes:
    """All of a frame but its body, which is stored bytes of this size that the caller writes after it."""
    return _HEADER.pack(SIZE_BYTES + len(command) + body_bytes, len(command)) + command


class FrameCutter(Cutter[Frame]):
    """Cuts Pulsar's frames."""

    __slots__ = ()

    header_bytes = HEADER_BYTES
    size_min = SIZE_BYTES

    def __init__(self, bytes_max: int = MESSAGE_BYTES_MAX + FRAME_PADDING_BYTES) -> None:
        super().__init__(bytes_max)

    def feed(self, chunk: bytes) -> list[Frame]:
        frames: list[Frame] = []
        if self.fault is not None:
            return frames
        start = self._complete(chunk, frames) if self._held else 0
        start = runs.cut_frames(chunk, start, self._size_max, frames)
        size = len(chunk)
        if size - start >= HEADER_BYTES and not self._is_possible(chunk, start):
            return frames
        if start < size:
            self._hold(memoryview(chunk)[start:])
        return frames

    def _is_possible(self, data: bytes | bytearray, start: int) -> bool:
        total, command_size = _HEADER.unpack_from(data, start)
        if not SIZE_BYTES <= total <= self._size_max:
            self._refuse_size(total)
        elif command_size > total - SIZE_BYTES:
            self._refuse(f"A command of {command_size} bytes does not fit into a frame of total size {total}.")
        return self.fault is None

    def _take(self, held: memoryview, rest: memoryview) -> Frame:
        _, command_size = _HEADER.unpack_from(held)
        body = HEADER_BYTES + command_size
        if body <= len(held):
            return bytes(held[HEADER_BYTES:body]), b"".join((held[body:], rest))
        missing = body - len(held)
        return b"".join((held[HEADER_BYTES:], rest[:missing])), bytes(rest[missing:])
