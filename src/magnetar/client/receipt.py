# SPDX-License-Identifier: Apache-2.0
"""What `submit` gives: the promise that one message becomes durable, and its message id once it is.

A receipt is no future: most are looked at together or not at all, so it costs a small object, and a future only for
one who awaits it. Awaiting may be cancelled; the message goes its way all the same.
Carries.
"""

import asyncio
from collections.abc import Callable, Generator
from typing import Any

from magnetar.client.message_id import MessageId


class Receipt:
    """`await receipt` gives the message id, or raises why the message was not stored."""

    __slots__ = ("_callbacks", "_error", "_message_id", "_waiters", "sequence_id")

    def __init__(self, sequence_id: int) -> None:
        self.sequence_id = sequence_id
        self._message_id: MessageId | None = None
        self._error: BaseException | None = None
        self._waiters: list[asyncio.Future[None]] | None = None
        self._callbacks: list[Callable[[Receipt], object]] | None = None

    def done(self) -> bool:
        return self._message_id is not None or self._error is not None

    def result(self) -> MessageId:
        """The message id; raises the error if there is one, InvalidStateError if the outcome is open."""
        if self._message_id is not None:
            return self._message_id
        if self._error is not None:
            raise self._error
        raise asyncio.InvalidStateError("the receipt has not come yet")

    def exception(self) -> BaseException | None:
        return self._error

    def add_done_callback(self, callback: Callable[["Receipt"], object]) -> None:
        """Call back on the loop once the outcome is known; at once if it is."""
        if self.done():
            callback(self)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def __await__(self) -> Generator[Any, None, MessageId]:
        if not self.done():
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            if self._waiters is None:
                self._waiters = [waiter]
            else:
                self._waiters.append(waiter)
            yield from waiter
        return self.result()

    def resolve(self, message_id: MessageId) -> None:
        if not self.done():
            self._message_id = message_id
            self._wake()

    def fail(self, error: BaseException) -> None:
        if not self.done():
            self._error = error
            self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, None
        for waiter in waiters or ():
            if not waiter.done():
                waiter.set_result(None)
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            callback(self)
