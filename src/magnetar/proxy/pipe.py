# SPDX-License-Identifier: Apache-2.0
"""Two connections joined: what one sends goes to the other as it is, at the pace of the slower.

Each end stops the other from being read while it cannot be written to. When one end is lost the other is closed after
what it is owed, if it takes that soon. A broker that is silent for too long is taken for gone, and so is a client that
takes nothing of what it is sent.
Carries.
"""

import asyncio
from collections.abc import Callable
from typing import Final, cast

# What an end may take to read what it is owed, once the other is gone.
GOODBYE_S: Final = 5.0


class PipeEnd(asyncio.Protocol):
    """One of the two; `other` is set before a byte flows."""

    def __init__(
        self, transport: asyncio.Transport, on_lost: Callable[[], None], counted: Callable[[int], None]
    ) -> None:
        self.transport = transport
        self.other: PipeEnd | None = None
        self.heard = True
        self._on_lost = on_lost
        self._counted = counted

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.heard = True
        self._counted(len(data))
        if self.other is not None:
            self.other.transport.write(data)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._on_lost()

    def pause_writing(self) -> None:
        if self.other is not None and not self.other.transport.is_closing():
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and not self.other.transport.is_closing():
            self.other.transport.resume_reading()


class Pipe:
    """Joins a client's and a broker's transport; `on_closed` is called once, when both are gone."""

    def __init__(
        self,
        client: asyncio.Transport,
        broker: asyncio.Transport,
        *,
        bytes_max: int,
        silence_timeout_ms: int,
        on_closed: Callable[[], None],
        counted: Callable[[int], None],
    ) -> None:
        self._on_closed = on_closed
        self._closed = False
        self._ends_left = 2
        self._unread = 0
        self._silence_s = silence_timeout_ms / 1000
        self._client = PipeEnd(client, self._on_end_lost, counted)
        self._broker = PipeEnd(broker, self._on_end_lost, counted)
        self._client.other, self._broker.other = self._broker, self._client
        for end in (self._client, self._broker):
            end.transport.set_write_buffer_limits(high=bytes_max)
            end.transport.set_protocol(end)
        self._timer = asyncio.get_running_loop().call_later(self._silence_s, self._check_silence)

    def close(self) -> None:
        """End both; what was written to either still goes out, where it is read."""
        if self._closed:
            return
        self._closed = True
        self._timer.cancel()
        for end in (self._client, self._broker):
            if not end.transport.is_closing():
                end.transport.close()
        self._timer = asyncio.get_running_loop().call_later(GOODBYE_S, self.abort)

    def abort(self) -> None:
        for end in (self._client, self._broker):
            end.transport.abort()

    def _on_end_lost(self) -> None:
        self._ends_left -= 1
        self.close()
        if self._ends_left == 0:
            self._timer.cancel()
            self._on_closed()

    def _check_silence(self) -> None:
        """Brokers ping their clients every half minute: one that says nothing for longer than that is gone, unless it
        is not heard because its client reads slowly. While one reads nothing, even the broker's end goes unseen."""
        unread = self._client.transport.get_write_buffer_size()
        if not self._broker.heard and unread >= self._unread:
            self.close()
            self.abort()
            return
        self._unread = unread
        self._broker.heard = False
        self._timer = asyncio.get_running_loop().call_later(self._silence_s, self._check_silence)
