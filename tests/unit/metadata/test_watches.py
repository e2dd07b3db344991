# SPDX-License-Identifier: Apache-2.0
"""Watches: who is told, in which order, and what is merged."""

from collections.abc import Callable

import pytest

from magnetar.errors import TooManyRequests
from magnetar.metadata.store import Change, ChangeKind, SessionEvent
from magnetar.metadata.watches import Watches

CREATED, DELETED = Change(ChangeKind.CREATED, "/a/b"), Change(ChangeKind.DELETED, "/a/b")


class Desk:
    """Plays the loop: keeps what is to run later until the test says so."""

    def __init__(self, watches_max: int = 10) -> None:
        self.later: list[Callable[[], None]] = []
        self.errors: list[Exception] = []
        self.asked: list[str] = []
        self.watches = Watches(
            self.later.append,
            self.errors.append,
            watches_max=watches_max,
            path_bytes_max=100,
            on_first=lambda prefix: self.asked.append(f"+{prefix}"),
            on_last=lambda prefix: self.asked.append(f"-{prefix}"),
        )

    def run(self) -> int:
        calls, self.later[:] = list(self.later), []
        for call in calls:
            call()
        return len(calls)


def test_nobody_is_told_inside_the_call_and_a_batch_wakes_once() -> None:
    desk, told = Desk(), list[Change]()
    desk.watches.add("/a", told.append)
    desk.watches.on_changes([CREATED])
    desk.watches.on_changes([Change(ChangeKind.MODIFIED, "/a/b"), Change(ChangeKind.CREATED, "/other")])
    assert told == []
    assert desk.run() == 1
    assert told == [CREATED, Change(ChangeKind.MODIFIED, "/a/b")]
    assert desk.run() == 0


def test_merged_changes_end_with_what_happened_last() -> None:
    desk, told = Desk(), list[Change]()
    desk.watches.add("/", told.append)
    desk.watches.on_changes([CREATED, DELETED, CREATED])
    desk.run()
    assert told == [DELETED, CREATED]


def test_session_events_keep_their_place_and_are_not_merged() -> None:
    desk, told = Desk(), list[object]()
    desk.watches.add("/", told.append)
    desk.watches.add_session(told.append)
    desk.watches.on_session(SessionEvent.DISCONNECTED)
    desk.watches.on_session(SessionEvent.RECONNECTED)
    desk.watches.on_changes([CREATED])
    desk.watches.on_session(SessionEvent.DISCONNECTED)
    desk.run()
    assert told == [SessionEvent.DISCONNECTED, SessionEvent.RECONNECTED, CREATED, SessionEvent.DISCONNECTED]


def test_a_listener_ended_by_another_is_not_told() -> None:
    desk, told = Desk(), list[Change]()
    ends: list[Callable[[], None]] = []
    desk.watches.add("/a", lambda change: ends[0]())
    ends.append(desk.watches.add("/a", told.append))
    desk.watches.on_changes([CREATED])
    desk.run()
    assert told == []


def test_what_a_listener_causes_is_told_in_the_next_turn() -> None:
    desk, told = Desk(), list[Change]()

    def react(change: Change) -> None:
        told.append(change)
        if change == CREATED:
            desk.watches.on_changes([DELETED])

    desk.watches.add("/a", react)
    desk.watches.on_changes([CREATED])
    assert desk.run() == 1
    assert told == [CREATED]
    assert desk.run() == 1
    assert told == [CREATED, DELETED]


def test_the_number_of_watches_is_bounded_and_ended_ones_do_not_count() -> None:
    desk = Desk(watches_max=2)
    end = desk.watches.add("/a", lambda change: None)
    desk.watches.add_session(lambda event: None)
    with pytest.raises(TooManyRequests, match="2 metadata watches"):
        desk.watches.add("/b", lambda change: None)
    end()
    end()
    desk.watches.add("/b", lambda change: None)
    assert desk.watches.prefixes() == ["/b"]


def test_after_clear_nobody_is_told() -> None:
    desk, told = Desk(), list[Change]()
    desk.watches.add("/a", told.append)
    desk.watches.on_changes([CREATED])
    desk.watches.clear()
    desk.run()
    assert told == []


def test_a_prefix_is_asked_for_with_its_first_listener_and_let_go_with_its_last() -> None:
    desk, told = Desk(), list[Change]()
    end_first, end_second = (desk.watches.add("/a", told.append) for _ in range(2))
    end_first()
    end_first()
    assert desk.asked == ["+/a"]
    end_second()
    assert desk.asked == ["+/a", "-/a"]
    end_third = desk.watches.add("/a", told.append)
    desk.watches.clear()
    end_third()
    assert desk.asked == ["+/a", "-/a", "+/a"]


def test_after_a_gap_every_prefix_is_told_as_changed() -> None:
    desk, told = Desk(), list[Change]()
    desk.watches.add("/a", told.append)
    desk.watches.add("/b", told.append)
    desk.watches.on_gap()
    desk.run()
    assert {(change.kind, change.path) for change in told} == {
        (kind, prefix) for kind in (ChangeKind.MODIFIED, ChangeKind.CHILDREN_CHANGED) for prefix in ("/a", "/b")
    }
