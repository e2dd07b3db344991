# SPDX-License-Identifier: Apache-2.0
"""A metadata store in this process's memory: for tests, fixtures and throw-away brokers.

MemoryTree holds the records; each MemoryStore is one session on it, so competing owners can be tried in one process.
The session's fate is in the caller's hands: disconnect, reconnect, expire, re-establish. Nothing survives the
process.
Carries.
"""

import asyncio
from collections.abc import Callable

from magnetar.config.metadata import MetadataSettings
from magnetar.errors import MetadataError, SessionLost
from magnetar.metadata.store import Change, MetadataStore, Record, SessionEvent, Stored
from magnetar.metadata.tree import Effect, RecordTree, changes_of
from magnetar.metadata.watches import Watches
from magnetar.runtime.clock import SystemClock, WallClock


class MemoryTree:
    """The records that several sessions share."""

    def __init__(self, clock: WallClock | None = None, settings: MetadataSettings | None = None) -> None:
        self.clock = clock or SystemClock()
        self.settings = settings or MetadataSettings()
        self.records = RecordTree(self.settings)
        self._stores: list[MemoryStore] = []

    def open_session(self) -> "MemoryStore":
        return MemoryStore(self)

    def join(self, store: "MemoryStore") -> None:
        self._stores.append(store)

    def leave(self, store: "MemoryStore") -> None:
        self._stores.remove(store)

    def announce(self, effects: list[Effect]) -> None:
        """Let every session's watches know."""
        changes = changes_of(effects)
        for store in self._stores:
            store.on_changes(changes)


class MemoryStore(MetadataStore):
    """One session on a MemoryTree; without one, on a tree of its own."""

    def __init__(self, tree: MemoryTree | None = None) -> None:
        self._tree = tree or MemoryTree()
        settings = self._tree.settings
        self._watches = Watches(
            _later, _report, watches_max=settings.watches_max, path_bytes_max=settings.path_bytes_max
        )
        self._session, _ = self._tree.records.open_session(settings.session_timeout_ms)
        self._connected = True
        self._closed = False
        self._missed: dict[Change, None] = {}
        self._tree.join(self)

    async def get(self, path: str) -> Record | None:
        self._check()
        held = self._tree.records.get(path)
        return held.record() if held is not None else None

    async def put(
        self,
        path: str,
        value: bytes,
        *,
        expected_version: int | None = None,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> Stored:
        self._check()
        stored, effects = self._tree.records.put(
            path,
            value,
            session=self._session,
            now_ms=self._tree.clock.now_ms(),
            expected_version=expected_version,
            ephemeral=ephemeral,
            sequential=sequential,
        )
        self._tree.announce(effects)
        return stored

    async def delete(self, path: str, *, expected_version: int | None = None) -> None:
        self._check()
        self._tree.announce(self._tree.records.delete(path, session=self._session, expected_version=expected_version))

    async def children(self, path: str) -> list[str]:
        self._check()
        return self._tree.records.children(path)

    def watch(self, prefix: str, listener: Callable[[Change], None]) -> Callable[[], None]:
        return self._watches.add(prefix, listener)

    def watch_session(self, listener: Callable[[SessionEvent], None]) -> Callable[[], None]:
        return self._watches.add_session(listener)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._watches.clear()
        self._tree.leave(self)
        self._tree.announce(self._tree.records.close_session(self._session))

    # --- what a test does to the session --------------------------------------------------------

    def disconnect(self) -> None:
        """Operations fail and changes are not told until `reconnect`; the session lives on."""
        assert self._connected, "the session is disconnected already"
        self._connected = False
        self._watches.on_session(SessionEvent.DISCONNECTED)

    def reconnect(self) -> None:
        """The session goes on, and what was missed is told."""
        assert not self._connected, "the session is connected already"
        assert self._session in self._tree.records.sessions, "the session has ended: re-establish it"
        self._connected = True
        self._watches.on_session(SessionEvent.RECONNECTED)
        missed, self._missed = self._missed, {}
        self._watches.on_changes(missed)

    def expire_session(self) -> None:
        """End the session as the store would: ephemeral records go, what was missed is lost."""
        self._tree.announce(self._tree.records.close_session(self._session))
        self._connected = False
        self._missed.clear()
        self._watches.on_session(SessionEvent.LOST)

    def reestablish_session(self) -> None:
        """A new session takes the place of the one that was lost."""
        assert self._session not in self._tree.records.sessions, "the session has not ended"
        self._session, _ = self._tree.records.open_session(self._tree.settings.session_timeout_ms)
        self._connected = True
        self._watches.on_session(SessionEvent.REESTABLISHED)

    def on_changes(self, changes: list[Change]) -> None:
        """Told by the tree."""
        if self._connected:
            self._watches.on_changes(changes)
        elif self._session in self._tree.records.sessions:
            self._missed.update(dict.fromkeys(change for change in changes if self._watches.is_watched(change.path)))

    def _check(self) -> None:
        if self._closed:
            raise SessionLost("this metadata store was closed")
        if self._session not in self._tree.records.sessions:
            raise SessionLost(f"metadata session {self._session} has ended")
        if not self._connected:
            raise MetadataError("the metadata store is disconnected")


def _later(call: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(call)


def _report(error: Exception) -> None:
    asyncio.get_running_loop().call_exception_handler(
        {"message": "a metadata watch listener failed", "exception": error}
    )
