# SPDX-License-Identifier: Apache-2.0
"""The embedded metadata store: one node, durable, in a directory of its own.

EmbeddedStore is one session on a DurableTree, bound to this process: its ephemeral records end with `close`, or at
the next start after a crash. There is no connection to lose; the session is LOST only when the disk has failed, for
good.
Carries.
"""

from collections.abc import Callable

from magnetar.config.metadata import MetadataSettings
from magnetar.errors import SessionLost, StorageFailed
from magnetar.metadata.durable_tree import PROCESS_BOUND, DurableTree
from magnetar.metadata.loop_watches import loop_watches
from magnetar.metadata.store import Change, MetadataStore, Record, SessionEvent, Stored
from magnetar.runtime.clock import WallClock
from magnetar.runtime.disk import Disk


class EmbeddedStore(MetadataStore):
    """Open with `await EmbeddedStore.open(...)`, or share a tree with `await EmbeddedStore.join(tree, ...)`."""

    def __init__(self, tree: DurableTree, session: int, settings: MetadataSettings, *, owns_tree: bool) -> None:
        self._tree = tree
        self._session = session
        self._owns_tree = owns_tree
        self._closed = False
        self._watches = loop_watches(settings)
        self._unwatch_changes = tree.watch_changes(self._watches.on_changes)
        self._unwatch_failure = tree.watch_failure(self._on_failure)

    @classmethod
    async def open(
        cls, disk: Disk, directory: str, *, clock: WallClock, settings: MetadataSettings | None = None
    ) -> "EmbeddedStore":
        """Recover or begin the store in a directory. Damaged, NotSupported, DataDirectoryInUse, CannotStart."""
        settings = settings or MetadataSettings()
        tree = await DurableTree.open(disk, directory, clock=clock, settings=settings)
        try:
            session = await tree.open_session(PROCESS_BOUND)
        except BaseException:
            await tree.abandon()
            raise
        return cls(tree, session, settings, owns_tree=True)

    @classmethod
    async def join(cls, tree: DurableTree, settings: MetadataSettings | None = None) -> "EmbeddedStore":
        """One more session of this process on a tree that somebody else closes."""
        session = await tree.open_session(PROCESS_BOUND)
        return cls(tree, session, settings or MetadataSettings(), owns_tree=False)

    @property
    def tree(self) -> DurableTree:
        """For those who serve it to others (`remote_server.py`)."""
        return self._tree

    async def get(self, path: str) -> Record | None:
        self._check()
        return await self._tree.get(path, session=self._session)

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
        return await self._tree.put(
            path,
            value,
            session=self._session,
            expected_version=expected_version,
            ephemeral=ephemeral,
            sequential=sequential,
        )

    async def delete(self, path: str, *, expected_version: int | None = None) -> None:
        self._check()
        await self._tree.delete(path, session=self._session, expected_version=expected_version)

    async def children(self, path: str) -> list[str]:
        self._check()
        return await self._tree.children(path, session=self._session)

    def watch(self, prefix: str, listener: Callable[[Change], None]) -> Callable[[], None]:
        return self._watches.add(prefix, listener)

    def watch_session(self, listener: Callable[[SessionEvent], None]) -> Callable[[], None]:
        return self._watches.add_session(listener)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._unwatch_changes()
        self._unwatch_failure()
        self._watches.clear()
        try:
            await self._tree.close_session(self._session)
        except (StorageFailed, SessionLost):
            pass  # whatever the session held ends with the process
        finally:
            if self._owns_tree:
                await self._tree.close()

    def _on_failure(self, _: StorageFailed) -> None:
        self._watches.on_session(SessionEvent.LOST)

    def _check(self) -> None:
        if self._closed:
            raise SessionLost("this metadata store was closed")
