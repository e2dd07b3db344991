# SPDX-License-Identifier: Apache-2.0
"""How far a topic has arrived in another cluster: never past something that has not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.replication.in_flight import InFlight, Sent
from magnetar.errors import BadSequence
from magnetar.ids import Position

pytestmark = pytest.mark.feature("F-GEO-06", "F-GEO-09")


def _place(entry: int) -> Position:
    return Position(1, entry)


def test_what_stays_counts_when_all_before_it_has_arrived() -> None:
    waiting = InFlight()
    waiting.add(Sent(_place(0), None))
    assert waiting.through == _place(0)
    waiting.add(Sent(_place(1), 0, size=10, messages=3, publish_time_ms=7))
    waiting.add(Sent(_place(2), None))
    assert waiting.through == _place(0)
    assert (waiting.size, waiting.messages, waiting.oldest_publish_time_ms, len(waiting)) == (10, 3, 7, 2)
    waiting.on_receipt(0)
    assert waiting.through == _place(2)
    assert (waiting.size, waiting.messages, waiting.oldest_publish_time_ms, len(waiting)) == (0, 0, 0, 0)


def test_receipts_out_of_order_are_refused_and_old_ones_passed_over() -> None:
    waiting = InFlight()
    for number in range(3):
        waiting.add(Sent(_place(number), number))
    waiting.on_receipt(0)
    assert waiting.on_receipt(0) is None
    with pytest.raises(BadSequence):
        waiting.on_receipt(2)
    assert waiting.through == _place(0)


@given(st.lists(st.booleans(), max_size=30), st.integers(0, 30))
def test_through_is_always_the_end_of_what_has_arrived(goes: list[bool], receipts: int) -> None:
    waiting, sequence_ids, arrived = InFlight(), iter(range(100)), 0
    for entry, is_sent in enumerate(goes):
        waiting.add(Sent(_place(entry), next(sequence_ids) if is_sent else None))
    for sequence_id in range(min(receipts, sum(goes))):
        waiting.on_receipt(sequence_id)
        arrived += 1
    sent = [entry for entry, is_sent in enumerate(goes) if is_sent]
    end = sent[arrived] if arrived < len(sent) else len(goes)
    assert waiting.through == (_place(end - 1) if end else None)
