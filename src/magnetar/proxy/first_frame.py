# SPDX-License-Identifier: Apache-2.0
"""The first frame of a stream, and the bytes behind it as they came.

What follows a handshake is passed on unread, so it must not be cut into frames.
Decides.
"""

from struct import Struct
from typing import Final

from magnetar.errors import BadCommand

_SIZES: Final = Struct(">II")


class FirstFrame:
    """Feed chunks until a command comes out; `rest` is what lies behind it."""

    __slots__ = ("_bytes_max", "_held", "_taken")

    def __init__(self, bytes_max: int, held: bytes = b"") -> None:
        self._bytes_max = bytes_max
        self._held = bytearray(held)
        self._taken = False

    def feed(self, chunk: bytes) -> bytes | None:
        """The command, once it is complete. BadCommand when it cannot be one."""
        self._held += chunk
        if self._taken:
            if len(self._held) > self._bytes_max:
                raise BadCommand(f"More than {self._bytes_max} bytes came before the handshake was over")
            return None
        if len(self._held) < _SIZES.size:
            return None
        total, size = _SIZES.unpack_from(self._held)
        if total < 4 or total > self._bytes_max or size > total - 4:
            raise BadCommand(f"A first frame of total size {total} with a command of {size} bytes is not one")
        if len(self._held) < 4 + total:
            return None
        command = bytes(self._held[_SIZES.size : _SIZES.size + size])
        del self._held[: 4 + total]
        self._taken = True
        return command

    def rest(self) -> bytes:
        """Bytes behind the first frame; they are given once."""
        rest = bytes(self._held)
        self._held.clear()
        return rest

    def following(self) -> "FirstFrame":
        """For one more frame of the same handshake."""
        return FirstFrame(self._bytes_max, self.rest())
