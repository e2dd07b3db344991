# SPDX-License-Identifier: Apache-2.0
"""Steps against a stupid twin: every entry once, in order, and no step larger than it must be."""

from hypothesis import given
from hypothesis import strategies as st

from magnetar.bookie.entry_log_format import RECORD_OVERHEAD_BYTES
from magnetar.bookie.entry_steps import EntrySteps


@given(st.lists(st.lists(st.binary(max_size=50), max_size=6), max_size=6), st.integers(1, 150))
def test_steps_hold_every_entry_once_and_end_where_their_bytes_are_reached(
    lists: list[list[bytes]], bytes_max: int
) -> None:
    steps = EntrySteps(lists)
    taken = []
    while steps.has_more():
        taken.append(steps.take(bytes_max))
    assert [entry for step in taken for entry in step] == [entry for some in lists for entry in some]
    sizes = [[len(entry) + RECORD_OVERHEAD_BYTES for entry in step] for step in taken]
    assert all(sum(step) >= bytes_max for step in sizes[:-1])
    assert all(sum(step[:-1]) < bytes_max for step in sizes)
    assert steps.take(bytes_max) == []
