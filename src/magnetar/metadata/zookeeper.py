# SPDX-License-Identifier: Apache-2.0
"""Metadata on ZooKeeper: znodes are records, their data versions are versions, sessions are sessions.

Written for ZooKeeper 3.6 and newer, in the tree that Pulsar and BookKeeper share, with or without a chroot. A request
whose connection broke raises OutcomeUnknown if it was a write, since only looking again can tell. After a
reconnection the watches are set again and each prefix is told as changed, because what happened meanwhile is not
known.
Carries.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from kazoo import exceptions as zk

from magnetar.config.metadata import MetadataSettings
from magnetar.errors import (
    BadPath,
    BadVersion,
    CannotStart,
    HasChildren,
    MetadataError,
    NoRecord,
    OutcomeUnknown,
    SessionLost,
    ValueTooLarge,
)
from magnetar.metadata.access import store_access
from magnetar.metadata.loop_watches import loop_watches
from magnetar.metadata.paths import check_path, parent_of
from magnetar.metadata.pending import PendingRequests
from magnetar.metadata.store import (
    MUST_NOT_EXIST,
    Change,
    ChangeKind,
    MetadataStore,
    Record,
    SessionEvent,
    Stored,
)
from magnetar.metadata.zookeeper_client import CONNECTED, LOST, SUSPENDED, ZooKeeperClient

ANY_VERSION: Final = -1
# What a request carries beside path and value: header, lengths, access list, flags.
REQUEST_OVERHEAD_BYTES: Final = 128
_CONNECTION_ERRORS: Final = (zk.ConnectionLoss, zk.OperationTimeoutError, zk.SessionMovedError)
_ENTER_AGAIN_S: Final = 0.1
_SESSION_ERRORS: Final = (zk.SessionExpiredError, zk.ConnectionClosedError)


class ZooKeeperStore(MetadataStore):
    """Open with `await ZooKeeperStore.open(hosts)`, where hosts is `host:port,host:port/chroot`."""

    def __init__(self, hosts: str, settings: MetadataSettings) -> None:
        self._settings = settings
        self._watches = loop_watches(settings, on_first=self._ask, on_last=self._no_longer_ask)
        self._client = ZooKeeperClient(
            hosts,
            session_timeout_ms=settings.session_timeout_ms,
            access=store_access(settings),
            on_state=self._on_state,
            on_change=self._on_change,
        )
        self._pending = PendingRequests("ZooKeeper", settings)
        self._state: str | None = None
        self._lost = False
        self._closed = False
        self._connected_once = asyncio.Event()

    @classmethod
    async def open(cls, hosts: str, settings: MetadataSettings | None = None) -> "ZooKeeperStore":
        """Connect and make sure that the chroot is there. CannotStart when no server answers in time."""
        settings = settings or MetadataSettings()
        servers, separator, chroot = hosts.partition("/")
        check_path(separator + chroot or "/", settings.path_bytes_max)
        store = cls(servers, settings)
        store._client.start()
        try:
            async with asyncio.timeout(settings.operation_timeout_ms / 1000):
                await store._connected_once.wait()
                if chroot:
                    await store._enter(separator + chroot)
        except TimeoutError as error:
            await store.close()
            why = store._client.tls_failure or "is it running?"
            raise CannotStart(
                f"no ZooKeeper at {hosts} answered within {settings.operation_timeout_ms} ms: {why}"
            ) from error
        except zk.KazooException as error:
            await store.close()
            raise CannotStart(f"ZooKeeper at {hosts} does not let us in: {error!r}") from error
        except BaseException:
            await store.close()
            raise
        return store

    async def _enter(self, chroot: str) -> None:
        """A server that is too busy for our pings may cut us off in the middle; the client connects again by itself."""
        while True:
            try:
                await self._client.enter(chroot)
                return
            except _CONNECTION_ERRORS:
                await asyncio.sleep(_ENTER_AGAIN_S)

    async def get(self, path: str) -> Record | None:
        check_path(path, self._settings.path_bytes_max)
        try:
            value, stat = await self._call("get", path, writes=False)
        except zk.NoNodeError:
            return None
        return Record(value, stat.version, stat.ephemeralOwner != 0, stat.ctime, stat.mtime)

    async def put(
        self,
        path: str,
        value: bytes,
        *,
        expected_version: int | None = None,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> Stored:
        check_path(path, self._settings.path_bytes_max)
        self._check_size(path, value)
        try:
            if sequential:
                assert expected_version in (None, MUST_NOT_EXIST), "a sequential record is always new"
                return await self._create(path, value, ephemeral=ephemeral, sequential=True)
            if expected_version == MUST_NOT_EXIST:
                return await self._create(path, value, ephemeral=ephemeral)
            if ephemeral:
                return await self._put_own(path, value, expected_version)
            if expected_version is not None:
                return await self._set(path, value, expected_version)
            return await self._put_in_any_case(path, value)
        except zk.NodeExistsError as error:
            raise BadVersion(f"{path} exists already") from error
        except zk.BadVersionError as error:
            raise BadVersion(f"{path} has another version than {expected_version}") from error
        except zk.NoNodeError as error:
            raise BadVersion(f"{path} does not exist; version {expected_version} of it was expected") from error
        except zk.NoChildrenForEphemeralsError as error:
            raise BadPath(f"{path} cannot exist: a record above it is ephemeral and takes no children") from error

    async def delete(self, path: str, *, expected_version: int | None = None) -> None:
        check_path(path, self._settings.path_bytes_max)
        if path == "/":
            raise BadPath("the root of the metadata tree cannot be deleted")
        try:
            version = ANY_VERSION if expected_version is None else expected_version
            await self._call("delete", path, version, writes=True)
        except zk.NoNodeError as error:
            raise NoRecord(f"there is no record at {path}") from error
        except zk.BadVersionError as error:
            raise BadVersion(f"{path} has another version than {expected_version}") from error
        except zk.NotEmptyError as error:
            raise HasChildren(f"{path} has children") from error

    async def children(self, path: str) -> list[str]:
        check_path(path, self._settings.path_bytes_max)
        # Any server answers a read with what it has heard by then, which may be some seconds behind.
        await self._call("sync", path, writes=False)
        try:
            return sorted(await self._call("get_children", path, writes=False))
        except zk.NoNodeError:
            return []

    def watch(self, prefix: str, listener: Callable[[Change], None]) -> Callable[[], None]:
        return self._watches.add(prefix, listener)

    def watch_session(self, listener: Callable[[SessionEvent], None]) -> Callable[[], None]:
        return self._watches.add_session(listener)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._watches.clear()
        await self._client.close()

    # --- what ZooKeeper says --------------------------------------------------------------------

    def _on_state(self, state: str) -> None:
        before, self._state = self._state, state
        if self._closed:
            return
        if state == SUSPENDED:
            self._watches.on_session(SessionEvent.DISCONNECTED)
        elif state == LOST:
            self._lost = True
            self._watches.on_session(SessionEvent.LOST)
        elif state == CONNECTED:
            self._connected_once.set()
            for prefix in self._watches.prefixes():
                self._client.watch(prefix)
            if self._lost:
                self._lost = False
                self._watches.on_session(SessionEvent.REESTABLISHED)
            elif before is not None:
                self._watches.on_session(SessionEvent.RECONNECTED)
            if before is not None:
                self._watches.on_gap()

    def _on_change(self, kind: ChangeKind, path: str) -> None:
        changes = [Change(kind, path)]
        if kind is not ChangeKind.MODIFIED:
            changes.append(Change(ChangeKind.CHILDREN_CHANGED, parent_of(path)))
        self._watches.on_changes(changes)

    # --- leaves -------------------------------------------------------------------------------

    async def _create(self, path: str, value: bytes, *, ephemeral: bool = False, sequential: bool = False) -> Stored:
        made = await self._call(
            "create", path, value, ephemeral=ephemeral, sequence=sequential, makepath=True, writes=True
        )
        return Stored(made, 0)

    async def _set(self, path: str, value: bytes, version: int) -> Stored:
        stat = await self._call("set", path, value, version, writes=True)
        return Stored(path, stat.version)

    async def _put_in_any_case(self, path: str, value: bytes) -> Stored:
        """Each turn fails only because someone else made or deleted the record in between."""
        while True:
            try:
                return await self._set(path, value, ANY_VERSION)
            except zk.NoNodeError:
                try:
                    return await self._create(path, value)
                except zk.NodeExistsError:
                    continue

    async def _put_own(self, path: str, value: bytes, expected_version: int | None) -> Stored:
        """Write a record that is, or becomes, ephemeral with this very session."""
        while True:
            stat = await self._call("exists", path, writes=False)
            if stat is None:
                if expected_version is not None:
                    raise BadVersion(f"{path} does not exist; version {expected_version} of it was expected")
                try:
                    return await self._create(path, value, ephemeral=True)
                except zk.NodeExistsError:
                    continue
            if stat.ephemeralOwner == 0 or stat.ephemeralOwner != self._client.session:
                whose = "is persistent" if stat.ephemeralOwner == 0 else "belongs to another session"
                raise BadVersion(f"{path} exists and {whose}: it cannot become an ephemeral record of this session")
            try:
                return await self._set(path, value, stat.version if expected_version is None else expected_version)
            except (zk.BadVersionError, zk.NoNodeError):
                if expected_version is not None:
                    raise

    async def _call(self, operation: str, *args: Any, writes: bool, **options: Any) -> Any:
        """Run a request; connection and session errors become ours, the others stay ZooKeeper's for the caller."""
        self._check()
        size = sum(len(arg) for arg in args if isinstance(arg, bytes))
        try:
            with self._pending.one_more(size):
                async with asyncio.timeout(self._settings.operation_timeout_ms / 1000):
                    return await self._client.call(operation, *args, **options)
        except _SESSION_ERRORS as error:
            raise SessionLost(f"the ZooKeeper session ended before {operation} of {args[0]}") from error
        except (*_CONNECTION_ERRORS, TimeoutError) as error:
            if writes:
                raise OutcomeUnknown(f"the connection to ZooKeeper broke during {operation} of {args[0]}") from error
            raise MetadataError(f"ZooKeeper did not answer {operation} of {args[0]}") from error
        except (
            zk.NoNodeError,
            zk.NodeExistsError,
            zk.BadVersionError,
            zk.NotEmptyError,
            zk.NoChildrenForEphemeralsError,
        ):
            raise
        except zk.KazooException as error:
            raise MetadataError(f"ZooKeeper refused {operation} of {args[0]}: {error!r}") from error

    def _check(self) -> None:
        if self._closed:
            raise SessionLost("this metadata store was closed")
        if self._lost:
            raise SessionLost("the ZooKeeper session has ended, a new one is being made")

    def _check_size(self, path: str, value: bytes) -> None:
        size = len(value) + len(path.encode()) + REQUEST_OVERHEAD_BYTES
        if size > self._settings.value_bytes_max:
            raise ValueTooLarge(
                f"record {path} has {len(value)} bytes, which do not fit into a ZooKeeper request of "
                f"{self._settings.value_bytes_max}"
            )

    def _ask(self, prefix: str) -> None:
        if self._state == CONNECTED:
            self._client.watch(prefix)

    def _no_longer_ask(self, prefix: str) -> None:
        if self._state == CONNECTED and not self._closed:
            self._client.unwatch(prefix)
