# SPDX-License-Identifier: Apache-2.0
"""A network that takes its time, on loopback: everything arrives later by one delay, and nothing waits for another.

A process of its own, so that neither a generator nor a server carries it. Servers behind one listen on 127.0.0.1 and
say that they are at `HOST`, on the same port, where the link listens.
"""

import asyncio
import multiprocessing
import selectors
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

HOST: Final = "127.0.0.2"
FORK: Final = multiprocessing.get_context("fork")
START_LIMIT_S: Final = 10.0


class Link:
    """Carries connections at `HOST` on to the same port of 127.0.0.1; `delay_ms`, each way, may change meanwhile."""

    def __init__(self, port: int, delay_ms: float = 0.0) -> None:
        self._delay_ms = FORK.Value("d", delay_ms)
        self._listens = FORK.Event()
        self._process = FORK.Process(target=_carry, args=(port, self._delay_ms, self._listens), daemon=True)
        self._process.start()
        assert self._listens.wait(START_LIMIT_S), f"no link listens at {HOST}:{port}"

    @property
    def delay_ms(self) -> float:
        return float(self._delay_ms.value)

    @delay_ms.setter
    def delay_ms(self, milliseconds: float) -> None:
        self._delay_ms.value = milliseconds

    def close(self) -> None:
        self._process.terminate()
        self._process.join(START_LIMIT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class _End(asyncio.Protocol):
    """One socket of a connection: what it reads is due at the other one a delay later, in its order."""

    def __init__(self, delay_ms: Any) -> None:
        self._delay_ms = delay_ms
        self._loop = asyncio.get_running_loop()
        self._last_s = 0.0
        self.transport: asyncio.Transport | None = None
        self.other: _End | None = None
        # What happened before the other end was connected.
        self._early: list[bytes] = []
        self._is_over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self._early.append(data)
        else:
            self._later(self.other.write, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_over = True
        if self.other is not None:
            self._later(self.other.close)

    def join(self, other: "_End") -> None:
        self.other = other
        for data in self._early:
            self._later(other.write, data)
        self._early.clear()
        if self._is_over:
            self._later(other.close)

    def write(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()

    def _later(self, what: Any, *arguments: bytes) -> None:
        """Never before what came earlier, though the delay be shorter by now."""
        self._last_s = max(self._last_s + 1e-9, self._loop.time() + self._delay_ms.value / 1000)
        self._loop.call_at(self._last_s, what, *arguments)


def _carry(port: int, delay_ms: Any, listens: Any) -> None:
    # Not epoll, whose pauses are whole milliseconds here.
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())

    async def serve() -> None:
        def accepted() -> _End:
            near = _End(delay_ms)
            joining = asyncio.ensure_future(joined(near))
            under_way.add(joining)
            joining.add_done_callback(under_way.discard)
            return near

        async def joined(near: _End) -> None:
            try:
                _, far = await loop.create_connection(lambda: _End(delay_ms), "127.0.0.1", port)
            except OSError:
                near.close()
                return
            near.join(far)
            far.join(near)

        under_way: set[asyncio.Future[None]] = set()
        server = await loop.create_server(accepted, HOST, port)
        listens.set()
        await server.serve_forever()

    with suppress(KeyboardInterrupt):
        loop.run_until_complete(serve())
