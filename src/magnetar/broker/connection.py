# SPDX-License-Identifier: Apache-2.0
"""One socket: bytes in, frames to the session; answers out. Where back-pressure acts.

Owns the transport, the frame cutter, the publish budget of this client and the keep-alive. Reading stops here and
nowhere else: when too many bytes are on their way to storage, or when the client does not read our answers. All
that one socket read caused leaves in one write. Never looks inside a command.
Carries.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from magnetar.broker.auth.authenticator import Principal
from magnetar.broker.publish_budget import ConnectionBudget, PublishBudget
from magnetar.broker.session.session import Session
from magnetar.config.broker import BrokerSettings
from magnetar.errors import MagnetarError, PeerFault
from magnetar.runtime.disk import Buffer
from magnetar.runtime.turn_end import turn_end
from magnetar.wire.frame import FrameCutter, frame_bytes_max
from magnetar.wire.hot import PING, Receipt, encode_receipts

_log = logging.getLogger(__name__)


class Connection(asyncio.Protocol):
    def __init__(
        self,
        settings: BrokerSettings,
        budget: PublishBudget,
        open_session: Callable[["Connection"], Session],
        on_closed: Callable[["Connection"], None],
    ) -> None:
        self._settings = settings
        self._open_session = open_session
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self._turn_end = turn_end()
        self._cutter = FrameCutter(frame_bytes_max(settings.message_bytes_max))
        self._out: list[Buffer] = []
        # Of single messages: they become bytes together, before anything else is queued behind them.
        self._receipts: list[Receipt] = []
        self._receipt_bytes = 0
        self._out_bytes = 0
        self._flush_scheduled = False
        self._writable = True
        self._reading_paused = False
        self._heard = True
        self._pings_unanswered = 0
        self._keep_alive: asyncio.TimerHandle | None = None
        self._answer_waiters: list[asyncio.Future[None]] = []
        self._write_waiters: list[asyncio.Future[None]] = []
        # Until when reading stops because the client publishes faster than allowed.
        self._held_until_s = 0.0
        self._hold: asyncio.TimerHandle | None = None
        self.budget: ConnectionBudget = budget.connection(settings.connection_publish_bytes_max, self._adjust_reading)
        self.peer = "?"
        # The client that a load balancer speaks for, and the listener of the address where it came in; may be empty.
        self.client = ""
        self.listener = ""
        # Who this is, where it was found out at another door of this process.
        self.principal: Principal | None = None
        self.is_open = False
        self._session: Session
        self._transport: asyncio.Transport

    # --- asyncio.Protocol ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not derived from asyncio's classes.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=self._settings.connection_write_bytes_max)
        address = transport.get_extra_info("peername")
        self.peer = self.client or (f"{address[0]}:{address[1]}" if isinstance(address, tuple) else str(address))
        self.is_open = True
        self._session = self._open_session(self)
        self._keep_alive = self._loop.call_later(self._settings.keep_alive_interval_s, self._check_alive)

    def data_received(self, data: bytes) -> None:
        self._heard = True
        if self._answer_waiters:
            self._tell_answer()
        try:
            self._session.on_frames(self._cutter.feed(data))
            if self._cutter.fault is not None:
                raise self._cutter.fault
        except PeerFault as error:
            self.close_for(error)
        except Exception as error:
            _log.exception("a command of %s failed", self.peer)
            self._session.fail("a command", error)
            return
        self._turn_end.run()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self._writable = False
        if self._receipts:
            self._take_receipts()
        self._out.clear()
        self.budget.close()
        for timer in (self._keep_alive, self._hold):
            if timer is not None:
                timer.cancel()
        self._tell_answer()
        self._tell_writable()
        self._session.on_connection_lost()
        self._on_closed(self)

    def pause_writing(self) -> None:
        self._writable = False
        self._adjust_reading()

    def resume_writing(self) -> None:
        self._writable = True
        self._adjust_reading()
        self._tell_writable()
        self._session.on_writable()

    # --- for the session ----------------------------------------------------------------------------

    @property
    def session(self) -> Session:
        return self._session

    @property
    def is_writable(self) -> bool:
        return self._writable

    @property
    def transport(self) -> asyncio.Transport:
        """For those who watch the bytes on their way; nobody else writes to it."""
        return self._transport

    def send(self, data: Buffer) -> None:
        """Queue bytes; they leave together with everything else that this turn of the loop produced."""
        if not self.is_open:
            return
        if self._receipts:
            self._take_receipts()
        self._out.append(data)
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._turn_end.call(self._flush)

    def send_receipt(self, receipt: Receipt, size: int) -> None:
        """Queue the receipt of one message, in its turn, and give back what the message took of the budget."""
        if not self.is_open:
            self.budget.give_back(size)
            return
        self._receipts.append(receipt)
        self._receipt_bytes += size
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._turn_end.call(self._flush)

    def send_all(self, buffers: Sequence[Buffer], size: int) -> None:
        """Queue many; when much is queued it goes to the socket at once, so that `is_writable` knows of it."""
        if not self.is_open:
            return
        if self._receipts:
            self._take_receipts()
        self._out += buffers
        self._out_bytes += size
        if self._out_bytes >= self._settings.connection_write_bytes_max // 4:
            self._flush()
        elif not self._flush_scheduled:
            self._flush_scheduled = True
            self._turn_end.call(self._flush)

    def take_publish_bytes(self, size: int) -> None:
        if self.budget.take(size):
            self._adjust_reading()

    @property
    def certificate(self) -> Mapping[str, Any] | None:
        """What TLS verified of the client's certificate; None without one."""
        found: Mapping[str, Any] | None = self._transport.get_extra_info("peercert")
        return found or None

    def now_s(self) -> float:
        return self._loop.time()

    def hold_back(self, seconds: float) -> None:
        """Stop reading for so long: the client publishes faster than allowed, and TCP tells it."""
        until_s = self._loop.time() + seconds
        if not self.is_open or until_s <= self._held_until_s:
            return
        self._held_until_s = until_s
        if self._hold is not None:
            self._hold.cancel()
        self._hold = self._loop.call_later(seconds, self._release)
        self._adjust_reading()

    @property
    def is_held_back(self) -> bool:
        return self._hold is not None

    async def until_writable(self) -> None:
        """Wait until the client has read most of what it was sent; before an answer that may be large."""
        self._flush()
        while self.is_open and not self._writable:
            writable: asyncio.Future[None] = self._loop.create_future()
            self._write_waiters.append(writable)
            await writable

    async def answers(self) -> bool:
        """Whether the client is still there: it is pinged, and must let itself be heard in time; else it is gone."""
        if not self.is_open:
            return False
        answer: asyncio.Future[None] = self._loop.create_future()
        self._answer_waiters.append(answer)
        self.send(PING)
        try:
            async with asyncio.timeout(self._settings.liveness_check_timeout_ms / 1000):
                await answer
        except TimeoutError:
            # Where we do not listen, silence proves nothing.
            if self._reading_paused and self.is_open:
                return True
            _log.warning("closing the connection of %s: it does not answer", self.peer)
            self._transport.abort()
            return False
        return self.is_open

    def close_for(self, error: MagnetarError) -> None:
        """The peer broke the protocol: answer what is queued, then close."""
        _log.warning("closing the connection of %s: %s", self.peer, error)
        self.close()

    def close(self) -> None:
        if self.is_open:
            self._flush()
            self.is_open = False
            self._transport.close()

    def abort(self) -> None:
        """Cut the peer off without a word, as a broken network would."""
        if self.is_open:
            self._transport.abort()

    # --- inside -------------------------------------------------------------------------------------

    def _flush(self) -> None:
        self._flush_scheduled = False
        if self._receipts:
            self._take_receipts()
        if self._out and self.is_open:
            self._transport.writelines(self._out)
        self._out = []
        self._out_bytes = 0

    def _take_receipts(self) -> None:
        self._out.append(encode_receipts(self._receipts))
        self._receipts = []
        size, self._receipt_bytes = self._receipt_bytes, 0
        self.budget.give_back(size)

    def _adjust_reading(self) -> None:
        if not self.is_open:
            return
        must_pause = self.budget.paused or not self._writable or self._hold is not None
        if must_pause and not self._reading_paused:
            self._reading_paused = True
            self._transport.pause_reading()
        elif not must_pause and self._reading_paused:
            self._reading_paused = False
            self._transport.resume_reading()

    def _release(self) -> None:
        self._hold = None
        self._adjust_reading()

    def _tell_answer(self) -> None:
        waiters, self._answer_waiters = self._answer_waiters, []
        _wake(waiters)

    def _tell_writable(self) -> None:
        waiters, self._write_waiters = self._write_waiters, []
        _wake(waiters)

    def _check_alive(self) -> None:
        """A peer that was silent for an interval is pinged; one that lets two pings go by is gone."""
        if not self._session.is_connected:
            _log.warning("closing the connection of %s: it has not connected in time", self.peer)
            self._transport.abort()
            return
        if self._heard or self._reading_paused:
            self._pings_unanswered = 0
        elif self._pings_unanswered >= 2:
            _log.warning("closing the connection of %s: it has not answered the keep-alive", self.peer)
            self._transport.abort()
            return
        self._heard = False
        self._pings_unanswered += 1
        self.send(PING)
        self._keep_alive = self._loop.call_later(self._settings.keep_alive_interval_s, self._check_alive)


def _wake(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
