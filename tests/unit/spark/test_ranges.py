# SPDX-License-Identifier: Apache-2.0
"""A gap is an error; what has a reason is none."""

import pytest

from magnetar.ids import Position
from magnetar.spark.offsets import START, Offset, Place
from magnetar.spark.ranges import Continuity, MessagesMissing, TopicRange

END = Offset(100, Place(9, 9))


def check(start: Offset, *entries: tuple[int, int, int | None, int], skips: bool = False) -> Continuity:
    continuity = Continuity(TopicRange("t", start, END), skips_missing=skips)
    for ledger_id, entry_id, index, messages in entries:
        continuity.check(Position(ledger_id, entry_id), index, messages)
    return continuity


def test_dense_entries_over_ledgers_pass() -> None:
    check(START, (1, 0, 0, 5), (1, 1, 5, 1), (4, 0, 6, 2))
    check(Offset(5, Place(1, 0)), (1, 1, 5, 1))
    # Begun inside a batch: the whole batch comes again.
    check(Offset(3, Place(1, 0, 3)), (1, 0, 0, 5), (1, 1, 5, 1))


def test_without_numbers_the_entries_speak() -> None:
    check(Offset(None, Place(1, 0)), (1, 1, None, 1), (2, 0, None, 1))
    with pytest.raises(MessagesMissing, match="1:1 and 1:3"):
        check(Offset(None, Place(1, 0)), (1, 1, None, 1), (1, 3, None, 1))
    with pytest.raises(MessagesMissing, match="1:1 and 2:4"):
        check(Offset(None, Place(1, 0)), (1, 1, None, 1), (2, 4, None, 1))


@pytest.mark.feature("F-SPK-02")
def test_a_gap_is_named_or_counted() -> None:
    with pytest.raises(MessagesMissing, match="messages 5 to 7"):
        check(START, (1, 0, 0, 5), (1, 2, 8, 1))
    assert check(START, (1, 0, 0, 5), (1, 2, 8, 1), skips=True).skipped == 3
    with pytest.raises(MessagesMissing):  # numbers that go back are never explained by retention
        check(START, (1, 0, 0, 5), (1, 1, 4, 1), skips=True)
