# SPDX-License-Identifier: Apache-2.0
"""The seam to kazoo: its threads do nothing here but hand (operation, result) and (state) to the loop.

Adds what kazoo lacks: ZooKeeper's persistent recursive watches (requests 106 and 103, ZooKeeper 3.6 and newer), one
per prefix instead of one per record. They come without a watcher of kazoo's own, so this client takes every watch
event. Knows no record, no version and no error of ours.
Carries.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
import struct
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.paths import _prefix_root
from kazoo.protocol.serialization import write_string
from kazoo.protocol.states import EventType, WatchedEvent
from kazoo.security import CREATOR_ALL_ACL

from magnetar.metadata.access import NO_ACCESS, StoreAccess
from magnetar.metadata.store import ChangeKind
from magnetar.runtime.blocking_calls import run_apart

# As long as kazoo itself waits for its writer, at least.
CLOSE_LIMIT_S: Final = 10.0
_INT: Final = struct.Struct(">i")
_ADD_WATCH: Final = 106
_REMOVE_WATCHES: Final = 103
_PERSISTENT_RECURSIVE: Final = 1
_ANY_WATCHER: Final = 3
_KINDS: Final = {
    EventType.CREATED: ChangeKind.CREATED,
    EventType.CHANGED: ChangeKind.MODIFIED,
    EventType.DELETED: ChangeKind.DELETED,
}

_log = logging.getLogger(__name__)


class _TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Connections over TLS by our own rules: kazoo's would also believe every authority of the system."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__()
        self._context = context
        self.failure = ""

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, timeout: float | None = None, **_: Any
    ) -> socket.socket:
        connection = socket.create_connection(address, timeout)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return self._context.wrap_socket(connection, server_hostname=hostname or address[0])
        except OSError as error:
            connection.close()
            self.failure = f"TLS with {hostname or address[0]}:{address[1]} failed: {error}"
            raise

    def select(
        self, readable: list[Any], writable: list[Any], failed: list[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """What TLS has decrypted and nobody has read makes no socket readable: kazoo would wait for a next answer."""
        held = [each for each in readable if isinstance(each, ssl.SSLSocket) and each.pending()]
        others = [each for each in readable if each not in held]
        ready: tuple[list[Any], list[Any], list[Any]] = super().select(others, writable, failed, 0 if held else timeout)
        return held + ready[0], ready[1], ready[2]


class _WatchRequest:
    """A request that names a path and a mode, and is answered with nothing but success."""

    __slots__ = ("_mode", "path", "type")

    def __init__(self, request_type: int, path: str, mode: int) -> None:
        self.type = request_type
        self.path = path
        self._mode = mode

    def serialize(self) -> bytes:
        return bytes(write_string(self.path)) + _INT.pack(self._mode)

    def deserialize(self, data: bytes, offset: int) -> bool:
        return True


class _EveryPath(defaultdict[str, set[Any]]):
    """Stands where kazoo keeps its watchers by path, and answers with one watcher for any."""

    def __init__(self, watcher: Callable[[WatchedEvent], None]) -> None:
        super().__init__(set)
        self._watcher = watcher

    def pop(self, path: str, default: Any = None) -> Any:
        return [self._watcher]


class _Kazoo(KazooClient):  # type: ignore[misc]
    """A kazoo client whose data watchers are one, also after a reconnection."""

    def __init__(self, watcher: Callable[[WatchedEvent], None], **options: Any) -> None:
        self._watcher = watcher
        super().__init__(**options)
        self._data_watchers = _EveryPath(watcher)

    def _reset_watchers(self) -> None:
        super()._reset_watchers()
        self._data_watchers = _EveryPath(self._watcher)

    def add_persistent_watch(self, path: str) -> Any:
        return self._send(_ADD_WATCH, path, _PERSISTENT_RECURSIVE)

    def remove_watches(self, path: str) -> Any:
        return self._send(_REMOVE_WATCHES, path, _ANY_WATCHER)

    def _send(self, request_type: int, path: str, mode: int) -> Any:
        result = self.handler.async_result()
        self._call(_WatchRequest(request_type, _prefix_root(self.chroot, path), mode), result)
        return result


class ZooKeeperClient:
    """One ZooKeeper session on the loop. `on_state` and `on_change` are called there."""

    def __init__(
        self,
        hosts: str,
        *,
        session_timeout_ms: int,
        access: StoreAccess = NO_ACCESS,
        on_state: Callable[[str], None],
        on_change: Callable[[ChangeKind, str], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_state = on_state
        self._on_change = on_change
        context = access.context()
        self._tls = None if context is None else _TlsHandler(context)
        options = _options(access)
        if self._tls is not None:
            options |= {"handler": self._tls, "use_ssl": True}
        self._kazoo = _Kazoo(self._from_watch, hosts=hosts, timeout=session_timeout_ms / 1000, **options)
        self._kazoo.add_listener(self._from_state)

    def start(self) -> None:
        """Begin to connect; `on_state` tells when it is done."""
        self._kazoo.start_async()

    async def enter(self, chroot: str) -> None:
        """Make the chroot with all that lies above it; every path is below it from now on."""
        await self.call("ensure_path", chroot)
        self._kazoo.chroot = chroot

    @property
    def tls_failure(self) -> str:
        """Why the last handshake failed; empty where none did."""
        return "" if self._tls is None else self._tls.failure

    @property
    def session(self) -> int | None:
        """Number of the present session, as records name their owner."""
        client_id = self._kazoo.client_id
        return None if client_id is None else int(client_id[0])

    async def call(self, operation: str, *args: Any, **options: Any) -> Any:
        """One of kazoo's `…_async` operations: its result, or a KazooException."""
        future: asyncio.Future[Any] = self._loop.create_future()
        getattr(self._kazoo, f"{operation}_async")(*args, **options).rawlink(
            lambda result: self._hand_over(self._complete, future, result)
        )
        return await future

    def watch(self, prefix: str) -> None:
        """Ask for every change at or below a prefix, in order with what is asked before and after."""
        self._kazoo.add_persistent_watch(prefix)

    def unwatch(self, prefix: str) -> None:
        self._kazoo.remove_watches(prefix)

    async def close(self) -> None:
        """End the session and kazoo's threads. A server that hangs is left to end the session by its timeout."""
        self._kazoo.remove_listener(self._from_state)
        if not await run_apart(self._stop, name="zookeeper close", limit_s=CLOSE_LIMIT_S):
            _log.warning("ZooKeeper did not end the session in %g s; it ends by its timeout", CLOSE_LIMIT_S)

    # --- on other threads ---------------------------------------------------------------------

    def _stop(self) -> None:
        # What it says of its own threads is of no use to anybody by now.
        with contextlib.suppress(KazooException, OSError):
            self._kazoo.stop()
        with contextlib.suppress(KazooException, OSError):
            self._kazoo.close()

    def _from_state(self, state: str) -> None:
        self._hand_over(self._on_state, state)

    def _from_watch(self, event: WatchedEvent) -> None:
        kind = _KINDS.get(event.type)
        if kind is not None:
            self._hand_over(self._on_change, kind, event.path)

    def _hand_over(self, call: Callable[..., None], *args: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *args)

    # --- on the loop --------------------------------------------------------------------------

    def _complete(self, future: asyncio.Future[Any], result: Any) -> None:
        if future.done():
            return
        if result.successful():
            future.set_result(result.value)
        else:
            future.set_exception(result.exception)


def _options(access: StoreAccess) -> dict[str, Any]:
    """With a user, what we make is for that user alone."""
    options: dict[str, Any] = {}
    if access.user:
        options["auth_data"] = [("digest", f"{access.user}:{access.password}")]
        options["default_acl"] = CREATOR_ALL_ACL
    return options


CONNECTED: Final = KazooState.CONNECTED
SUSPENDED: Final = KazooState.SUSPENDED
LOST: Final = KazooState.LOST
