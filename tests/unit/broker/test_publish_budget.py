# SPDX-License-Identifier: Apache-2.0
"""The publish budget stops a connection at its mark or at the process's, and lets it go on."""

from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.publish_budget import SHARE_BYTES_MIN, ConnectionBudget, PublishBudget


class Door:
    """A connection as the budget sees it: reading or not."""

    def __init__(self, process: PublishBudget, bytes_max: int) -> None:
        self.budget: ConnectionBudget = process.connection(bytes_max, self.on_resume)
        self.resumed = 0

    def on_resume(self) -> None:
        self.resumed += 1


def test_a_connection_stops_at_its_mark_and_goes_on_at_half() -> None:
    door = Door(PublishBudget(1_000), 100)
    assert not door.budget.take(99)
    assert door.budget.take(1)
    assert not door.budget.take(50), "it is told once"
    door.budget.give_back(99)
    assert door.resumed == 0, "51 bytes are still on their way"
    door.budget.give_back(1)
    assert door.resumed == 1
    assert not door.budget.paused


def test_the_process_mark_stops_a_connection_that_is_below_its_own() -> None:
    process = PublishBudget(100)
    busy, quiet = Door(process, 90), Door(process, 90)
    assert not busy.budget.take(80)
    assert quiet.budget.take(20)
    busy.budget.give_back(10)
    assert quiet.resumed == 1, "the process is below its mark again"


def test_a_closed_connection_is_not_resumed_and_its_bytes_still_count() -> None:
    process = PublishBudget(100)
    door = Door(process, 50)
    assert door.budget.take(60)
    door.budget.close()
    assert process.bytes_pending == 60
    door.budget.give_back(60)
    assert (process.bytes_pending, door.resumed) == (0, 0)


UNIT = SHARE_BYTES_MIN


def test_above_the_pace_each_connection_stops_at_its_fair_share() -> None:
    process = PublishBudget(100 * UNIT, 8 * UNIT)
    many, few = Door(process, 50 * UNIT), Door(process, 50 * UNIT)
    assert not few.budget.take(UNIT)
    assert not many.budget.take(6 * UNIT), "together they are below the pace"
    assert many.budget.take(UNIT), "and now above, with more than its half"
    assert not few.budget.take(2 * UNIT), "the other has less than its half"
    many.budget.give_back(4 * UNIT)
    assert many.resumed == 1, "together they are below the pace again"


def test_who_is_stuck_holds_nobody_else_back() -> None:
    process = PublishBudget(100 * UNIT, 8 * UNIT)
    stuck, lively = Door(process, 20 * UNIT), Door(process, 20 * UNIT)
    stuck.budget.take(20 * UNIT)
    for _ in range(50):
        assert not lively.budget.take(3 * UNIT)
        assert lively.budget.take(UNIT), "half of the pace is its share"
        lively.budget.give_back(2 * UNIT)
        assert not lively.budget.paused, "at half of its share it goes on, whatever the other holds"
        lively.budget.give_back(2 * UNIT)
    assert lively.resumed == 50
    assert stuck.budget.paused


def test_whose_share_grows_goes_on_though_nothing_of_its_own_is_stored() -> None:
    process = PublishBudget(1_000 * UNIT, 32 * UNIT)
    stuck, waiting = Door(process, 500 * UNIT), Door(process, 500 * UNIT)
    others = [Door(process, 500 * UNIT) for _ in range(30)]
    stuck.budget.take(64 * UNIT)
    for other in others:
        other.budget.take(UNIT // 2)
    assert waiting.budget.take(UNIT), "a thirty-second of the pace is its share"
    for other in others:
        other.budget.give_back(UNIT // 2)
    assert process.bytes_pending > process.pace_bytes, "the one that is stuck holds the process above the pace"
    assert waiting.resumed == 1, "of two it may have a half of the pace"
    assert not stuck.resumed


def test_a_thousand_connections_may_still_read_something_each() -> None:
    process = PublishBudget(10_000 * UNIT, 8 * UNIT)
    doors = [Door(process, 100 * UNIT) for _ in range(1_000)]
    assert not any(door.budget.take(UNIT - 1) for door in doors)
    assert all(door.budget.take(1) for door in doors)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 60), st.booleans()), max_size=80))
def test_counts_agree_and_no_connection_is_left_paused_when_all_is_stored(
    steps: list[tuple[int, int, bool]],
) -> None:
    process = PublishBudget(100 * UNIT // 10, 60 * UNIT // 10)
    doors = [Door(process, 70 * UNIT // 10) for _ in range(3)]
    taken: list[list[int]] = [[], [], []]
    for index, tenths, take in steps:
        size = tenths * UNIT // 10
        if take:
            doors[index].budget.take(size)
            taken[index].append(size)
        elif taken[index]:
            doors[index].budget.give_back(taken[index].pop())
        assert process.bytes_pending == sum(door.budget.bytes_pending for door in doors)
        assert [door.budget.bytes_pending for door in doors] == [sum(sizes) for sizes in taken]
        assert process.active == sum(map(bool, taken))
        for door in doors:
            # Not asked again for less than a quarter more.
            mark = min(door.budget.bytes_max, process.share_bytes) * 2 // 5
            assert not (door.budget.paused and process.bytes_pending < process.bytes_max) or (
                door.budget.bytes_pending > mark
            ), "nobody waits who may go on"
    for index, sizes in enumerate(taken):
        for size in sizes:
            doors[index].budget.give_back(size)
    assert process.bytes_pending == 0
    assert not any(door.budget.paused for door in doors)
