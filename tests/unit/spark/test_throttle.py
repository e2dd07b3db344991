# SPDX-License-Identifier: Apache-2.0
"""A reader that waits as long as it is told never reads more than its rate and a second's worth."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.spark.throttle import BURST_S, Throttle


def test_without_a_rate_nobody_waits() -> None:
    assert Throttle(None).wait_s(2**40, 0.0) == 0.0


@pytest.mark.feature("F-SQL-05")
@given(st.lists(st.tuples(st.integers(1, 5_000), st.floats(0, 3)), min_size=1, max_size=40))
def test_a_reader_stays_below_its_rate(reads: list[tuple[int, float]]) -> None:
    throttle, now_s, total = Throttle(1_000), 100.0, 0
    for size, pause_s in reads:
        total += size
        now_s += throttle.wait_s(size, now_s)
        assert total <= (now_s - 100.0 + BURST_S) * 1_000 + 1e-3
        now_s += pause_s


def test_a_pause_is_no_credit_beyond_the_burst() -> None:
    throttle = Throttle(1_000)
    assert throttle.wait_s(1_000, 0.0) == 0.0
    assert throttle.wait_s(1_000, 500.0) == 0.0
    assert throttle.wait_s(1_000, 500.0) == pytest.approx(1.0)
