# SPDX-License-Identifier: Apache-2.0
"""Quorum arithmetic and the ack window, against brute force."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.ledger.quorum import AckWindow, Quorum


def quorums(size_max: int) -> list[Quorum]:
    return [
        Quorum(size, write, ack)
        for size in range(1, size_max + 1)
        for write in range(1, size + 1)
        for ack in range(1, write + 1)
    ]


def subsets(items: range) -> list[frozenset[int]]:
    return [frozenset(chosen) for count in range(len(items) + 1) for chosen in combinations(items, count)]


@pytest.mark.feature("F-BKC-03", "D-09")
def test_write_sets_stripe_over_the_ensemble() -> None:
    quorum = Quorum(5, 3, 2)
    assert [quorum.write_set(entry_id) for entry_id in range(6)] == [
        (0, 1, 2),
        (1, 2, 3),
        (2, 3, 4),
        (3, 4, 0),
        (4, 0, 1),
        (0, 1, 2),
    ]


@pytest.mark.parametrize("quorum", quorums(5))
def test_holding_is_being_in_the_write_set(quorum: Quorum) -> None:
    for entry_id in range(12):
        holders = {member for member in range(quorum.ensemble_size) if quorum.holds(member, entry_id)}
        assert holders == set(quorum.write_set(entry_id))


@pytest.mark.feature("F-REC-04", "D-08")
@pytest.mark.parametrize("quorum", quorums(5))
def test_coverage_leaves_no_ack_quorum_without_a_member_that_answered(quorum: Quorum) -> None:
    ack_quorums = {
        frozenset(chosen)
        for entry_id in range(quorum.ensemble_size)
        for chosen in combinations(quorum.write_set(entry_id), quorum.ack_quorum)
    }
    for answered in subsets(range(quorum.ensemble_size)):
        assert quorum.is_covered(answered) == all(chosen & answered for chosen in ack_quorums)
        # Judged by write sets, fewer may be enough when the ensemble is wider; so many always are.
        assert quorum.is_covered(answered) or len(answered) < quorum.ensemble_size - quorum.ack_quorum + 1


@pytest.mark.feature("F-REC-08")
@pytest.mark.parametrize("quorum", quorums(6))
def test_enough_absences_exclude_every_ack_quorum(quorum: Quorum) -> None:
    write_set = quorum.write_set(0)
    for absent in combinations(write_set, quorum.absences_needed):
        assert len(set(write_set) - set(absent)) < quorum.ack_quorum
    for absent in combinations(write_set, quorum.absences_needed - 1):
        assert len(set(write_set) - set(absent)) >= quorum.ack_quorum


@pytest.mark.parametrize("quorum", quorums(5))
def test_failures_are_borne_while_every_write_set_has_an_ack_quorum(quorum: Quorum) -> None:
    for failed in subsets(range(quorum.ensemble_size)):
        expected = all(
            len(set(quorum.write_set(entry_id)) - failed) >= quorum.ack_quorum
            for entry_id in range(quorum.ensemble_size)
        )
        assert quorum.may_confirm_without(failed) == expected


class PlainWindow:
    """The stupid twin: for every entry the set of members that hold it; nothing is ever forgotten."""

    def __init__(self, quorum: Quorum) -> None:
        self.quorum = quorum
        self.acks: list[set[int]] = []
        self.confirmed = -1
        self.held = False

    def advance(self) -> None:
        while (
            not self.held
            and self.confirmed + 1 < len(self.acks)
            and len(self.acks[self.confirmed + 1]) >= self.quorum.ack_quorum
        ):
            self.confirmed += 1

    def ack(self, member: int, first: int, last: int) -> None:
        for entry_id in range(first, min(last, len(self.acks) - 1) + 1):
            if entry_id > self.confirmed and member in self.quorum.write_set(entry_id):
                self.acks[entry_id].add(member)
        self.advance()

    def replace(self, members: list[int]) -> None:
        for acks in self.acks[self.confirmed + 1 :]:
            acks.difference_update(members)


STEP = st.one_of(
    st.tuples(st.just("push"), st.integers(1, 4)),
    st.tuples(st.just("ack"), st.integers(0, 4), st.integers(0, 15), st.integers(0, 4)),
    st.tuples(st.just("change"), st.lists(st.integers(0, 4), min_size=1, max_size=3, unique=True)),
    st.tuples(st.just("hold")),
    st.tuples(st.just("release")),
)


@pytest.mark.feature("F-BKC-06", "F-BKC-13")
@settings(max_examples=150, deadline=None)
@given(quorum=st.sampled_from(quorums(5)), steps=st.lists(STEP, max_size=60))
def test_the_window_confirms_what_brute_force_confirms(quorum: Quorum, steps: list[tuple[object, ...]]) -> None:
    window, twin = AckWindow(quorum), PlainWindow(quorum)
    for step in steps:
        before = window.confirmed
        moved = False
        match step:
            case ("push", int(count)):
                window.pushed += count
                twin.acks.extend(set() for _ in range(count))
            case ("ack", int(member), int(first), int(more)):
                moved = window.on_acked(member % quorum.ensemble_size, first, first + more)
                twin.ack(member % quorum.ensemble_size, first, first + more)
            case ("change", list(chosen)):
                members = [member for member in chosen if member < quorum.ensemble_size]
                window.hold()
                window.on_replaced(members)
                moved = window.release()
                twin.replace(members)
                twin.held = False
                twin.advance()
            case ("hold",):
                window.hold()
                twin.held = True
            case ("release",):
                moved = window.release()
                twin.held = False
                twin.advance()
        assert window.confirmed == twin.confirmed
        assert moved == (window.confirmed != before)
        window.check()
    for member in range(quorum.ensemble_size):
        assert window.entries_for(member) == [
            entry_id
            for entry_id in range(twin.confirmed + 1, len(twin.acks))
            if member in quorum.write_set(entry_id) and member not in twin.acks[entry_id]
        ]


@pytest.mark.feature("F-BKC-07")
def test_an_entry_confirmed_early_waits_for_its_predecessor() -> None:
    window = AckWindow(Quorum(3, 3, 2))
    window.pushed = 2
    assert not window.on_acked(0, 1, 2)
    assert not window.on_acked(1, 1, 2)
    assert window.confirmed == -1
    assert not window.on_acked(0, 0, 0)
    assert window.on_acked(2, 0, 0)
    assert window.confirmed == 2


def test_what_was_never_pushed_is_not_confirmed() -> None:
    window = AckWindow(Quorum(1, 1, 1))
    window.pushed = 3
    assert window.on_acked(0, 0, 99)
    assert window.confirmed == 3


def test_members_that_keep_entries_waiting_are_named() -> None:
    window = AckWindow(Quorum(5, 3, 2))
    window.pushed = 1
    window.on_acked(1, 0, 1)
    assert window.silent_members(0) == [0, 2]
    assert window.silent_members(1) == [0, 2, 3]
    window.on_acked(2, 1, 1)
    assert window.silent_members(1) == [0, 2]
