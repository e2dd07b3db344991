# SPDX-License-Identifier: Apache-2.0
"""One TCP connection to one bookie, there when it is needed: opened by the first packet, and again after a cut.

Owns the socket, the bytes that wait for it and the pause between attempts. What was sent before a cut is never sent
again: whoever asked is told that the connection is gone, and nothing about the outcome. A connection on which nothing
comes back for as long as an answer may take is cut: the network may have dropped it without a word. Knows packets, not
meanings.
Carries.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, cast

from magnetar.config.ledger import ChannelSettings
from magnetar.errors import BookieUnavailable, MagnetarError
from magnetar.ledger.bookies import Address
from magnetar.ledger.link_greeting import PLAIN, Greeting, ask_for_tls, encrypted, prove
from magnetar.runtime.tasks import Tasks
from magnetar.runtime.turn_end import turn_end
from magnetar.wire.bookkeeper.packet import PacketCutter

_log = logging.getLogger(__name__)


class TcpLink(asyncio.Protocol):
    """Its owner keeps the bytes outstanding within a bound; they are the bytes that can wait here."""

    __slots__ = (
        "_address",
        "_answer",
        "_closed",
        "_connecting",
        "_cutter",
        "_delay_ms",
        "_due_s",
        "_flushing",
        "_greeting",
        "_is_paused",
        "_is_silent",
        "_on_lost",
        "_on_packets",
        "_out",
        "_retry_at",
        "_settings",
        "_tasks",
        "_transport",
        "_unready",
        "_version_three",
        "_watch",
        "bookie",
    )

    def __init__(
        self,
        bookie: str,
        address: Callable[[str], Awaitable[Address]],
        tasks: Tasks,
        settings: ChannelSettings,
        on_packets: Callable[[list[bytes]], None],
        on_lost: Callable[[BookieUnavailable], None],
        greeting: Greeting = PLAIN,
        *,
        version_three: bool = False,
    ) -> None:
        self.bookie: Final = bookie
        self._address = address
        self._tasks = tasks
        self._settings = settings
        self._on_packets = on_packets
        self._on_lost = on_lost
        self._greeting = greeting
        self._version_three = version_three
        # A connection on which the greeting is not finished, and the packet that it waits for.
        self._unready: asyncio.Transport | None = None
        self._answer: asyncio.Future[bytes] | None = None
        self._transport: asyncio.Transport | None = None
        self._cutter = PacketCutter(settings.frame_bytes_max)
        self._out: list[bytes] = []
        self._connecting = False
        self._flushing = False
        self._is_paused = False
        self._closed = False
        self._delay_ms = 0
        self._retry_at = 0.0
        # By when something must come back, after what was sent since the bookie was last heard.
        self._due_s: float | None = None
        self._watch: asyncio.TimerHandle | None = None
        # Cut for its silence: another connection may be made at once.
        self._is_silent = False

    def send(self, *buffers: bytes, wait_ms: int = 0) -> None:
        """Queue a packet. Never waits; when there is no connection and it is too early for one, on_lost tells soon.

        The bookie may take so much longer than usual to answer it.
        """
        self._out.extend(buffers)
        loop = asyncio.get_running_loop()
        due_s = loop.time() + (self._settings.request_timeout_ms + wait_ms) / 1000
        self._due_s = due_s if self._due_s is None else min(due_s, self._due_s)
        if self._watch is None:
            self._watch = loop.call_at(due_s, self._check_heard)
        if not self._flushing:
            self._flushing = True
            turn_end().call(self._flush)

    def close(self) -> None:
        self._closed = True
        self._out.clear()
        self._stop_watch()
        for transport in (self._transport, self._unready):
            if transport is not None:
                transport.abort()

    # --- asyncio.Protocol ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio.Transport without being one.
        made = cast("asyncio.Transport", transport)
        self._cutter = PacketCutter(self._settings.frame_bytes_max)
        self._is_paused = False
        if self._greeting.is_needed:
            self._unready = made
        else:
            self._transport = made
            self._delay_ms = 0
        if self._closed:
            made.abort()

    def data_received(self, data: bytes) -> None:
        self._due_s = None
        packets = self._cutter.feed(data)
        if self._transport is None:
            self._on_greeted(packets)
        elif packets:
            self._on_packets(packets)
        transport = self._transport or self._unready
        if self._cutter.fault is not None and transport is not None:
            _log.warning("%s breaks the protocol: %s", self.bookie, self._cutter.fault)
            transport.abort()
        turn_end().run()

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        why = f"The connection to {self.bookie} is gone: {error or 'closed by the bookie'}."
        self._transport = None
        self._stop_watch()
        if self._unready is not None:
            # Whoever greets loses it, once.
            self._unready = None
            if self._answer is not None and not self._answer.done():
                self._answer.set_exception(BookieUnavailable(why))
            return
        is_silent, self._is_silent = self._is_silent, False
        self._lose(why, again_later=not is_silent)

    # --- greeting -----------------------------------------------------------------------------

    def _on_greeted(self, packets: list[bytes]) -> None:
        """The greeting is question and answer: one packet at a time."""
        for packet in packets:
            if self._answer is not None and not self._answer.done():
                self._answer.set_result(packet)

    async def _ask(self, packet: bytes) -> bytes:
        if self._unready is None:
            raise BookieUnavailable(f"The connection to {self.bookie} is gone.")
        self._answer = asyncio.get_running_loop().create_future()
        self._unready.write(packet)
        try:
            return await self._answer
        finally:
            self._answer = None

    async def _greet(self, host: str) -> None:
        """Everything that comes before the first request. BookieUnavailable or OSError when it does not work out."""
        greeting = self._greeting
        try:
            if greeting.tls is not None:
                await ask_for_tls(self.bookie, self._ask)
                if self._unready is not None:
                    self._unready = await encrypted(self._unready, self, greeting.tls, host)
            if greeting.secret:
                await prove(self.bookie, greeting, self._ask, version_three=self._version_three)
            ready, self._unready = self._unready, None
            if ready is None:
                raise BookieUnavailable(f"The connection to {self.bookie} is gone.")
        except BaseException:
            if self._unready is not None:
                self._unready.abort()
            raise
        self._transport = ready
        self._delay_ms = 0

    # --- private ------------------------------------------------------------------------------

    def _check_heard(self) -> None:
        loop = asyncio.get_running_loop()
        self._watch = None
        if self._due_s is None or self._transport is None:
            return
        if loop.time() < self._due_s:
            self._watch = loop.call_at(self._due_s, self._check_heard)
            return
        _log.warning("%s has not answered anything in time: the connection is cut", self.bookie)
        self._is_silent = True
        self._transport.abort()

    def _stop_watch(self) -> None:
        self._due_s = None
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _flush(self) -> None:
        self._flushing = False
        if not self._out or self._is_paused or self._closed:
            return
        if self._transport is not None:
            out, self._out = self._out, []
            self._transport.writelines(out)
        elif not self._connecting:
            self._connect()

    def _connect(self) -> None:
        if asyncio.get_running_loop().time() < self._retry_at:
            self._lose(f"{self.bookie} could not be reached a moment ago.", again_later=False)
            return
        try:
            self._connecting = True
            self._tasks.start(self._open(), f"connection to {self.bookie}")
        except MagnetarError as error:
            self._connecting = False
            self._lose(str(error))

    async def _open(self) -> None:
        try:
            async with asyncio.timeout(self._settings.connect_timeout_ms / 1000):
                host, port = await self._address(self.bookie)
                await asyncio.get_running_loop().create_connection(lambda: self, host, port)
                if self._greeting.is_needed:
                    await self._greet(host)
        except (OSError, TimeoutError, MagnetarError) as error:
            self._connecting = False
            self._lose(f"{self.bookie} cannot be reached: {error or type(error).__name__}.")
            return
        self._connecting = False
        self._flush()

    def _lose(self, why: str, *, again_later: bool = True) -> None:
        if again_later:
            limits = self._settings
            self._delay_ms = min(self._delay_ms * 2 or limits.reconnect_delay_ms, limits.reconnect_delay_max_ms)
            self._retry_at = asyncio.get_running_loop().time() + self._delay_ms / 1000
        self._out.clear()
        if not self._closed:
            self._on_lost(BookieUnavailable(why))
