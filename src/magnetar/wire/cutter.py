# SPDX-License-Identifier: Apache-2.0
"""What cutting a stream into sized pieces has in common, for Pulsar's frames and BookKeeper's packets alike.

Both begin with a size of four bytes that does not count itself. A chunk mostly holds whole pieces, which the owner of a
format cuts in its own `feed`; the piece that begins in one chunk and ends in another is put together here. A size is
checked as soon as its four bytes are there, before one byte is kept for it.
Decides.
"""

from abc import ABC, abstractmethod
from struct import Struct
from typing import Final, Generic, TypeVar

from magnetar.errors import BadFrame

Piece = TypeVar("Piece")

SIZE_BYTES: Final = 4
_SIZE: Final = Struct(">I")


class Cutter(ABC, Generic[Piece]):
    """Cuts one direction of one connection.

    After impossible bytes it has a `fault` and gives nothing more: what came before them is still good, so the caller
    serves that, then closes the connection with the fault.

    Invariant: less than one piece is held back, never more than bytes_max, and as one buffer however it dripped in.
    """

    __slots__ = ("_held", "_size_max", "_wanted_bytes", "fault")

    header_bytes: int
    """How many bytes of a piece must be there before its sizes can be checked."""
    size_min: int

    def __init__(self, bytes_max: int) -> None:
        self._size_max = bytes_max - SIZE_BYTES
        self._held = bytearray()
        self._wanted_bytes = self.header_bytes
        self.fault: BadFrame | None = None

    @abstractmethod
    def feed(self, chunk: bytes) -> list[Piece]:
        """Everything that this chunk completes, in order; check `fault` after serving it."""

    @abstractmethod
    def _is_possible(self, data: bytes | bytearray, start: int) -> bool:
        """Whether the header_bytes at start may begin a piece; if not, the fault is set."""

    @abstractmethod
    def _take(self, held: memoryview, rest: memoryview) -> Piece:
        """What exactly one whole piece holds, of which the first part, its header included, was held back."""

    def widen(self, bytes_max: int) -> None:
        """A larger (or smaller) limit for pieces to come, once the two sides have agreed on one."""
        self._size_max = bytes_max - SIZE_BYTES

    def _hold(self, rest: memoryview) -> None:
        """Keep the beginning of a piece that goes on in a later chunk."""
        self._held += rest
        if len(self._held) < SIZE_BYTES:
            return
        (size,) = _SIZE.unpack_from(self._held)
        if not self.size_min <= size <= self._size_max:
            self._refuse_size(size)
        elif len(self._held) >= self.header_bytes:
            self._wanted_bytes = SIZE_BYTES + size if self._is_possible(self._held, 0) else 0

    def _complete(self, chunk: bytes, pieces: list[Piece]) -> int:
        """Go on with the held piece from the chunk's beginning; where the next one starts, or the chunk's end."""
        start = 0
        view = memoryview(chunk)
        while True:
            is_sized = len(self._held) >= self.header_bytes
            missing = self._wanted_bytes - len(self._held)
            part = view[start : start + missing]
            start += len(part)
            if is_sized and len(part) == missing:
                # Not held first: a large piece mostly ends in the chunk behind the one that it began in.
                with memoryview(self._held) as held:
                    pieces.append(self._take(held, part))
                self._release()
                return start
            self._hold(part)
            if self.fault is not None or len(part) < missing:
                return len(chunk)

    def _release(self) -> None:
        self._held.clear()
        self._wanted_bytes = self.header_bytes

    def _refuse(self, text: str) -> None:
        self._release()
        self.fault = BadFrame(text)

    def _refuse_size(self, size: int) -> None:
        if size > self._size_max:
            self._refuse(f"A frame of {size + SIZE_BYTES} bytes is over the limit of {self._size_max + SIZE_BYTES}.")
        else:
            self._refuse(f"A frame's size of {size} is below the {self.size_min} that it needs at least.")
