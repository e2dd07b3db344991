# SPDX-License-Identifier: Apache-2.0
"""A topic as a table: the latest value of each key, in memory, kept up to date.

A message without a value removes its key. Fed by readers of all partitions; the whole table must fit into memory.
Carries.
"""

import asyncio
import logging
from collections.abc import Callable, ItemsView, Iterator, KeysView, ValuesView
from types import TracebackType
from typing import Generic, Self, TypeVar

from magnetar.client.reader import Reader
from magnetar.errors import AlreadyClosed
from magnetar.ids import MessageId
from magnetar.runtime.tasks import Tasks

T = TypeVar("T")

_log = logging.getLogger(__name__)


class TableView(Generic[T]):
    """Made by `Client.create_table_view`, once everything that was in the topic then is in the table."""

    def __init__(self, reader: Reader[T], tasks: Tasks) -> None:
        self._reader = reader
        self._tasks = tasks
        self._values: dict[str, T] = {}
        self._listeners: list[Callable[[str, T | None], object]] = []
        self._reached: dict[str, MessageId] = {}
        self._progress = asyncio.Condition()
        # Told when it closes, so that its client forgets it.
        self.on_closed: Callable[[], object] = lambda: None

    async def open(self) -> None:
        """Read up to the present end, then follow in the background."""
        try:
            while await self._reader.has_message_available():
                await self._take()
        except BaseException:
            await self.close()
            raise
        self._tasks.start(self._follow(), "follow")

    async def _take(self) -> None:
        message = await self._reader.read_next()
        key = message.partition_key()
        if message.has_key():
            if message.has_null_value() or message.size() == 0:
                self._values.pop(key, None)
                self._tell(key, None)
            else:
                value = message.value()
                self._values[key] = value
                self._tell(key, value)
        async with self._progress:
            self._reached[message.topic_name()] = message.message_id()
            self._progress.notify_all()

    async def _follow(self) -> None:
        try:
            while True:
                await self._take()
        except AlreadyClosed:
            _log.debug("%s: the table view ends with its reader", self._reader.topic())

    def _tell(self, key: str, value: T | None) -> None:
        for listener in self._listeners:
            try:
                listener(key, value)
            except Exception:
                _log.exception("%s: a table view's listener failed", self._reader.topic())

    async def refresh(self) -> None:
        """Wait until everything that is in the topic now is in the table: a consistent read."""
        ends = await self._reader.consumer.last_message_ids()
        for end in ends:
            if end.entry_id < 0:
                continue
            async with self._progress:
                await self._progress.wait_for(lambda end=end: self._has_reached(end.topic, end))  # type: ignore[misc]

    def _has_reached(self, topic: str, end: MessageId) -> bool:
        reached = self._reached.get(topic)
        return reached is not None and reached.position >= end.position

    def get(self, key: str, default: T | None = None) -> T | None:
        return self._values.get(key, default)

    def keys(self) -> KeysView[str]:
        return self._values.keys()

    def values(self) -> ValuesView[T]:
        return self._values.values()

    def items(self) -> ItemsView[str, T]:
        return self._values.items()

    def for_each(self, action: Callable[[str, T], object]) -> None:
        """Call for each entry that is there."""
        for key, value in list(self._values.items()):
            action(key, value)

    def for_each_and_listen(self, action: Callable[[str, T | None], object]) -> None:
        """Call for each entry that is there, and for each change from now on; None says that a key is gone."""
        self.for_each(action)
        self._listeners.append(action)

    def __getitem__(self, key: str) -> T:
        return self._values[key]

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    async def close(self) -> None:
        self.on_closed()
        await self._tasks.close()
        await self._reader.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
