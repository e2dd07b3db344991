# SPDX-License-Identifier: Apache-2.0
"""Reads of one part of the tree, kept right by watches.

Owns decoded records and child lists below one prefix, bounded in number, each believed until a watch, a new session
or its age says otherwise. A read that was under way when its path changed is returned but not kept, so an old value
never comes back after a newer one was announced. While the store is disconnected the last known values are served;
afterwards all are read again, because watches may have been missed. Never decides from a cached record what only the
store may grant: writes go by version.
Carries.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from magnetar.config.metadata import MetadataSettings
from magnetar.errors import BadVersion, OutcomeUnknown
from magnetar.metadata.paths import parent_of
from magnetar.metadata.store import MUST_NOT_EXIST, Change, ChangeKind, MetadataStore, SessionEvent, Stored

T = TypeVar("T")


class Cached(NamedTuple, Generic[T]):
    value: T
    version: int


class _Kept(NamedTuple):
    content: object
    until: float


class RecordCache(Generic[T]):
    """Cached reads below `prefix`; `decode` turns a record's bytes into what is kept, and must not change it later."""

    def __init__(
        self,
        store: MetadataStore,
        prefix: str,
        *,
        decode: Callable[[bytes], T],
        encode: Callable[[T], bytes],
        settings: MetadataSettings | None = None,
    ) -> None:
        settings = settings or MetadataSettings()
        self._store = store
        self._decode = decode
        self._encode = encode
        self._records_max = settings.cache_records_max
        self._expiry_s = settings.cache_expiry_ms / 1000
        self._time = asyncio.get_running_loop().time
        # Records and child lists by (path, whether it is a list), least recently used first.
        self._kept: OrderedDict[tuple[str, bool], _Kept] = OrderedDict()
        self._loading: dict[tuple[str, bool], asyncio.Future[None]] = {}
        # Loads under way whose path has changed since they began.
        self._outdated: dict[tuple[str, bool], None] = {}
        self._disconnected = False
        self._listeners: list[Callable[[str], None]] = []
        self._unwatch = store.watch(prefix, self._on_change)
        self._unwatch_session = store.watch_session(self._on_session)

    async def get(self, path: str) -> Cached[T] | None:
        """The record and its version, or None when there is none."""
        content = await self._content(path, is_list=False)
        assert content is None or isinstance(content, Cached)
        return content

    async def children(self, path: str) -> tuple[str, ...]:
        """Names directly below path, sorted."""
        content = await self._content(path, is_list=True)
        assert isinstance(content, tuple)
        return content

    async def update(self, path: str, change: Callable[[T | None], T]) -> Stored:
        """Read, change, write if nobody was faster; otherwise again. `change` gets a value that it must not alter.

        When the outcome of a write stays unknown, the record is read again: if it holds what was written, that is the
        answer, else `change` is applied once more to what is there.
        """
        fresh = await self.get(path)
        while True:
            encoded = self._encode(change(None if fresh is None else fresh.value))
            expected = MUST_NOT_EXIST if fresh is None else fresh.version
            unknown = False
            try:
                return await self._store.put(path, encoded, expected_version=expected)
            except BadVersion:
                pass
            except OutcomeUnknown:
                unknown = True
            finally:
                self._forget(path)
            record = await self._store.get(path)
            if unknown and record is not None and record.value == encoded and record.version == expected + 1:
                return Stored(path, record.version)
            fresh = None if record is None else Cached(self._decode(record.value), record.version)

    def forget(self, path: str) -> None:
        """Read a path anew: for whoever changed it beside the cache and must not wait for the watch to say so."""
        self._forget(path)

    def on_changed(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Tell a path whose record is not what it was; returns the call that ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def __len__(self) -> int:
        return len(self._kept)

    def close(self) -> None:
        self._unwatch()
        self._unwatch_session()
        self._listeners.clear()
        self._forget_all()

    # --- what the store says ------------------------------------------------------------------

    def _on_change(self, change: Change) -> None:
        if change.kind is ChangeKind.CHILDREN_CHANGED:
            self._drop((change.path, True))
            return
        self._forget(change.path)
        if change.kind is not ChangeKind.MODIFIED:
            self._drop((parent_of(change.path), True))
        for listener in tuple(self._listeners):
            listener(change.path)

    def _on_session(self, event: SessionEvent) -> None:
        self._disconnected = event is SessionEvent.DISCONNECTED
        if event is not SessionEvent.DISCONNECTED:
            self._forget_all()

    # --- leaves -------------------------------------------------------------------------------

    async def _content(self, path: str, *, is_list: bool) -> object:
        key = (path, is_list)
        while True:
            kept = self._kept.get(key)
            if kept is not None and (self._disconnected or self._time() < kept.until):
                self._kept.move_to_end(key)
                return kept.content
            loading = self._loading.get(key)
            if loading is None:
                return await self._load(key)
            await asyncio.shield(loading)

    async def _load(self, key: tuple[str, bool]) -> object:
        path, is_list = key
        loading = self._loading[key] = asyncio.get_running_loop().create_future()
        try:
            content: object
            if is_list:
                content = tuple(await self._store.children(path))
            else:
                record = await self._store.get(path)
                content = None if record is None else Cached(self._decode(record.value), record.version)
            if key not in self._outdated and not self._disconnected:
                self._keep(key, content)
            return content
        finally:
            self._outdated.pop(key, None)
            del self._loading[key]
            loading.set_result(None)

    def _keep(self, key: tuple[str, bool], content: object) -> None:
        self._kept[key] = _Kept(content, self._time() + self._expiry_s)
        self._kept.move_to_end(key)
        if len(self._kept) > self._records_max:
            self._kept.popitem(last=False)

    def _forget(self, path: str) -> None:
        self._drop((path, False))
        self._drop((path, True))

    def _forget_all(self) -> None:
        self._kept.clear()
        self._outdated.update(dict.fromkeys(self._loading))

    def _drop(self, key: tuple[str, bool]) -> None:
        self._kept.pop(key, None)
        if key in self._loading:
            self._outdated[key] = None
