# SPDX-License-Identifier: Apache-2.0
"""Which logs may go: counted against a stupid twin."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.bookie.garbage import Garbage

logs = st.dictionaries(
    st.integers(0, 9), st.dictionaries(st.integers(0, 5), st.integers(1, 100), min_size=1), max_size=8
)


@given(logs, st.sets(st.integers(0, 5)), st.floats(0.01, 1.0))
def test_shares_removable_and_compactable_logs(
    bytes_by_log: dict[int, dict[int, int]], gone: set[int], share_max: float
) -> None:
    garbage = Garbage()
    for log_id, sizes in bytes_by_log.items():
        garbage.on_log(log_id, sizes, is_alive=range(6))
    for ledger_id in sorted(gone):
        garbage.on_ledger_gone(ledger_id)
    share = {
        log_id: sum(size for owner, size in sizes.items() if owner not in gone) / sum(sizes.values())
        for log_id, sizes in bytes_by_log.items()
    }
    assert garbage.removable() == sorted(log_id for log_id in share if share[log_id] == 0)
    expected = [log_id for log_id in share if 0 < share[log_id] < share_max]
    assert garbage.compactable(share_max) == sorted(expected, key=lambda log_id: (share[log_id], log_id))
    for log_id in share:
        assert garbage.living_share(log_id) == pytest.approx(share[log_id])


@pytest.mark.feature("F-GC-06")
def test_the_known_example_ten_percent_goes_ninety_stays() -> None:
    garbage = Garbage()
    garbage.on_log(1, {1: 30, 2: 30, 3: 10, 4: 30}, is_alive=[3])
    garbage.on_log(2, {1: 10, 3: 90}, is_alive=[3])
    assert garbage.compactable(0.2) == [1]
    assert garbage.compactable(0.8) == [1]


def test_a_damaged_log_is_neither_removed_nor_tried_again() -> None:
    garbage = Garbage()
    garbage.on_log(1, {1: 10, 2: 90}, is_alive=[1])
    garbage.on_log_damaged(1)
    assert garbage.compactable(1.0) == []
    garbage.on_ledger_gone(1)
    assert garbage.removable() == []
    assert garbage.damaged() == [1]
    assert garbage.unknown([1, 2]) == [2]


def test_a_ledger_that_was_gone_before_the_log_was_seen_counts_as_dead() -> None:
    garbage = Garbage()
    garbage.on_log(1, {1: 10}, is_alive=[])
    assert garbage.removable() == [1]
    garbage.on_log_removed(1)
    assert garbage.removable() == []
    assert garbage.unknown([1]) == [1]
