# SPDX-License-Identifier: Apache-2.0
"""Messages that have arrived and were not taken yet, and the tasks that wait for them.

A taker that is cancelled has taken nothing: a wake-up says only that there is something, and the message is popped by
the one who runs. Messages whose generation has passed are skipped. Bounded by the permits that its consumers give.
Carries.
"""

import asyncio
from collections import deque
from typing import Any

from magnetar.client.message import Message
from magnetar.errors import MagnetarError


class MessageQueue:
    __slots__ = ("_end", "_messages", "_waiters")

    def __init__(self) -> None:
        self._messages: deque[Message[Any]] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._end: MagnetarError | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing here would be handed out."""
        while self._messages:
            entry = self._messages[0].entry
            if entry.attachment == entry.source.generation:
                return False
            self._messages.popleft()
        return True

    def put(self, messages: list[Message[Any]]) -> None:
        self._messages.extend(messages)
        if self._waiters:
            for _ in range(min(len(messages), len(self._waiters))):
                self._wake_one()

    def take(self) -> Message[Any] | None:
        """The next message, if there is one; its consumer is told."""
        messages = self._messages
        while messages:
            message = messages.popleft()
            entry = message.entry
            source = entry.source
            if entry.attachment == source.generation:
                source.on_taken(message)
                return message
        return None

    def put_back(self, message: Message[Any]) -> None:
        """It was taken and could not be handed out: it is the next one again."""
        source = message.entry.source
        if self._end is None and message.entry.attachment == source.generation:
            source.on_put_back(message)
            self._messages.appendleft(message)
            self._wake_one()

    async def get(self) -> Message[Any]:
        """Wait for the next message. Raises the error that the queue was ended with."""
        while True:
            if self._end is not None:
                raise self._end
            message = self.take()
            if message is not None:
                return message
            await self.wait()

    async def wait(self) -> None:
        """Return when there may be something, or the end."""
        if self._end is not None:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():
                # Woken and cancelled at once: somebody else shall look.
                if self._messages:
                    self._wake_one()
            elif waiter in self._waiters:
                self._waiters.remove(waiter)
            raise

    def _wake_one(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def end(self, error: MagnetarError) -> None:
        """Nothing more will come, and what is here is not handed out any more."""
        if self._end is None:
            self._end = error
        self._messages.clear()
        while self._waiters:
            self._wake_one()
