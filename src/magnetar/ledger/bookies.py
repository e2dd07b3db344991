# SPDX-License-Identifier: Apache-2.0
"""Which bookies there are: the registration tree, watched, with the address of each.

Owns the present lists of writable and read-only bookies. Whoever must know of a change is told, after the lists are
right. A store that is away takes no bookie away. Never registers a bookie and never connects to one.
Carries.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from magnetar.errors import BookieUnavailable
from magnetar.ledger.paths import AVAILABLE, COOKIES, READONLY, READONLY_NAME
from magnetar.ledger.watched_tree import WatchedTree
from magnetar.metadata.store import MetadataStore
from magnetar.runtime.tasks import Tasks
from magnetar.wire.bookkeeper.registry import BOOKIE_ENDPOINT, BOOKIE_PROTOCOL, decode_listing


class Address(NamedTuple):
    host: str
    port: int


class Bookies:
    """Use `open`: the lists are filled when it returns."""

    def __init__(self, store: MetadataStore) -> None:
        self.writable: tuple[str, ...] = ()
        self.read_only: tuple[str, ...] = ()
        self._store = store
        self._listeners: dict[int, Callable[[], None]] = {}
        self._listened = 0
        self._tree = WatchedTree(store, AVAILABLE, self.look)
        # One look at a time: a slow one must not put back what a later one has found.
        self._turn = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, store: MetadataStore, tasks: Tasks) -> "Bookies":
        bookies = cls(store)
        try:
            await bookies.look()
        except BaseException:
            bookies.close()
            raise
        bookies._task = tasks.start(bookies._tree.keep(), "bookie registrations")
        return bookies

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Be called after the lists have changed; returns the call that ends it."""
        self._listened += 1
        key = self._listened
        self._listeners[key] = listener
        return lambda: self._listeners.pop(key, None) and None

    async def look(self) -> None:
        """Read the lists now: for whoever is about to act on a bookie's absence and must not wait for a watch."""
        async with self._turn:
            writable = await self._names_in(AVAILABLE)
            read_only = await self._names_in(READONLY)
            if not {*self.writable, *self.read_only} <= {*writable, *read_only}:
                # One that moves from one list to the other meanwhile was in neither when we looked.
                writable += await self._names_in(AVAILABLE)
            self._take(tuple(sorted({*writable} - {*read_only})), tuple(read_only))

    async def known(self) -> list[str]:
        """Every bookie that was ever admitted and not removed, running or not."""
        return await self._store.children(COOKIES)

    async def address(self, bookie: str) -> Address:
        """Where a bookie answers, by its registration or an id that is an address. BookieUnavailable if neither."""
        for parent in (AVAILABLE, READONLY):
            record = await self._store.get(f"{parent}/{bookie}")
            if record is not None and record.value:
                found = _address_in(record.value)
                if found is not None:
                    return found
        host, _, port = bookie.rpartition(":")
        if not host or not port.isdecimal():
            raise BookieUnavailable(f"Bookie {bookie} is not registered, and its id is no address.")
        return Address(host, int(port))

    def close(self) -> None:
        self._tree.close()
        self._listeners.clear()
        if self._task is not None:
            self._task.cancel()

    # --- private ------------------------------------------------------------------------------

    async def _names_in(self, path: str) -> list[str]:
        return [name for name in await self._store.children(path) if name != READONLY_NAME]

    def _take(self, writable: tuple[str, ...], read_only: tuple[str, ...]) -> None:
        if (writable, read_only) != (self.writable, self.read_only):
            self.writable, self.read_only = writable, read_only
            for listener in list(self._listeners.values()):
                listener()


def _address_in(value: bytes) -> Address | None:
    for endpoint in decode_listing(value):
        if endpoint.name == BOOKIE_ENDPOINT or endpoint.protocol == BOOKIE_PROTOCOL:
            return Address(endpoint.host, endpoint.port)
    return None
