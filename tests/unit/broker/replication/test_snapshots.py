# SPDX-License-Identifier: Apache-2.0
"""Snapshots of places that belong together: when one is complete, which are kept, which one a subscription passed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.replication.snapshots import KeptSnapshots, Snapshot, SnapshotRound
from magnetar.ids import Position


def _place(entry: int) -> Position:
    return Position(3, entry)


@pytest.mark.feature("F-RSUB-02")
def test_two_clusters_need_one_answer() -> None:
    taken = SnapshotRound("s", ["west"], 0).on_response("west", _place(7), _place(2))
    assert taken == Snapshot(_place(2), {"west": _place(7)})


@pytest.mark.feature("F-RSUB-02", "F-RSUB-06")
def test_more_clusters_are_asked_twice_and_the_first_places_count() -> None:
    taking = SnapshotRound("s", ["west", "north"], 0)
    assert taking.on_response("west", _place(7), _place(1)) is False
    assert taking.on_response("south", _place(1), _place(2)) is False, "nobody asked that one"
    assert taking.on_response("north", _place(8), _place(3)) is True
    assert taking.on_response("north", _place(80), _place(5)) is False
    assert taking.on_response("west", _place(70), _place(6)) == Snapshot(
        _place(6), {"west": _place(7), "north": _place(8)}
    )


@pytest.mark.feature("F-RSUB-03")
def test_a_subscription_passes_the_latest_that_it_has_consumed() -> None:
    kept = KeptSnapshots(10)
    for entry in (2, 5, 9):
        kept.add(Snapshot(_place(entry), {"west": _place(entry * 10)}))
    assert kept.passed(_place(1)) is None
    assert kept.passed(_place(5)) == Snapshot(_place(5), {"west": _place(50)})
    assert kept.passed(_place(8)) == Snapshot(_place(5), {"west": _place(50)})
    kept.forget_before(_place(6))
    assert (len(kept), kept.passed(_place(5))) == (2, Snapshot(_place(5), {"west": _place(50)}))


@pytest.mark.feature("F-RSUB-05")
@given(st.integers(2, 40), st.integers(1, 300))
def test_a_bounded_number_is_kept_from_the_first_to_the_last(count_max: int, added: int) -> None:
    kept = KeptSnapshots(count_max)
    for entry in range(added):
        kept.add(Snapshot(_place(entry), {}))
        assert len(kept) <= count_max
    assert kept.passed(_place(0)) == Snapshot(_place(0), {})
    assert kept.passed(_place(added)) == Snapshot(_place(added - 1), {})
