# SPDX-License-Identifier: Apache-2.0
"""Large JSON in slices: the same text, and no slice is more work than was asked for."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.admin.sliced_json import SEPARATORS, items_up_to, json_slices

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=5), inner, max_size=20),
    max_leaves=200,
)


@given(values, st.integers(1, 50))
def test_the_slices_are_the_text(value: Any, items_max: int) -> None:
    assert "".join(json_slices(value, items_max)) == json.dumps(value, separators=SEPARATORS)


@pytest.mark.feature("B-37")
@pytest.mark.parametrize(
    "value",
    [
        [f"persistent://public/default/topic-{number}" for number in range(10_000)],
        {f"topic-{number}": {"subscriptions": {"a": {"n": 1}}, "publishers": []} for number in range(3_000)},
        {"partitions": {f"p-{number}": {"numbers": list(range(30))} for number in range(400)}},
        {"subscriptions": {"one": {"consumers": [{"name": "c", "permits": 1} for _ in range(5_000)]}}},
    ],
)
def test_no_slice_writes_more_than_its_share(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    dumped: list[int] = []
    real = json.dumps

    def counted(members: Any, **options: Any) -> str:
        dumped.append(items_up_to(members, 10**9))
        return real(members, **options)

    expected = json.dumps(value, separators=SEPARATORS)
    monkeypatch.setattr(json, "dumps", counted)
    slices = []
    for text in json_slices(value, 500):
        slices.append(text)
        assert sum(dumped) <= 2 * 500
        dumped.clear()
    assert "".join(slices) == expected
    assert len(slices) > 15


def test_counting_stops_where_it_is_enough() -> None:
    endless: list[Any] = [[0] * 10 for _ in range(1_000_000)]
    assert items_up_to(endless, 100) > 100
    assert items_up_to({"a": [1, {"b": 2}]}, 100) == 4
