# SPDX-License-Identifier: Apache-2.0
"""Runs against a stupid twin: each entry told once, in order, in as few calls as consecutive ids allow."""

from hypothesis import given
from hypothesis import strategies as st

from magnetar.bookie.add_runs import AddRuns


class Listener:
    def __init__(self) -> None:
        self.calls: list[tuple[str, int, int, int]] = []

    def on_added(self, bookie: str, first: int, last: int, code: int) -> None:
        self.calls.append((bookie, first, last, code))


def stupid(entry_ids: list[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for entry_id in entry_ids:
        if runs and runs[-1][1] + 1 == entry_id:
            runs[-1] = (runs[-1][0], entry_id)
        else:
            runs.append((entry_id, entry_id))
    return runs


@given(st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 6)), max_size=12), max_size=4))
def test_runs_of_several_groups_equal_the_runs_of_their_sum(groups: list[list[tuple[int, int]]]) -> None:
    listeners = [Listener(), Listener(), Listener()]
    total = AddRuns()
    for group in groups:
        runs = AddRuns()
        for owner, entry_id in group:
            runs.add(listeners[owner], entry_id)
        assert bool(runs) == bool(group)
        total.join(runs)
    total.tell("b", 3)
    everything = [item for group in groups for item in group]
    for index, listener in enumerate(listeners):
        expected = stupid([entry_id for owner, entry_id in everything if owner == index])
        assert [(first, last) for _, first, last, _ in listener.calls] == expected
        assert all(bookie == "b" and code == 3 for bookie, _, _, code in listener.calls)
