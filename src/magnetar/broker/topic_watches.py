# SPDX-License-Identifier: Apache-2.0
"""Who watches the topics of a namespace, and telling them what is new and what is gone.

Owns one watch of the metadata store per namespace that is watched at all, and one reading of its topics at a time,
however many changes and watchers there are: changes that come while it reads are told together. Each watcher is told
the difference to what it was told before. Never answers a client itself.
Carries.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence

from magnetar.broker.topic_list import ListChange, ListView, TopicPattern
from magnetar.errors import MagnetarError, OwnerClosed
from magnetar.metadata.store import Change, MetadataStore, SessionEvent
from magnetar.names import PARTITIONED_TOPICS_ROOT, NamespaceName, TopicName
from magnetar.runtime.tasks import Tasks

_log = logging.getLogger(__name__)

Reading = Callable[[NamespaceName], Awaitable[Sequence[TopicName]]]


class TopicWatch:
    """One watcher's registration; closing it is final."""

    __slots__ = ("_is_behind", "_namespace", "_on_changed", "is_ready", "view")

    def __init__(
        self,
        namespace: "_Watched",
        view: ListView,
        on_changed: Callable[[ListChange, str], None],
        is_ready: Callable[[], bool],
    ) -> None:
        self._namespace = namespace
        self._on_changed = on_changed
        self.view = view
        self.is_ready = is_ready
        self._is_behind = False

    def tell(self, topics: Sequence[TopicName]) -> None:
        """What has changed since it was last told; nothing while its client does not read."""
        self._is_behind = not self.is_ready()
        if not self._is_behind:
            change = self.view.update(topics)
            if change:
                self._on_changed(change, self.view.hash)

    def catch_up(self) -> None:
        """The client reads again."""
        if self._is_behind:
            self._namespace.refresh()

    def close(self) -> None:
        self._namespace.forget(self)


class TopicWatches:
    def __init__(self, store: MetadataStore, tasks: Tasks, read: Reading) -> None:
        self._store = store
        self._tasks = tasks
        self._read = read
        self._watched: dict[NamespaceName, _Watched] = {}

    async def watch(
        self,
        namespace: NamespaceName,
        pattern: TopicPattern,
        on_changed: Callable[[ListChange, str], None],
        is_ready: Callable[[], bool] = lambda: True,
    ) -> TopicWatch:
        """Register a watcher; its view holds what is there now, and `on_changed` is told the rest with the new hash."""
        watched = self._watched.get(namespace)
        if watched is None:
            watched = self._watched[namespace] = _Watched(
                namespace, self._store, self._tasks, self._read, self._watched.pop
            )
        # Registered before reading: a change that comes meanwhile makes it read again.
        watch = TopicWatch(watched, ListView(pattern, ()), on_changed, is_ready)
        watched.watches[watch] = None
        try:
            watch.view.update(await self._read(namespace))
        except BaseException:
            watch.close()
            raise
        # What was read may be older than a change that others were told of meanwhile.
        watched.refresh()
        return watch

    def __len__(self) -> int:
        return sum(len(watched.watches) for watched in self._watched.values())


class _Watched:
    """One namespace that has watchers."""

    def __init__(
        self,
        namespace: NamespaceName,
        store: MetadataStore,
        tasks: Tasks,
        read: Reading,
        on_unwatched: Callable[[NamespaceName], object],
    ) -> None:
        self.watches: dict[TopicWatch, None] = {}
        self._namespace = namespace
        self._tasks = tasks
        self._read = read
        self._on_unwatched = on_unwatched
        self._is_reading = False
        self._is_outdated = False
        paths = (namespace.managed_ledgers_path(), f"{PARTITIONED_TOPICS_ROOT}/{namespace}")
        self._ends = [store.watch(path, self._on_change) for path in paths]
        self._ends.append(store.watch_session(self._on_session))

    def forget(self, watch: TopicWatch) -> None:
        if watch in self.watches:
            del self.watches[watch]
            if not self.watches:
                for end in self._ends:
                    end()
                self._on_unwatched(self._namespace)

    def refresh(self) -> None:
        self._is_outdated = True
        if not self._is_reading and self.watches:
            self._is_reading = True
            try:
                self._tasks.start(self._tell_all(), f"topics of {self._namespace}")
            except OwnerClosed:
                return

    def _on_change(self, change: Change) -> None:
        self.refresh()

    def _on_session(self, event: SessionEvent) -> None:
        if event in (SessionEvent.RECONNECTED, SessionEvent.REESTABLISHED):
            self.refresh()

    async def _tell_all(self) -> None:
        try:
            while self._is_outdated and self.watches:
                self._is_outdated = False
                topics = await self._read(self._namespace)
                for watch in list(self.watches):
                    watch.tell(topics)
        except MagnetarError as error:
            # The session's next event, or the next change, makes us read again.
            _log.warning("the topics of %s cannot be read for those who watch them: %s", self._namespace, error)
        finally:
            self._is_reading = False
