# SPDX-License-Identifier: Apache-2.0
"""Acked entries against a set of pairs; bitmaps ⇄ words against plain numbers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from magnetar.managed_ledger.acked_entries import AckedEntries
from magnetar.managed_ledger.bitmap_words import bitmap_of_words, words_of_bitmap
from magnetar.managed_ledger.cursor_state import bits_of, words_of

steps = st.lists(
    st.tuples(st.sampled_from(["add", "run", "through", "ledger", "before"]), st.integers(1, 3), st.integers(0, 40)),
    max_size=40,
)


@settings(max_examples=300, deadline=None)
@given(steps)
def test_every_step_leaves_what_a_set_would_hold(taken: list[tuple[str, int, int]]) -> None:
    acked, twin = AckedEntries(), set[tuple[int, int]]()
    for kind, ledger_id, entry_id in taken:
        if kind == "add":
            assert acked.add(ledger_id, entry_id) == ((ledger_id, entry_id) not in twin)
            twin.add((ledger_id, entry_id))
        elif kind == "run":
            acked.add_run(ledger_id, entry_id, entry_id + 5)
            twin |= {(ledger_id, e) for e in range(entry_id, entry_id + 6)}
        elif kind == "through":
            acked.drop_through(ledger_id, entry_id)
            twin = {(ledger, e) for ledger, e in twin if ledger != ledger_id or e > entry_id}
        elif kind == "ledger":
            acked.drop_ledger(ledger_id)
            twin = {(ledger, e) for ledger, e in twin if ledger != ledger_id}
        else:
            acked.drop_ledgers_before(ledger_id)
            twin = {(ledger, e) for ledger, e in twin if ledger >= ledger_id}
        acked.check()
    assert acked.count == len(twin)
    listed = {(run.ledger_id, e) for run in acked.runs() for e in range(run.first, run.last + 1)}
    assert listed == twin
    assert acked.run_count() == len(list(acked.runs()))
    for ledger_id in range(1, 4):
        for entry_id in range(45):
            assert acked.contains(ledger_id, entry_id) == ((ledger_id, entry_id) in twin)
            end = entry_id - 1
            while (ledger_id, end + 1) in twin:
                end += 1
            assert acked.run_end(ledger_id, entry_id) == end


bitmaps = st.builds(
    lambda values, starts, optimise: _bitmap(values, starts, optimise),
    st.lists(st.integers(0, 200_000), max_size=50),
    st.lists(st.tuples(st.integers(0, 200_000), st.integers(1, 70_000)), max_size=3),
    st.booleans(),
)


def _bitmap(values: list[int], starts: list[tuple[int, int]], optimise: bool) -> BitMap:
    bitmap = BitMap(values)
    for start, length in starts:
        bitmap.add_range(start, start + length)
    if optimise:
        bitmap.run_optimize()
    return bitmap


@pytest.mark.feature("F-CUR-05")
@settings(max_examples=100, deadline=None)
@given(bitmaps)
def test_words_are_the_plain_bits_and_come_back(bitmap: BitMap) -> None:
    words = words_of_bitmap(bitmap)
    plain = 0
    for run_start in bitmap - bitmap.shift(1):
        end = run_start
        while end in bitmap:
            end += 1
        plain |= ((1 << (end - run_start)) - 1) << run_start
    assert [word & (2**64 - 1) for word in words] == words_of(plain)
    assert bitmap_of_words(words) == bitmap
    assert bitmap_of_words([word & (2**64 - 1) for word in words]) == bitmap


def test_a_million_alternating_holes_are_copied_not_walked() -> None:
    bitmap = BitMap(range(0, 2_000_000, 2))
    words = words_of_bitmap(bitmap)
    assert len(words) == 31_250
    assert set(words) == {0x5555555555555555}
    assert bitmap_of_words(words) == bitmap


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**200))
def test_an_ack_set_is_a_number_in_words_signed_or_not(bits: int) -> None:
    words = words_of(bits)
    assert bits_of(words) == bits
    assert bits_of(word - 2**64 if word >> 63 else word for word in words) == bits
