# SPDX-License-Identifier: Apache-2.0
"""The tree against a stupid twin: a dict of records and a walk over all of it for every question."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.config.metadata import MetadataSettings
from magnetar.errors import BadPath, BadVersion, HasChildren, MetadataError, NoRecord, SessionLost, TooManyRequests
from magnetar.metadata.store import MUST_NOT_EXIST, Change, ChangeKind
from magnetar.metadata.tree import NOBODY, Counted, Effect, Held, RecordTree, Removed, Written, changes_of

SETTINGS = MetadataSettings()


class Twin:
    """What the interface says, in the plainest words: value, version and owner by path."""

    def __init__(self) -> None:
        self.records: dict[str, tuple[bytes, int, int]] = {"/": (b"", 0, NOBODY)}
        self.counters: dict[str, int] = {}

    def children(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        return sorted(
            name
            for name in (other[len(prefix) :] for other in self.records if other.startswith(prefix))
            if name and "/" not in name
        )

    def put(
        self, path: str, value: bytes, session: int, expected: int | None, ephemeral: bool, sequential: bool
    ) -> tuple[str, int]:
        owner = session if ephemeral else NOBODY
        parts = path.split("/")
        parents = ["/".join(parts[:count]) or "/" for count in range(1, len(parts))]
        if sequential:
            number = self.counters.get(parents[-1], 0)
            while f"{path}{number:010d}" in self.records:
                number += 1
            path = f"{path}{number:010d}"
        if path in self.records:
            _, version, held_by = self.records[path]
            if expected is not None and expected != version:
                raise BadVersion
            if owner not in (NOBODY, held_by):
                raise BadVersion
            self.records[path] = (value, version + 1, held_by)
            return path, version + 1
        if expected not in (None, MUST_NOT_EXIST):
            raise BadVersion
        if any(self.records.get(parent, (b"", 0, NOBODY))[2] != NOBODY for parent in parents):
            raise BadPath
        if sequential:
            self.counters[parents[-1]] = number + 1
        for parent in parents:
            self.records.setdefault(parent, (b"", 0, NOBODY))
        self.records[path] = (value, 0, owner)
        return path, 0

    def delete(self, path: str, expected: int | None) -> None:
        if path == "/":
            raise BadPath
        if path not in self.records:
            raise NoRecord
        if expected is not None and expected != self.records[path][1]:
            raise BadVersion
        if self.children(path):
            raise HasChildren
        del self.records[path]
        self.counters.pop(path, None)

    def close_session(self, session: int) -> None:
        for path in [path for path, (_, _, owner) in self.records.items() if owner == session]:
            del self.records[path]
            self.counters.pop(path, None)


_paths = st.builds(
    lambda parts: "/" + "/".join(parts), st.lists(st.sampled_from(["a", "b", "n-"]), min_size=1, max_size=3)
)
_versions = st.sampled_from([None, None, MUST_NOT_EXIST, 0, 1, 2])
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), _paths, _versions, st.booleans(), st.booleans(), st.integers(0, 1)),
        st.tuples(st.just("delete"), _paths, _versions),
        st.tuples(st.just("expire"), st.integers(0, 1)),
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(_steps)
def test_the_tree_does_what_the_twin_does_and_its_effects_can_be_replayed(steps: list[tuple[object, ...]]) -> None:
    tree, twin, copy = RecordTree(SETTINGS), Twin(), RecordTree(SETTINGS)
    sessions = []
    for _ in range(2):
        session, effects = tree.open_session(1000)
        copy.apply(effects)
        sessions.append(session)
    for step in steps:
        mine, mine_error = _attempt(lambda step=step: _on_tree(tree, copy, sessions, step))
        theirs, theirs_error = _attempt(lambda step=step: _on_twin(twin, sessions, step))
        if step[0] == "expire":
            index = step[1]
            assert isinstance(index, int)
            sessions[index], effects = tree.open_session(1000)
            copy.apply(effects)
        assert (mine, mine_error) == (theirs, theirs_error)
        tree.check()
    for path, (value, version, owner) in twin.records.items():
        held = tree.get(path)
        assert held is not None
        assert (held.value, held.version, held.owner) == (value, version, owner)
        assert tree.children(path) == twin.children(path)
    assert len(tree) == len(twin.records)
    copy.check()
    assert _state(copy) == _state(tree)
    snapshot = RecordTree(SETTINGS)
    snapshot.apply(list(tree.contents()))
    snapshot.check()
    assert _state(snapshot) == _state(tree)


def _state(tree: RecordTree) -> tuple[dict[str, Held], dict[str, int], int]:
    counters = {effect.path: effect.number for effect in tree.contents() if isinstance(effect, Counted)}
    return (
        {effect.path: effect.held for effect in tree.contents() if isinstance(effect, Written)},
        counters,
        tree.size_bytes(),
    )


def _attempt(call: object) -> tuple[object, type[Exception] | None]:
    assert callable(call)
    try:
        return call(), None
    except MetadataError as error:
        return None, type(error)


def _on_tree(tree: RecordTree, copy: RecordTree, sessions: list[int], step: tuple[object, ...]) -> object:
    effects: list[Effect]
    match step:
        case ("put", str(path), expected, bool(ephemeral), bool(sequential), int(index)):
            assert expected is None or isinstance(expected, int)
            stored, effects = tree.put(
                path,
                b"v",
                session=sessions[index],
                now_ms=5,
                expected_version=None if sequential else expected,
                ephemeral=ephemeral,
                sequential=sequential,
            )
            copy.apply(effects)
            return tuple(stored)
        case ("delete", str(path), expected):
            assert expected is None or isinstance(expected, int)
            copy.apply(tree.delete(path, session=sessions[0], expected_version=expected))
        case ("expire", int(index)):
            copy.apply(tree.close_session(sessions[index]))
    return None


def _on_twin(twin: Twin, sessions: list[int], step: tuple[object, ...]) -> object:
    match step:
        case ("put", str(path), expected, bool(ephemeral), bool(sequential), int(index)):
            assert expected is None or isinstance(expected, int)
            return twin.put(path, b"v", sessions[index], None if sequential else expected, ephemeral, sequential)
        case ("delete", str(path), expected):
            assert expected is None or isinstance(expected, int)
            twin.delete(path, expected)
        case ("expire", int(index)):
            twin.close_session(sessions[index])
    return None


def test_a_session_that_ended_cannot_write() -> None:
    tree = RecordTree(SETTINGS)
    session, _ = tree.open_session(1000)
    tree.close_session(session)
    with pytest.raises(SessionLost):
        tree.put("/a", b"", session=session, now_ms=0)
    with pytest.raises(SessionLost):
        tree.delete("/a", session=session)
    assert tree.close_session(session) == []
    later, _ = tree.open_session(1000)
    assert later > session


def test_the_tree_and_its_sessions_are_bounded() -> None:
    tree = RecordTree(MetadataSettings(tree_bytes_max=2000, sessions_max=1))
    session, _ = tree.open_session(1000)
    with pytest.raises(TooManyRequests, match="sessions"):
        tree.open_session(1000)
    for number in range(3):
        tree.put(f"/r{number}", b"x" * 100, session=session, now_ms=0)
    with pytest.raises(TooManyRequests, match="2000"):
        tree.put("/r3", b"x" * 100, session=session, now_ms=0)
    assert tree.size_bytes() <= 2000
    tree.delete("/r0", session=session)
    tree.put("/r0", b"x", session=session, now_ms=0)


def test_the_root_can_be_written_but_not_deleted() -> None:
    tree = RecordTree(SETTINGS)
    session, _ = tree.open_session(1000)
    stored, effects = tree.put("/", b"v", session=session, now_ms=1)
    assert stored == ("/", 1)
    assert changes_of(effects) == [Change(ChangeKind.MODIFIED, "/")]
    with pytest.raises(BadPath):
        tree.delete("/", session=session)


def test_changes_name_the_record_and_its_parents_list() -> None:
    held = Held(b"", 0, NOBODY, 0, 0)
    effects: list[Effect] = [Written("/a/b", held), Written("/a/b", held._replace(version=1)), Removed("/a/b")]
    assert changes_of([Counted("/a", 1), *effects]) == [
        Change(ChangeKind.CREATED, "/a/b"),
        Change(ChangeKind.CHILDREN_CHANGED, "/a"),
        Change(ChangeKind.MODIFIED, "/a/b"),
        Change(ChangeKind.DELETED, "/a/b"),
        Change(ChangeKind.CHILDREN_CHANGED, "/a"),
    ]
