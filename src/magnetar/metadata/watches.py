# SPDX-License-Identifier: Apache-2.0
"""Who is told of which change: the watch listeners of one session, by prefix, and its session listeners.

Changes are collected and told in one later turn of the loop, each distinct change once, the last last: the teller is
passed in, so a listener never runs inside the call that caused the change. A listener that raises is reported and
does not keep the others from hearing. A store that asks its server for each prefix learns which ones are wanted, and
which no longer.
Decides.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

from magnetar.errors import TooManyRequests
from magnetar.metadata.paths import check_path, lineage
from magnetar.metadata.store import Change, ChangeKind, SessionEvent

ChangeListener = Callable[[Change], None]
SessionListener = Callable[[SessionEvent], None]
PrefixListener = Callable[[str], None]
T = TypeVar("T")


class Watches:
    """Listeners of one session. `later` runs a call soon on the loop; `report` takes what a listener raised.

    `on_first` is told of a prefix with its first listener, `on_last` when the last one has ended.
    """

    __slots__ = (
        "_by_prefix",
        "_count",
        "_events",
        "_later",
        "_on_first",
        "_on_last",
        "_path_bytes_max",
        "_report",
        "_scheduled",
        "_session_listeners",
        "_untold",
        "_watches_max",
    )

    def __init__(
        self,
        later: Callable[[Callable[[], None]], object],
        report: Callable[[Exception], None],
        *,
        watches_max: int,
        path_bytes_max: int,
        on_first: PrefixListener | None = None,
        on_last: PrefixListener | None = None,
    ) -> None:
        self._later = later
        self._report = report
        self._on_first = on_first
        self._on_last = on_last
        self._watches_max = watches_max
        self._path_bytes_max = path_bytes_max
        self._by_prefix: dict[str, list[ChangeListener]] = {}
        self._session_listeners: list[SessionListener] = []
        self._count = 0
        self._untold: dict[Change | tuple[int, SessionEvent], None] = {}
        self._events = 0
        self._scheduled = False

    def add(self, prefix: str, listener: ChangeListener) -> Callable[[], None]:
        check_path(prefix, self._path_bytes_max)
        self._count_one()
        listeners = self._by_prefix.setdefault(prefix, [])
        listeners.append(listener)
        if len(listeners) == 1 and self._on_first is not None:
            self._on_first(prefix)
        ended = False

        def end() -> None:
            nonlocal ended
            if not ended:
                ended = True
                self._end(prefix, listener)

        return end

    def add_session(self, listener: SessionListener) -> Callable[[], None]:
        self._count_one()
        self._session_listeners.append(listener)
        return lambda: self._end_session(listener)

    def prefixes(self) -> list[str]:
        return list(self._by_prefix)

    def is_watched(self, path: str) -> bool:
        return bool(self._by_prefix) and any(above in self._by_prefix for above in lineage(path))

    def on_changes(self, changes: Iterable[Change]) -> None:
        """Keep for telling what somebody here watches."""
        if not self._by_prefix:
            return
        for change in changes:
            if self.is_watched(change.path):
                # A repeated change moves to the end, so that the last one told is the last that happened.
                self._untold.pop(change, None)
                self._keep(change)

    def on_gap(self) -> None:
        """Changes were missed: every watched prefix may have changed, and is told so."""
        for prefix in self._by_prefix:
            self.on_changes((Change(ChangeKind.MODIFIED, prefix), Change(ChangeKind.CHILDREN_CHANGED, prefix)))

    def on_session(self, event: SessionEvent) -> None:
        """Session events keep their place among the changes and are never merged."""
        if self._session_listeners:
            self._events += 1
            self._keep((self._events, event))

    def tell(self) -> None:
        """Tell what was kept; runs on the loop, outside any operation."""
        self._scheduled = False
        untold, self._untold = self._untold, {}
        for item in untold:
            if isinstance(item, Change):
                for prefix in lineage(item.path):
                    for listener in tuple(self._by_prefix.get(prefix, ())):
                        if listener in self._by_prefix.get(prefix, ()):
                            self._call(listener, item)
            else:
                for session_listener in tuple(self._session_listeners):
                    if session_listener in self._session_listeners:
                        self._call(session_listener, item[1])

    def clear(self) -> None:
        """The session is closed for good: nobody is told anything more."""
        self._by_prefix.clear()
        self._session_listeners.clear()
        self._untold.clear()
        self._count = 0

    # --- leaves -------------------------------------------------------------------------------

    def _keep(self, item: Change | tuple[int, SessionEvent]) -> None:
        self._untold[item] = None
        if not self._scheduled:
            self._scheduled = True
            self._later(self.tell)

    def _call(self, listener: Callable[[T], None], item: T) -> None:
        try:
            listener(item)
        except Exception as error:
            self._report(error)

    def _count_one(self) -> None:
        if self._count >= self._watches_max:
            raise TooManyRequests(f"{self._count} metadata watches are set, no more are taken")
        self._count += 1

    def _end(self, prefix: str, listener: ChangeListener) -> None:
        listeners = self._by_prefix.get(prefix)
        if listeners is None or listener not in listeners:
            return
        listeners.remove(listener)
        self._count -= 1
        if not listeners:
            del self._by_prefix[prefix]
            if self._on_last is not None:
                self._on_last(prefix)

    def _end_session(self, listener: SessionListener) -> None:
        if listener in self._session_listeners:
            self._session_listeners.remove(listener)
            self._count -= 1
