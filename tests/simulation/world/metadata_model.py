# SPDX-License-Identifier: Apache-2.0
"""A metadata store as a model: linearizable, with sessions that live and die in virtual time.

One MetadataModel is the server; each ModelStore is one client's session on it. Every operation takes effect at one
instant between its call and its answer. Faults lie around that instant: requests and answers are late or lost
(OutcomeUnknown, and nobody can tell which), clients are cut off, sessions expire, watches come late, twice or, if
asked for, never; the whole store can be out. With all faults off it passes the contract suite like any other store.
Uses timers of the running loop and the Random it is given, nothing else. What a client hears it hears as the process
that opened its session; what happens at the server happens whoever is alive.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TypeVar

from magnetar.config.metadata import MetadataSettings
from magnetar.errors import MetadataError, OutcomeUnknown, SessionLost
from magnetar.metadata.store import Change, MetadataStore, Record, SessionEvent, Stored
from magnetar.metadata.tree import Effect, RecordTree, Removed, changes_of
from magnetar.metadata.watches import Watches
from magnetar.runtime.clock import SystemClock, WallClock

Result = TypeVar("Result")


@dataclass(slots=True)
class MetadataFaults:
    """All off by default. Fields may be changed while the model runs; delays are drawn per message, each way."""

    delay_least_ms: float = 0.0
    delay_tail_ms: float = 0.0
    request_lost_chance: float = 0.0
    answer_lost_chance: float = 0.0
    watch_delay_tail_ms: float = 0.0
    watch_twice_chance: float = 0.0
    # Breaks the store's promise, to see whether its users look again by themselves.
    watch_missed_chance: float = 0.0
    reconnect_ms: float = 10.0


class MetadataModel:
    """The server: one tree, its sessions, and what befalls them."""

    def __init__(
        self,
        random: Random,
        *,
        clock: WallClock | None = None,
        settings: MetadataSettings | None = None,
        faults: MetadataFaults | None = None,
    ) -> None:
        self.random = random
        self.clock = clock or SystemClock()
        self.settings = settings or MetadataSettings()
        self.faults = faults or MetadataFaults()
        self.tree = RecordTree(self.settings)
        self.stores: list[ModelStore] = []
        self.injected: Counter[str] = Counter()
        self.is_out = False
        # Sees every record as it is stored, for checkers.
        self.on_stored: Callable[[str, bytes], None] | None = None
        self.on_removed: Callable[[str], None] | None = None

    def open_session(self) -> "ModelStore":
        return ModelStore(self)

    def begin_outage(self) -> None:
        """Nothing is answered any more; sessions do not age meanwhile."""
        assert not self.is_out
        self.is_out = True
        self.injected["metadata-outage"] += 1
        for store in self.stores:
            store.on_unreachable()

    def end_outage(self) -> None:
        assert self.is_out
        self.is_out = False
        for store in self.stores:
            store.on_reachable()

    def expire(self, store: "ModelStore") -> None:
        """End a session at the server now; its client learns of it at its next contact."""
        self.injected["metadata-session-expired"] += 1
        self.end_session(store.session)
        store.on_suspicion()

    def end_session(self, session: int) -> None:
        self.announce(self.tree.close_session(session))

    def announce(self, effects: list[Effect]) -> None:
        if self.on_removed is not None:
            for effect in effects:
                if isinstance(effect, Removed):
                    self.on_removed(effect.path)
        changes = changes_of(effects)
        if changes:
            for store in self.stores:
                store.on_changes(changes)

    def strikes(self, chance: float, kind: str) -> bool:
        if not chance or self.random.random() >= chance:
            return False
        self.injected[kind] += 1
        return True

    def delay_s(self) -> float:
        return self._draw_s(self.faults.delay_least_ms, self.faults.delay_tail_ms)

    def watch_delay_s(self) -> float:
        return self._draw_s(0.0, self.faults.watch_delay_tail_ms)

    def _draw_s(self, least_ms: float, tail_ms: float) -> float:
        return (least_ms + (self.random.expovariate(1 / tail_ms) if tail_ms else 0.0)) / 1000


class ModelStore(MetadataStore):
    """One client. `cut` and `heal` are for tests: the network between it and the server."""

    def __init__(self, model: MetadataModel) -> None:
        self._model = model
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self._watches = Watches(
            lambda call: self._loop.call_soon(call, context=self._context),
            lambda error: self._loop.call_exception_handler({"message": "a metadata watch failed", "exception": error}),
            watches_max=model.settings.watches_max,
            path_bytes_max=model.settings.path_bytes_max,
        )
        self.session, _ = model.tree.open_session(model.settings.session_timeout_ms)
        self._is_cut = False
        self._connected = True
        self._lost = False
        self._closed = False
        # Rises when the connection breaks: what was on its way then has an unknown outcome.
        self._connection = 0
        self._last_arrival = 0.0
        self._untold: dict[Change, None] = {}
        self._expiry: asyncio.TimerHandle | None = None
        self._reconnect: asyncio.TimerHandle | None = None
        model.stores.append(self)

    @property
    def is_connected(self) -> bool:
        """As this client sees it."""
        return self._connected and not self._lost and not self._closed

    async def get(self, path: str) -> Record | None:
        held = await self._call(lambda: self._model.tree.get(path))
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
        def put() -> Stored:
            stored, effects = self._model.tree.put(
                path,
                value,
                session=self.session,
                now_ms=self._model.clock.now_ms(),
                expected_version=expected_version,
                ephemeral=ephemeral,
                sequential=sequential,
            )
            if self._model.on_stored is not None:
                self._model.on_stored(stored.path, value)
            self._model.announce(effects)
            return stored

        return await self._call(put)

    async def delete(self, path: str, *, expected_version: int | None = None) -> None:
        def delete() -> None:
            self._model.announce(self._model.tree.delete(path, session=self.session, expected_version=expected_version))

        await self._call(delete)

    async def children(self, path: str) -> list[str]:
        return await self._call(lambda: self._model.tree.children(path))

    def watch(self, prefix: str, listener: Callable[[Change], None]) -> Callable[[], None]:
        return self._watches.add(prefix, listener)

    def watch_session(self, listener: Callable[[SessionEvent], None]) -> Callable[[], None]:
        return self._watches.add_session(listener)

    async def close(self) -> None:
        """A client that is cut off cannot say good-bye: its session then ends by its timeout."""
        if self._closed:
            return
        self._closed = True
        self._watches.clear()
        if self._connected and not self._lost:
            self._forget_timers()
            self._model.end_session(self.session)
            self._model.stores.remove(self)

    # --- the network, in a test's hands -----------------------------------------------------------

    def cut(self) -> None:
        """Nothing passes between this client and the server; its session ends after the timeout."""
        assert not self._is_cut
        self._is_cut = True
        self._model.injected["metadata-cut"] += 1
        self.on_unreachable()

    def heal(self) -> None:
        assert self._is_cut
        self._is_cut = False
        self.on_reachable()

    # --- what the model says ----------------------------------------------------------------------

    def on_changes(self, changes: list[Change]) -> None:
        for change in changes:
            if self._model.strikes(self._model.faults.watch_missed_chance, "metadata-watch-missed"):
                continue
            self._untold[change] = None
            twice = self._model.strikes(self._model.faults.watch_twice_chance, "metadata-watch-twice")
            for _ in range(2 if twice else 1):
                self._after(self._model.watch_delay_s(), partial(self._tell, change))

    def on_unreachable(self) -> None:
        """The connection is gone; unless all of the store is out, the session begins to age."""
        if not self._connected and self._reconnect is None and not self._is_cut:
            return
        self._break()
        if self._is_cut and not self._model.is_out and self._expiry is None:
            timeout_s = self._model.settings.session_timeout_ms / 1000
            self._expiry = self._loop.call_later(timeout_s, self._expire, context=Context())
        elif self._model.is_out and self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def on_reachable(self) -> None:
        if self._is_cut and not self._model.is_out:
            self.on_unreachable()
        elif not self._is_cut and not self._model.is_out:
            self._schedule_reconnect()

    def on_suspicion(self) -> None:
        """Something about the session changed at the server: the next heartbeat shows it."""
        if self._connected:
            self._break()
            self._schedule_reconnect()

    # --- leaves -------------------------------------------------------------------------------

    async def _call(self, operation: Callable[[], Result]) -> Result:
        self._check()
        connection = self._connection
        if self._model.strikes(self._model.faults.request_lost_chance, "metadata-request-lost"):
            self.on_suspicion()
        await self._travel()
        self._check_answerable(connection)
        if self.session not in self._model.tree.sessions:
            self.on_suspicion()
            raise SessionLost(f"metadata session {self.session} has ended")
        result = operation()
        if self._model.strikes(self._model.faults.answer_lost_chance, "metadata-answer-lost"):
            self.on_suspicion()
        await asyncio.sleep(self._model.delay_s())
        self._check_answerable(connection)
        return result

    async def _travel(self) -> None:
        """Requests of one session arrive in the order in which they were sent."""
        arrival = max(self._loop.time() + self._model.delay_s(), self._last_arrival)
        self._last_arrival = arrival
        await asyncio.sleep(arrival - self._loop.time())

    def _check(self) -> None:
        if self._closed:
            raise SessionLost("this metadata store was closed")
        if self._lost:
            raise SessionLost(f"metadata session {self.session} has ended")
        if not self._connected:
            raise MetadataError("the metadata store is disconnected")

    def _check_answerable(self, connection: int) -> None:
        if connection != self._connection:
            raise OutcomeUnknown("the connection to the metadata store broke before the answer came")

    def _tell(self, change: Change) -> None:
        if self._connected and not self._closed:
            self._untold.pop(change, None)
            self._watches.on_changes((change,))

    def _break(self) -> None:
        self._connection += 1
        if self._connected:
            self._connected = False
            self._watches.on_session(SessionEvent.DISCONNECTED)
        if self._reconnect is not None:
            self._reconnect.cancel()
            self._reconnect = None

    def _schedule_reconnect(self) -> None:
        if not self._connected and self._reconnect is None:
            self._reconnect = self._later(self._model.faults.reconnect_ms / 1000, self._on_reconnect)

    def _on_reconnect(self) -> None:
        """Contact again: the session goes on, or its end is learned and a new one begins."""
        self._forget_timers()
        if self._closed:
            self._model.end_session(self.session)
            self._model.stores.remove(self)
            return
        if self.session in self._model.tree.sessions:
            self._connected = True
            self._watches.on_session(SessionEvent.RECONNECTED)
            for change in tuple(self._untold):
                self._tell(change)
            return
        self._untold.clear()
        if not self._lost:
            self._lost = True
            self._watches.on_session(SessionEvent.LOST)
        self._reconnect = self._later(self._model.faults.reconnect_ms / 1000, self._reestablish)

    def _reestablish(self) -> None:
        self._reconnect = None
        if self._closed or self._is_cut or self._model.is_out:
            return
        self.session, _ = self._model.tree.open_session(self._model.settings.session_timeout_ms)
        self._lost = False
        self._connected = True
        self._watches.on_session(SessionEvent.REESTABLISHED)

    def _expire(self) -> None:
        self._expiry = None
        self._model.injected["metadata-session-expired"] += 1
        self._model.end_session(self.session)

    def _forget_timers(self) -> None:
        for timer in (self._expiry, self._reconnect):
            if timer is not None:
                timer.cancel()
        self._expiry = self._reconnect = None

    def _after(self, delay_s: float, call: Callable[[], None]) -> None:
        if delay_s > 0:
            self._later(delay_s, call)
        else:
            self._loop.call_soon(call, context=self._context)

    def _later(self, delay_s: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_s, call, context=self._context)
