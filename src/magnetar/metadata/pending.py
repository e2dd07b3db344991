# SPDX-License-Identifier: Apache-2.0
"""How many requests to a metadata server are under way, and how many bytes they carry; bounded.

Decides.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from magnetar.config.metadata import MetadataSettings
from magnetar.errors import TooManyRequests


class PendingRequests:
    """Of one store; `server` is what errors call the other side."""

    __slots__ = ("_bytes", "_count", "_server", "_settings")

    def __init__(self, server: str, settings: MetadataSettings) -> None:
        self._server = server
        self._settings = settings
        self._count = 0
        self._bytes = 0

    @contextmanager
    def one_more(self, size: int) -> Iterator[None]:
        """While a request of that many bytes is under way. TooManyRequests where the limits are reached."""
        if self._count >= self._settings.operations_pending_max:
            raise TooManyRequests(f"{self._count} requests wait for {self._server}, no more are taken now")
        if self._bytes >= self._settings.pending_bytes_max:
            raise TooManyRequests(f"{self._bytes} bytes wait for {self._server}, no more are taken now")
        self._count += 1
        self._bytes += size
        try:
            yield
        finally:
            self._count -= 1
            self._bytes -= size
