# SPDX-License-Identifier: Apache-2.0
"""How long a reader must wait so that it stays below so many bytes a second.

Decides.
"""

from typing import Final

BURST_S: Final = 1.0


class Throttle:
    """A second's worth may be read at once; then as much as the rate allows."""

    __slots__ = ("_bytes_per_s", "_free_at_s")

    def __init__(self, bytes_per_s: int | None) -> None:
        self._bytes_per_s = bytes_per_s
        # When everything that was read so far is paid for.
        self._free_at_s: float | None = None

    def wait_s(self, size: int, now_s: float) -> float:
        """`size` bytes were read at this time; how long to wait before the next are read."""
        if self._bytes_per_s is None:
            return 0.0
        self._free_at_s = max(now_s, self._free_at_s or now_s) + size / self._bytes_per_s
        return max(0.0, self._free_at_s - now_s - BURST_S)
