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

from magnetar.errors import BadFrame

Frame: TypeAlias = tuple[bytes, bytes]
"""A command, and the body after it (empty for most commands)."""

SIZE_BYTES: Final = 4
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


def header(command: bytes, body_bytes: int) -> bytes:
    """All of a frame but its body, which is stored bytes of this size that the caller writes after it."""
    return _HEADER.pack(SIZE_BYTES + len(command) + body_bytes, len(command)) + command


class FrameCutter:
    """Cuts one direction of one connection.

    After impossible bytes it has a `fault` and gives no more frames: the frames before them are still good, so the
    caller serves those, then closes the connection with the fault.

    Invariant: less than one frame is held back, and never more than frame_bytes_max bytes.
    """

    __slots__ = ("_held", "_total_max", "_wanted_bytes", "fault")

    def __init__(self, bytes_max: int = MESSAGE_BYTES_MAX + FRAME_PADDING_BYTES) -> None:
        self._total_max = bytes_max - SIZE_BYTES
        self._held = bytearray()
        self._wanted_bytes = HEADER_BYTES
        self.fault: BadFrame | None = None

    def feed(self, chunk: bytes) -> list[Frame]:
        """Every frame that this chunk completes, in order; check `fault` after serving them."""
        frames: list[Frame] = []
        if self.fault is not None:
            return frames
        start = self._complete(chunk, frames) if self._held else 0
        size = len(chunk)
        total_max = self._total_max
        while size - start >= HEADER_BYTES:
            total, command_size = _HEADER.unpack_from(chunk, start)
            if total > total_max or command_size > total - SIZE_BYTES:
                self._refuse(total, command_size)
                return frames
            until = start + SIZE_BYTES + total
            if until > size:
                self._wanted_bytes = until - start
                break
            body = start + HEADER_BYTES + command_size
            frames.append((chunk[start + HEADER_BYTES : body], chunk[body:until]))
            start = until
        if start < size and self.fault is None:
            self._hold(chunk[start:])
        return frames

    def widen(self, bytes_max: int) -> None:
        """A larger (or smaller) limit for frames to come, once the two sides have agreed on one."""
        self._total_max = bytes_max - SIZE_BYTES

    def _hold(self, piece: bytes) -> None:
        self._held += piece
        if SIZE_BYTES <= len(self._held) < HEADER_BYTES:
            total = int.from_bytes(self._held[:SIZE_BYTES], "big")
            if total > self._total_max or total < SIZE_BYTES:
                self._refuse(total, 0)

    def _complete(self, chunk: bytes, frames: list[Frame]) -> int:
        """Finish the held frame from the chunk's beginning; where the next one starts, or the chunk's end."""
        start = 0
        while True:
            missing = self._wanted_bytes - len(self._held)
            piece = chunk[start : start + missing]
            start += len(piece)
            self._hold(piece)
            if len(piece) < missing or self.fault is not None:
                return len(chunk)
            total, command_size = _HEADER.unpack_from(self._held)
            if total > self._total_max or command_size > total - SIZE_BYTES:
                self._refuse(total, command_size)
                return len(chunk)
            if len(self._held) == SIZE_BYTES + total:
                body = HEADER_BYTES + command_size
                with memoryview(self._held) as view:
                    frames.append((bytes(view[HEADER_BYTES:body]), bytes(view[body:])))
                self._release()
                return start
            self._wanted_bytes = SIZE_BYTES + total

    def _release(self) -> None:
        self._held.clear()
        self._wanted_bytes = HEADER_BYTES

    def _refuse(self, total: int, command_size: int) -> None:
        self._release()
        if total > self._total_max:
            text = f"A frame of {total + SIZE_BYTES} bytes is over the limit of {self._total_max + SIZE_BYTES}."
        elif total < SIZE_BYTES:
            text = f"A frame's total size of {total} leaves no room for a command size."
        else:
            text = f"A command of {command_size} bytes does not fit into a frame of total size {total}."
        self.fault = BadFrame(text)
