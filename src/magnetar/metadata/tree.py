# SPDX-License-Identifier: Apache-2.0
"""The tree of records: what a put or a delete does to it, and what it refuses.

Owns the records, their children, the counters of sequential names and the open sessions. Every change is decided
against the present state, applied, and handed back as absolute effects: applying the same effects in order to a copy
gives the same tree, which is what the embedded store's log and snapshots rely on. Does not know watches, disks or
time (`now_ms` is an argument).

Invariant: every record but the root has a parent that is not ephemeral; an ephemeral record's session is open.
Decides.
"""

from collections.abc import Iterator
from itertools import chain, starmap
from typing import NamedTuple

from magnetar.config.metadata import MetadataSettings
from magnetar.errors import BadPath, BadVersion, HasChildren, NoRecord, SessionLost, TooManyRequests, ValueTooLarge
from magnetar.metadata.paths import ROOT, check_path, name_of, parent_of
from magnetar.metadata.store import MUST_NOT_EXIST, Change, ChangeKind, Record, Stored

NOBODY = 0
SEQUENCE_MAX = 10**10 - 1
# What a record costs beside its path and value, for the bound on memory: measured, rounded up.
RECORD_OVERHEAD_BYTES = 400


class Held(NamedTuple):
    """A record as the tree holds it; owner is the session that an ephemeral record ends with, or NOBODY."""

    value: bytes
    version: int
    owner: int
    created_ms: int
    modified_ms: int

    def record(self) -> Record:
        return Record(self.value, self.version, self.owner != NOBODY, self.created_ms, self.modified_ms)


class Written(NamedTuple):
    path: str
    held: Held


class Removed(NamedTuple):
    path: str


class Counted(NamedTuple):
    """The number that the next sequential name below path gets."""

    path: str
    number: int


class SessionOpened(NamedTuple):
    session: int
    timeout_ms: int


class SessionClosed(NamedTuple):
    session: int


Effect = Written | Removed | Counted | SessionOpened | SessionClosed


class RecordTree:
    """All records of one store. Sessions are numbers that rise and are never used twice."""

    __slots__ = ("_bytes", "_children", "_counters", "_owned", "_records", "_settings", "next_session", "sessions")

    def __init__(self, settings: MetadataSettings) -> None:
        self._settings = settings
        self._records: dict[str, Held] = {ROOT: Held(b"", 0, NOBODY, 0, 0)}
        self._children: dict[str, dict[str, None]] = {}
        self._counters: dict[str, int] = {}
        self._owned: dict[int, dict[str, None]] = {}
        self._bytes = _cost(ROOT, self._records[ROOT])
        self.sessions: dict[int, int] = {}
        self.next_session = 1

    # --- questions ----------------------------------------------------------------------------

    def get(self, path: str) -> Held | None:
        check_path(path, self._settings.path_bytes_max)
        return self._records.get(path)

    def children(self, path: str) -> list[str]:
        check_path(path, self._settings.path_bytes_max)
        return sorted(self._children.get(path, ()))

    def owned(self, session: int) -> list[str]:
        """Paths of the session's ephemeral records, in the order of their making."""
        return list(self._owned.get(session, ()))

    def size_bytes(self) -> int:
        """What the records take in memory, estimated."""
        return self._bytes

    def contents(self) -> Iterator[Effect]:
        """Effects that make this tree from an empty one, as of this call: later changes do not show."""
        sessions = list(self.sessions.items())
        records = list(self._records.items())
        counters = list(self._counters.items())
        return chain(starmap(SessionOpened, sessions), starmap(Written, records), starmap(Counted, counters))

    def __len__(self) -> int:
        return len(self._records)

    # --- changes ------------------------------------------------------------------------------

    def open_session(self, timeout_ms: int) -> tuple[int, list[Effect]]:
        if len(self.sessions) >= self._settings.sessions_max:
            raise TooManyRequests(f"{len(self.sessions)} metadata sessions are open, no more are taken")
        session = self.next_session
        return session, self.apply([SessionOpened(session, timeout_ms)])

    def close_session(self, session: int) -> list[Effect]:
        """End a session and its ephemeral records; nothing happens when it is not open."""
        if session not in self.sessions:
            return []
        return self.apply([*(Removed(path) for path in self.owned(session)), SessionClosed(session)])

    def put(
        self,
        path: str,
        value: bytes,
        *,
        session: int,
        now_ms: int,
        expected_version: int | None = None,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> tuple[Stored, list[Effect]]:
        self._check_session(session)
        check_path(path, self._settings.path_bytes_max)
        self._check_size(path, value)
        effects: list[Effect] = []
        if sequential:
            assert expected_version in (None, MUST_NOT_EXIST), "a sequential record is always new"
            path, counted = self._numbered(path)
            effects.append(counted)
        held = self._records.get(path)
        owner = session if ephemeral else NOBODY
        if held is None:
            if expected_version not in (None, MUST_NOT_EXIST):
                raise BadVersion(f"{path} does not exist; version {expected_version} of it was expected")
            effects.extend(self._missing_parents(path, now_ms))
            written = Held(value, 0, owner, now_ms, now_ms)
        else:
            self._check_replaceable(path, held, expected_version, owner)
            written = Held(value, held.version + 1, held.owner, held.created_ms, now_ms)
        effects.append(Written(path, written))
        return Stored(path, written.version), self.apply(effects)

    def delete(self, path: str, *, session: int, expected_version: int | None = None) -> list[Effect]:
        self._check_session(session)
        check_path(path, self._settings.path_bytes_max)
        held = self._records.get(path)
        if path == ROOT:
            raise BadPath("the root of the metadata tree cannot be deleted")
        if held is None:
            raise NoRecord(f"there is no record at {path}")
        if expected_version is not None and expected_version != held.version:
            raise BadVersion(f"{path} has version {held.version}, not {expected_version}")
        if path in self._children:
            raise HasChildren(f"{path} has {len(self._children[path])} children")
        return self.apply([Removed(path)])

    def apply(self, effects: list[Effect]) -> list[Effect]:
        """Carry out effects that were decided here or read back; returns them."""
        for effect in effects:
            # Tests of the type instead of patterns: a start replays everything through here.
            if isinstance(effect, Written):
                self._write(effect.path, effect.held)
            elif isinstance(effect, Removed):
                self._remove(effect.path)
            elif isinstance(effect, Counted):
                self._counters[effect.path] = effect.number
            elif isinstance(effect, SessionOpened):
                self.sessions[effect.session] = effect.timeout_ms
                self.next_session = max(self.next_session, effect.session + 1)
            else:
                self.sessions.pop(effect.session, None)
        return effects

    def check(self) -> None:
        """Assert the invariants; for tests and simulation."""
        for path, held in self._records.items():
            assert held.owner == NOBODY or held.owner in self.sessions, f"{path} has lost its session {held.owner}"
            assert held.owner == NOBODY or path in self._owned[held.owner], f"{path} is not listed with its session"
            if path != ROOT:
                parent = parent_of(path)
                assert self._records[parent].owner == NOBODY, f"{path} lies below an ephemeral record"
                assert name_of(path) in self._children[parent], f"{path} is not listed below its parent"
        listed = sum(len(names) for names in self._children.values())
        assert listed == len(self._records) - 1, "children are listed that do not exist"
        assert self._bytes == sum(map(_cost, self._records, self._records.values()))

    # --- leaves -------------------------------------------------------------------------------

    def _check_session(self, session: int) -> None:
        if session not in self.sessions:
            raise SessionLost(f"metadata session {session} has ended")

    def _check_size(self, path: str, value: bytes) -> None:
        if len(value) > self._settings.value_bytes_max:
            raise ValueTooLarge(
                f"record {path} has {len(value)} bytes, more than the {self._settings.value_bytes_max} allowed"
            )
        if self._bytes + len(value) + len(path) > self._settings.tree_bytes_max:
            raise TooManyRequests(
                f"the metadata tree holds {self._bytes} bytes, the most it may is {self._settings.tree_bytes_max}: "
                f"delete topics or raise tree_bytes_max"
            )

    def _check_replaceable(self, path: str, held: Held, expected_version: int | None, owner: int) -> None:
        if expected_version == MUST_NOT_EXIST:
            raise BadVersion(f"{path} exists already, with version {held.version}")
        if expected_version is not None and expected_version != held.version:
            raise BadVersion(f"{path} has version {held.version}, not {expected_version}")
        if owner not in (NOBODY, held.owner):
            whose = "is persistent" if held.owner == NOBODY else "belongs to another session"
            raise BadVersion(f"{path} exists and {whose}: it cannot become an ephemeral record of this session")

    def _numbered(self, path: str) -> tuple[str, Counted]:
        parent = parent_of(path)
        number = self._counters.get(parent, 0)
        while f"{path}{number:010d}" in self._records:
            number += 1
        assert number <= SEQUENCE_MAX, f"sequential names below {parent} are used up"
        return f"{path}{number:010d}", Counted(parent, number + 1)

    def _missing_parents(self, path: str, now_ms: int) -> Iterator[Effect]:
        missing = []
        parent = parent_of(path)
        while (held := self._records.get(parent)) is None:
            missing.append(parent)
            parent = parent_of(parent)
        if held.owner != NOBODY:
            raise BadPath(f"{path} cannot exist: {parent} is ephemeral and takes no children")
        empty = Held(b"", 0, NOBODY, now_ms, now_ms)
        return (Written(absent, empty) for absent in reversed(missing))

    def _write(self, path: str, held: Held) -> None:
        old = self._records.get(path)
        if old is None:
            parent, _, name = path.rpartition("/")
            self._children.setdefault(parent or ROOT, {})[name] = None
        else:
            self._bytes -= _cost(path, old)
        self._bytes += _cost(path, held)
        self._records[path] = held
        if held.owner != NOBODY:
            self._owned.setdefault(held.owner, {})[path] = None

    def _remove(self, path: str) -> None:
        held = self._records.pop(path)
        self._bytes -= _cost(path, held)
        self._counters.pop(path, None)
        parent = parent_of(path)
        siblings = self._children[parent]
        del siblings[name_of(path)]
        if not siblings:
            del self._children[parent]
        if held.owner != NOBODY:
            owned = self._owned[held.owner]
            del owned[path]
            if not owned:
                del self._owned[held.owner]


def _cost(path: str, held: Held) -> int:
    return RECORD_OVERHEAD_BYTES + len(path) + len(held.value)


def changes_of(effects: list[Effect]) -> list[Change]:
    """What watchers are told about effects, in order."""
    changes: list[Change] = []
    for effect in effects:
        match effect:
            case Written(path, held):
                if held.version > 0:
                    changes.append(Change(ChangeKind.MODIFIED, path))
                    continue
                changes.append(Change(ChangeKind.CREATED, path))
            case Removed(path):
                changes.append(Change(ChangeKind.DELETED, path))
            case _:
                continue
        if path != ROOT:
            changes.append(Change(ChangeKind.CHILDREN_CHANGED, parent_of(path)))
    return changes
