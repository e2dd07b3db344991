# SPDX-License-Identifier: Apache-2.0
"""Limits are exact, shares are fair, and cuts cover everything."""

from hypothesis import given
from hypothesis import strategies as st

from magnetar.spark.plan import cuts, shares, tasks_of

backlogs = st.dictionaries(st.text("abcdef", min_size=1), st.integers(0, 10_000), min_size=1, max_size=8)


@given(backlogs, st.integers(1, 20_000))
def test_shares_use_the_limit_and_never_more(found: dict[str, int], limit: int) -> None:
    given_out = shares(found, limit)
    assert sum(given_out.values()) == min(limit, sum(found.values()))
    assert all(0 <= given_out[topic] <= found[topic] for topic in found)


@given(st.integers(0, 10**6), st.integers(1, 10**6), st.integers(1, 50), st.integers(1, 1_000))
def test_cuts_rise_and_lie_inside(first: int, messages: int, tasks: int, least: int) -> None:
    found = cuts(first, first + messages, tasks, least)
    assert len(found) < tasks
    assert [first, *found, first + messages] == sorted({first, *found, first + messages})
    sizes = [b - a for a, b in zip([first, *found], [*found, first + messages], strict=True)]
    assert len(sizes) == 1 or min(sizes) >= least


@given(backlogs, st.integers(1, 64))
def test_every_partition_has_a_task(found: dict[str, int], wanted: int) -> None:
    assert all(count >= 1 for count in tasks_of(found, wanted).values())
