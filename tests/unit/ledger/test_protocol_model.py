# SPDX-License-Identifier: Apache-2.0
"""Bounded model check: every order of messages between one writer, recoverers and bookies, on the deciding core.

The state below is what the protocol is about: who holds which entry, who is fenced, what each recoverer has heard, what
is on record. Steps are taken in every possible order; a lost message is a step never taken. Two reductions only make it
more dangerous: the writer never learns that it is fenced (it goes on for ever), and a recoverer's request and its
answer are one step (a bookie is fenced no earlier than that counts). All verdicts come from the production classes.

What must hold in every state: once the ledger is closed at `last`, the writer can have confirmed nothing after it, and
every entry up to it lies on an ack quorum.
"""

from collections import deque
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import pytest

from magnetar.errors import NoSuchEntry
from magnetar.ledger.quorum import AckWindow, Quorum
from magnetar.ledger.recovery import CoverageRound, EntryRound, Verdict

ENTRIES = 2
ABSENT = NoSuchEntry("not here")
# Sets of members, and of (member, entry), as bit masks: the search visits some hundred thousand states.
Members = int
Pairs = int


def pair(member: int, entry_id: int) -> Pairs:
    return 1 << member * ENTRIES + entry_id


def members_in(mask: Members) -> list[int]:
    return [member for member in range(mask.bit_length()) if mask >> member & 1]


class Recovery(NamedTuple):
    """One recoverer: what it has heard so far. Phases: idle, fencing, reading, draining, done."""

    phase: str = "idle"
    answered: Members = 0
    confirmed: int = -1
    found: int = -1
    start: int = -1
    absent: Members = 0
    written_back: Pairs = 0


class State(NamedTuple):
    pushed: int
    # The last add confirmed that each pushed entry carries.
    carried: tuple[int, ...]
    # What is stored by the writer's own adds, and by anyone's.
    added: Pairs
    held: Pairs
    fenced: Members
    recoveries: tuple[Recovery, ...]
    closed_at: int | None


class Rules(NamedTuple):
    """The protocol, and the places where a bug can be planted."""

    quorum: Quorum
    reads_fence: bool = True
    writes_back: bool = True
    coverage: Callable[[CoverageRound], bool] = lambda fencing: fencing.verdict is Verdict.PROVEN
    absence: Callable[[EntryRound, int], bool] = lambda reading, absent: reading.verdict is Verdict.ABSENT


@cache
def confirmed(quorum: Quorum, acks: Pairs, pushed: int, start: int = -1) -> int:
    window = AckWindow(quorum, start)
    window.pushed = max(pushed - 1, start)
    for member in range(quorum.ensemble_size):
        for entry_id in range(ENTRIES):
            if acks & pair(member, entry_id):
                window.on_acked(member, entry_id, entry_id)
    return window.confirmed


def steps(rules: Rules, state: State) -> Iterator[State]:
    quorum = rules.quorum
    if state.pushed < ENTRIES:
        # The writer may or may not have heard the answers that confirm its first entries.
        for carried in range(-1, confirmed(quorum, state.added, state.pushed) + 1):
            if not state.carried or carried >= state.carried[-1]:
                yield state._replace(pushed=state.pushed + 1, carried=(*state.carried, carried))
    for entry_id in range(state.pushed):
        for member in quorum.write_set(entry_id):
            bit = pair(member, entry_id)
            if not state.added & bit and not state.fenced >> member & 1:
                yield state._replace(added=state.added | bit, held=state.held | bit)
    for i, recovery in enumerate(state.recoveries):
        for changed, fenced, held in recovery_steps(rules, state, recovery):
            recoveries = (*state.recoveries[:i], changed, *state.recoveries[i + 1 :])
            yield state._replace(recoveries=tuple(sorted(recoveries)), fenced=fenced, held=held)
        if recovery.phase == "draining" and is_safe(rules, recovery):
            done = (*state.recoveries[:i], Recovery(phase="done"), *state.recoveries[i + 1 :])
            closed_at = recovery.found if state.closed_at is None else state.closed_at
            yield state._replace(recoveries=tuple(sorted(done)), closed_at=closed_at)


def recovery_steps(rules: Rules, state: State, recovery: Recovery) -> Iterator[tuple[Recovery, Members, Pairs]]:
    """What a recoverer may do next, as (the recoverer, who is fenced, who holds what) afterwards."""
    quorum = rules.quorum
    if recovery.phase == "idle" and state.closed_at is None:
        yield recovery._replace(phase="fencing"), state.fenced, state.held
    elif recovery.phase == "fencing":
        for member in range(quorum.ensemble_size):
            if not recovery.answered >> member & 1:
                known = [entry_id for entry_id in range(state.pushed) if state.held & pair(member, entry_id)]
                last = state.carried[known[-1]] if known else -1
                yield heard(rules, recovery, member, last), state.fenced | 1 << member, state.held
    elif recovery.phase == "reading":
        wanted = recovery.found + 1
        for member in quorum.write_set(wanted):
            if not recovery.absent >> member & 1:
                has = wanted < ENTRIES and bool(state.held & pair(member, wanted))
                fenced = state.fenced | 1 << member if rules.reads_fence else state.fenced
                yield looked(rules, recovery, member, has), fenced, state.held
    if recovery.phase in ("reading", "draining") and rules.writes_back:
        for entry_id in range(recovery.start + 1, recovery.found + 1):
            for member in quorum.write_set(entry_id):
                bit = pair(member, entry_id)
                if not recovery.written_back & bit:
                    changed = recovery._replace(written_back=recovery.written_back | bit)
                    yield changed, state.fenced, state.held | bit


def is_safe(rules: Rules, recovery: Recovery) -> bool:
    """Whether all that was found has been written back to an ack quorum."""
    written = confirmed(rules.quorum, recovery.written_back, recovery.found + 1, recovery.start)
    return written == recovery.found or not rules.writes_back


@cache
def heard(rules: Rules, recovery: Recovery, member: int, last: int) -> Recovery:
    """A bookie is fenced and says how far it knows the ledger to be confirmed."""
    answered = recovery.answered | 1 << member
    fencing = CoverageRound(rules.quorum, 0)
    for one in members_in(answered):
        fencing.on_answered(one, max(recovery.confirmed, last))
    if rules.coverage(fencing):
        return Recovery(phase="reading", found=fencing.start, start=fencing.start)
    return recovery._replace(answered=answered, confirmed=max(recovery.confirmed, last))


@cache
def looked(rules: Rules, recovery: Recovery, member: int, has: bool) -> Recovery:
    """A bookie answers a recovery read of the entry after the last one found."""
    reading = EntryRound(rules.quorum)
    for one in members_in(recovery.absent):
        reading.on_error(one, ABSENT)
    if has:
        reading.on_found(member)
        assert reading.verdict is Verdict.PROVEN
        return recovery._replace(found=recovery.found + 1, absent=0)
    reading.on_error(member, ABSENT)
    absent = recovery.absent | 1 << member
    if rules.absence(reading, absent.bit_count()):
        return recovery._replace(phase="draining", absent=0)
    return recovery._replace(absent=absent)


def violation(rules: Rules, state: State) -> str | None:
    if state.closed_at is None:
        return None
    safe = confirmed(rules.quorum, state.added, state.pushed)
    if safe > state.closed_at:
        return f"closed at {state.closed_at}, but the writer may confirm {safe}"
    for entry_id in range(state.closed_at + 1):
        holders = sum(1 for member in range(rules.quorum.ensemble_size) if state.held & pair(member, entry_id))
        if holders < rules.quorum.ack_quorum:
            return f"closed at {state.closed_at}, but entry {entry_id} lies on {holders} bookies"
    return None


def in_member_order(state: State, size: int) -> State:
    """Where every member holds every entry, members are alike too: one numbering of them stands for all."""
    entries = (1 << ENTRIES) - 1
    columns = sorted(
        (
            state.held >> member * ENTRIES & entries,
            state.added >> member * ENTRIES & entries,
            state.fenced >> member & 1,
            *(
                (r.written_back >> member * ENTRIES & entries) << 2
                | (r.answered >> member & 1) << 1
                | r.absent >> member & 1
                for r in state.recoveries
            ),
        )
        for member in range(size)
    )
    held = added = fenced = 0
    for member, column in enumerate(columns):
        held |= column[0] << member * ENTRIES
        added |= column[1] << member * ENTRIES
        fenced |= column[2] << member
    recoveries = []
    for i, recovery in enumerate(state.recoveries):
        answered = absent = written_back = 0
        for member, column in enumerate(columns):
            absent |= (column[3 + i] & 1) << member
            answered |= (column[3 + i] >> 1 & 1) << member
            written_back |= (column[3 + i] >> 2) << member * ENTRIES
        recoveries.append(recovery._replace(answered=answered, absent=absent, written_back=written_back))
    return state._replace(held=held, added=added, fenced=fenced, recoveries=tuple(recoveries))


def explore(rules: Rules, recoverers: int) -> tuple[int, str | None]:
    """Every state that can be reached; how many, and the first violation. Recoverers are alike, so sorted."""
    start = State(0, (), 0, 0, 0, (Recovery(),) * recoverers, None)
    seen = {start}
    todo = deque(seen)
    while todo:
        state = todo.popleft()
        wrong = violation(rules, state)
        if wrong is not None:
            return len(seen), wrong
        for following in steps(rules, state):
            if rules.quorum.ensemble_size == rules.quorum.write_quorum:
                following = in_member_order(following, rules.quorum.ensemble_size)
            if following not in seen:
                seen.add(following)
                todo.append(following)
    return len(seen), None


QUORUMS = [(size, write, ack) for size in range(1, 4) for write in range(1, size + 1) for ack in range(1, write + 1)]


@pytest.mark.feature("F-BKC-30")
@pytest.mark.parametrize("quorum", QUORUMS)
def test_one_recoverer_against_a_writer_that_never_stops(quorum: tuple[int, int, int]) -> None:
    states, wrong = explore(Rules(Quorum(*quorum)), 1)
    assert wrong is None
    assert states > 20


@pytest.mark.parametrize("quorum", [(1, 1, 1), (2, 2, 1), (2, 2, 2)])
def test_two_recoverers_agree(quorum: tuple[int, int, int]) -> None:
    states, wrong = explore(Rules(Quorum(*quorum)), 2)
    assert wrong is None
    assert states > 20


PLANTED = {
    "recovery reads do not fence": Rules(Quorum(3, 3, 2), reads_fence=False),
    "the tail is not written back": Rules(Quorum(3, 3, 2), writes_back=False),
    "absence is one negative short": Rules(Quorum(3, 3, 2), absence=lambda reading, absent: absent >= 1),
    "one fenced bookie is taken for enough": Rules(Quorum(3, 3, 1), coverage=lambda fencing: True, reads_fence=False),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str) -> None:
    _, wrong = explore(PLANTED[bug], 1)
    assert wrong is not None


def test_reads_that_fence_make_up_for_a_short_coverage() -> None:
    """Why recovery reads must fence: they alone keep the promise, whoever answered the first round."""
    _, wrong = explore(Rules(Quorum(2, 2, 2), coverage=lambda fencing: True), 1)
    assert wrong is None
