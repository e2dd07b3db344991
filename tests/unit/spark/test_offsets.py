# SPDX-License-Identifier: Apache-2.0
"""Offsets are written, read back and compared as people expect."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.errors import BadSetting
from magnetar.ids import MessageId, Position
from magnetar.spark.offsets import BEFORE_ALL, Offset, Place, offsets_from_json, offsets_to_json

places = st.builds(Place, st.integers(0, 2**40), st.integers(0, 2**40), st.none() | st.integers(0, 1_000))
offsets = st.builds(Offset, st.none() | st.integers(0, 2**50), places)


@pytest.mark.feature("F-SPK-02")
@given(st.dictionaries(st.text("abc", min_size=1), offsets, max_size=5))
def test_what_is_written_is_read_back(found: dict[str, Offset]) -> None:
    assert offsets_from_json(offsets_to_json(found)) == found


@given(places, st.integers(0, 2**40), st.integers(0, 2**40), st.integers(-1, 1_000))
def test_a_place_covers_what_lies_before_it(place: Place, ledger_id: int, entry_id: int, index: int) -> None:
    before = (ledger_id, entry_id, max(0, index)) < (place.ledger_id, place.entry_id, place.order[2])
    assert place.covers(Position(ledger_id, entry_id), index) == before


def test_people_may_leave_out_what_can_be_found() -> None:
    assert Offset.from_json(12) == Offset(12, None)
    assert Offset.from_json({"index": 12}) == Offset(12, None)
    assert Offset.from_json("7:11") == Offset(None, Place(7, 11))
    assert Offset.from_json("7:11:3") == Offset(None, Place(7, 11, 3))
    serialised = MessageId(7, 11, 0, 2, 5).encode().hex()
    assert Offset.from_json(serialised) == Offset(None, Place(7, 11, 3))
    assert Place.behind(MessageId(7, 11, 0, 4, 5)) == Place(7, 11)
    assert not BEFORE_ALL.covers(Position(0, 0), -1)


@pytest.mark.parametrize("wrong", [True, {}, {"offset": 1}, {"index": "1"}, "seven", "1:2:3:4", "1:-2", [1], None])
def test_what_is_no_offset_is_refused_with_its_topic(wrong: object) -> None:
    with pytest.raises(BadSetting, match="offset of t"):
        offsets_from_json({"t": wrong})
