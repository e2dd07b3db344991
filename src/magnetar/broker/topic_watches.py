# SPDX-License-Identifier: Apache-2.0
"""Who watches the topics of a namespace, and telling them what is new and what is gone.

Owns one watch of the metadata store per namespace that is watched at all. A topic that comes or goes costs one question
about that topic, however many there are; all are read anew only when changes may have been missed, or partitions
changed. One reading at a time: what changes meanwhile is told together. Each watcher is told the difference to what it
was told before. Never answers a client itself, never holds the loop for a long list.
Carries.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from magnetar.broker.topic_list import ListChange, ListView, TopicPattern, is_system_topic
from magnetar.errors import BadName, MagnetarError, OwnerClosed, TooManyRequests
from magnetar.metadata.store import Change, ChangeKind, MetadataStore, SessionEvent
from magnetar.names import MANAGED_LEDGERS_ROOT, PARTITIONED_TOPICS_ROOT, NamespaceName, TopicName
from magnetar.runtime.tasks import Tasks

# Topics that are looked at before other work on the loop has its turn.
_SLICE: Final = 200

_log = logging.getLogger(__name__)


async def matching(pattern: TopicPattern, topics: Sequence[TopicName]) -> list[str]:
    """The names of those that match, found in slices."""
    found: list[str] = []
    for start in range(0, len(topics), _SLICE):
        found += pattern.filter(topics[start : start + _SLICE])
        await asyncio.sleep(0)
    return found


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

    @property
    def namespace(self) -> NamespaceName:
        return self._namespace.namespace

    async def tell_all(self, topics: Sequence[TopicName]) -> None:
        """All topics are known: tell what differs."""
        names = await matching(self.view.pattern, topics)
        if self._may_tell():
            self._tell(self.view.replace(names))

    def tell(self, came: Sequence[TopicName], went: Sequence[TopicName]) -> None:
        if self._may_tell():
            self._tell(self.view.change(came, went))

    def catch_up(self) -> None:
        """The client reads again."""
        if self._is_behind:
            self._namespace.refresh()

    def close(self) -> None:
        self._namespace.forget(self)

    def _may_tell(self) -> bool:
        """Not while the client does not read: it is told all at once when it does."""
        self._is_behind = not self.is_ready()
        return not self._is_behind

    def _tell(self, change: ListChange) -> None:
        if change:
            self._on_changed(change, self.view.hash)


class TopicWatches:
    def __init__(
        self,
        store: MetadataStore,
        tasks: Tasks,
        *,
        read: Callable[[NamespaceName], Awaitable[Sequence[TopicName]]],
        exists: Callable[[TopicName], Awaitable[bool]],
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._read = read
        self._exists = exists
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
            watched = _Watched(namespace, self._store, self._tasks, self._read, self._exists, self._watched.pop)
            self._watched[namespace] = watched
        # Registered before reading: a change that comes meanwhile makes it read again.
        watch = TopicWatch(watched, ListView(pattern), on_changed, is_ready)
        watched.watches[watch] = None
        try:
            watch.view.replace(await matching(pattern, await self._read(namespace)))
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
        read: Callable[[NamespaceName], Awaitable[Sequence[TopicName]]],
        exists: Callable[[TopicName], Awaitable[bool]],
        on_unwatched: Callable[[NamespaceName], object],
    ) -> None:
        self.watches: dict[TopicWatch, None] = {}
        self.namespace = namespace
        self._tasks = tasks
        self._read = read
        self._exists = exists
        self._on_unwatched = on_unwatched
        self._is_telling = False
        # Everything must be read again; or these topics came or went.
        self._is_outdated = False
        self._changed: dict[TopicName, None] = {}
        self._logs = namespace.managed_ledgers_path()
        self._ends = [
            store.watch(self._logs, self._on_log_changed),
            store.watch(f"{PARTITIONED_TOPICS_ROOT}/{namespace}", lambda change: self.refresh()),
            store.watch_session(self._on_session),
        ]

    def forget(self, watch: TopicWatch) -> None:
        if watch in self.watches:
            del self.watches[watch]
            if not self.watches:
                for end in self._ends:
                    end()
                self._on_unwatched(self.namespace)

    def refresh(self) -> None:
        """Read everything again and tell the differences."""
        self._is_outdated = True
        self._start_telling()

    def _on_log_changed(self, change: Change) -> None:
        """Cursors lie below their logs and change all the time: only what lies directly in the namespace counts."""
        if change.path == self._logs:
            # The store could not say what changed. Children of the namespace are told one by one as well.
            if change.kind is ChangeKind.MODIFIED:
                self.refresh()
        elif change.kind in (ChangeKind.CREATED, ChangeKind.DELETED) and "/" not in change.path[len(self._logs) + 1 :]:
            try:
                topic = TopicName.from_persistence_name(change.path[len(MANAGED_LEDGERS_ROOT) + 1 :])
            except BadName as error:
                _log.warning("a managed ledger that belongs to no topic: %s", error)
                return
            if not is_system_topic(topic):
                self._changed[topic] = None
                self._start_telling()

    def _on_session(self, event: SessionEvent) -> None:
        if event in (SessionEvent.RECONNECTED, SessionEvent.REESTABLISHED):
            self.refresh()

    def _start_telling(self) -> None:
        if not self._is_telling and self.watches:
            try:
                self._tasks.start(self._tell(), f"topics of {self.namespace}")
                self._is_telling = True
            except (OwnerClosed, TooManyRequests):
                # The next change tells of this one, too.
                return

    async def _tell(self) -> None:
        try:
            while self.watches and (self._is_outdated or self._changed):
                if self._is_outdated:
                    await self._tell_everything()
                else:
                    await self._tell_changes()
        except MagnetarError as error:
            # The session's next event, or the next change, makes us read again.
            self._is_outdated = True
            _log.warning("the topics of %s cannot be read for those who watch them: %s", self.namespace, error)
        finally:
            self._is_telling = False

    async def _tell_everything(self) -> None:
        self._is_outdated = False
        self._changed.clear()
        topics = await self._read(self.namespace)
        for watch in list(self.watches):
            await watch.tell_all(topics)

    async def _tell_changes(self) -> None:
        """Ask what became of each: changes may be told late, twice, or merged."""
        changed, self._changed = self._changed, {}
        came: list[TopicName] = []
        went: list[TopicName] = []
        for topic in changed:
            (came if await self._exists(topic) else went).append(topic)
        for watch in list(self.watches):
            watch.tell(came, went)
