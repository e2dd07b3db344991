# SPDX-License-Identifier: Apache-2.0
"""The search finds what walking from the first entry finds, and asks for few entries."""

from bisect import bisect_left

from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.ids import Position
from magnetar.spark.search import IndexSearch, NumberedEntry

ledgers = st.lists(
    st.tuples(st.integers(1, 50), st.lists(st.integers(1, 1_000), min_size=1, max_size=40)), min_size=1, max_size=8
)


def entries_of(shape: list[tuple[int, list[int]]]) -> list[NumberedEntry]:
    found, ledger_id, index = [], 0, 0
    for step, sizes in shape:
        ledger_id += step
        for entry_id, size in enumerate(sizes):
            found.append(NumberedEntry(Position(ledger_id, entry_id), index, size))
            index += size
    return found


@settings(max_examples=300, deadline=None)
@given(ledgers, st.data())
def test_every_message_is_found_with_few_questions(shape: list[tuple[int, list[int]]], data: st.DataObject) -> None:
    entries = entries_of(shape)
    positions = [entry.position for entry in entries]
    wanted = data.draw(st.integers(0, entries[-1].end_index - 1))
    truth = next(entry for entry in entries if entry.first_index <= wanted < entry.end_index)
    search = IndexSearch(wanted, entries[0], entries[-1].position)
    asked = 0
    while search.answer is None:
        assert not search.is_impossible
        at = bisect_left(positions, search.target)
        search.found(entries[at] if at < len(entries) else None)
        asked += 1
        assert asked <= 80
    assert search.answer == truth


@settings(max_examples=200, deadline=None)
@given(ledgers, st.data())
def test_a_message_that_is_missing_is_told(shape: list[tuple[int, list[int]]], data: st.DataObject) -> None:
    entries = entries_of(shape)
    if len(entries) < 3:
        return
    gone = entries.pop(data.draw(st.integers(1, len(entries) - 2)))
    positions = [entry.position for entry in entries]
    search = IndexSearch(gone.first_index, entries[0], entries[-1].position)
    for _ in range(200):
        if search.is_impossible:
            return
        at = bisect_left(positions, search.target)
        search.found(entries[at] if at < len(entries) else None)
        assert search.answer is None
    raise AssertionError("the search goes on for ever")
