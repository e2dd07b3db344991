# SPDX-License-Identifier: Apache-2.0
"""Two connections joined: what one sends goes to the other as it is, at the pace of the slower.

Each end stops the other from being read while it cannot be written to. When one end is lost the other is closed after
what it is owed. A broker that is silent for too long is taken for gone.
Carries.
"""

import asyncio
from collections.abc import Callable
from typing import cast


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
    """Joins a client's and a broker's transport; `on_closed` is called once, when both are gone or going."""

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
        self._silence_s = silence_timeout_ms / 1000
        self._client = PipeEnd(client, self.close, counted)
        self._broker = PipeEnd(broker, self.close, counted)
        self._client.other, self._broker.other = self._broker, self._client
        for end in (self._client, self._broker):
            end.transport.set_write_buffer_limits(high=bytes_max)
            end.transport.set_protocol(end)
        self._timer = asyncio.get_running_loop().call_later(self._silence_s, self._check_silence)

    def close(self) -> None:
        """End both; what was written to either still goes out."""
        if self._closed:
            return
        self._closed = True
        self._timer.cancel()
        for end in (self._client, self._broker):
            if not end.transport.is_closing():
                end.transport.close()
        self._on_closed()

    def abort(self) -> None:
        for end in (self._client, self._broker):
            end.transport.abort()

    def _check_silence(self) -> None:
        """Brokers ping their clients every half minute: one that says nothing for longer than that is gone."""
        if not self._broker.heard and self._client.transport.get_write_buffer_size() == 0:
            self.abort()
            self.close()
            return
        self._broker.heard = False
        self._timer = asyncio.get_running_loop().call_later(self._silence_s, self._check_silence)
