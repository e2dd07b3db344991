# SPDX-License-Identifier: Apache-2.0
"""Records that other brokers leave for this one below a path of its own: each is told by name, again after any change.

Whoever is told looks the record up, and may be told of it more than once. Never deletes one.
Carries.
"""

import asyncio
import logging
from collections.abc import Callable

from magnetar.errors import MagnetarError
from magnetar.metadata.store import Change, MetadataStore
from magnetar.runtime.tasks import Tasks

_log = logging.getLogger(__name__)


class Inbox:
    def __init__(self, store: MetadataStore, root: str, tasks: Tasks, on_record: Callable[[str], None]) -> None:
        self._store = store
        self._root = root
        self._tasks = tasks
        self._on_record = on_record
        self._path = ""
        self._wake = asyncio.Event()
        self._unwatch: list[Callable[[], None]] = []

    def start(self, broker_id: str) -> None:
        self._path = self.of(broker_id)
        self._unwatch = [
            self._store.watch(self._path, self._on_change),
            # What came while this broker was cut off is told by nobody.
            self._store.watch_session(lambda event: self._wake.set()),
        ]
        self._tasks.start(self._read(), f"inbox {self._root}")

    def of(self, broker_id: str) -> str:
        """The path of a broker's inbox."""
        return f"{self._root}/{broker_id}"

    @property
    def path(self) -> str:
        """The path of this broker's."""
        return self._path

    def close(self) -> None:
        for unwatch in self._unwatch:
            unwatch()

    def _on_change(self, change: Change) -> None:
        self._wake.set()

    async def _read(self) -> None:
        while True:
            try:
                for name in await self._store.children(self._path):
                    self._on_record(name)
            except MagnetarError as error:
                _log.info("the inbox %s could not be read: %s", self._path, error)
            await self._wake.wait()
            self._wake.clear()
