# SPDX-License-Identifier: Apache-2.0
"""Buckets: what passes in the mean, and how long whoever passed too much waits."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.broker.rate_limit import CallLimiter, Rate, RateLimiter, TokenBucket, limiter_for


def test_a_full_bucket_lets_its_content_pass_at_once_and_then_holds() -> None:
    bucket = TokenBucket(10, 1.0, now_s=0.0)
    assert bucket.take(9, 0.0) == 0.0
    assert bucket.take(1, 0.0) == pytest.approx(0.1)
    assert bucket.take(5, 0.0) == pytest.approx(0.6)
    assert bucket.wait_s(0.6) == 0.0
    assert bucket.available(100.0) == 10.0, "never more than it holds"


def test_what_is_larger_than_the_bucket_passes_and_is_waited_for() -> None:
    bucket = TokenBucket(10, 1.0, now_s=0.0)
    assert bucket.take(1_010, 0.0) == pytest.approx(100.1)


def test_a_clock_that_stands_still_or_goes_back_fills_nothing() -> None:
    bucket = TokenBucket(10, 1.0, now_s=5.0)
    bucket.take(10, 5.0)
    assert bucket.available(5.0) == 0.0
    assert bucket.available(4.0) == 0.0


def test_messages_and_bytes_whichever_is_used_up_first() -> None:
    limiter = RateLimiter(Rate(messages=10, bytes=100), now_s=0.0)
    assert limiter.take(1, 50, 0.0) == 0.0
    assert limiter.room(0.0) == (9, 50)
    assert limiter.take(1, 100, 0.0) == pytest.approx(0.51)
    assert limiter.wait_s(0.0) == pytest.approx(0.51)
    assert RateLimiter(Rate(messages=10), 0.0).room(0.0) == (10, -1)


def test_who_waits_as_long_as_told_finds_room() -> None:
    """A part of a message is no room: whoever was told to come back at once would come back all the time."""
    limiter = RateLimiter(Rate(messages=10), now_s=0.0)
    limiter.take(10, 1, 0.0)
    assert limiter.room(0.05) == (0, -1)
    assert limiter.wait_s(0.05) == pytest.approx(0.05)
    assert limiter.room(0.1001) == (1, -1)
    assert limiter.wait_s(0.1001) == 0.0


def test_a_rate_that_does_not_change_keeps_its_bucket() -> None:
    limiter = limiter_for(Rate(messages=10), None, 0.0)
    assert limiter is not None
    assert limiter_for(Rate(messages=10), limiter, 1.0) is limiter
    assert limiter_for(Rate(messages=11), limiter, 1.0) is not limiter
    assert limiter_for(Rate(), limiter, 1.0) is None


@pytest.mark.feature("B-06")
def test_each_caller_has_its_own_share_and_callers_are_bounded() -> None:
    limiter = CallLimiter(2, 30.0, callers_max=2)
    assert [limiter.may_call("a", 0.0) for _ in range(3)] == [True, True, False]
    assert limiter.may_call("b", 0.0)
    assert not limiter.may_call("a", 10.0)
    assert limiter.may_call("a", 15.0)
    limiter.may_call("c", 15.0)
    assert [limiter.may_call("b", 15.0) for _ in range(2)] == [True, True], "b was forgotten"


@pytest.mark.feature("B-06", "F-DISP-15")
@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 50), st.floats(0, 2)), min_size=1, max_size=60), st.integers(1, 100))
def test_whoever_waits_as_told_keeps_the_rate(steps: list[tuple[int, float]], rate: int) -> None:
    bucket = TokenBucket(rate, 1.0, now_s=0.0)
    now_s, passed, largest = 0.0, 0, 0
    for amount, pause_s in steps:
        now_s += bucket.take(amount, now_s) + pause_s
        passed += amount
        largest = max(largest, amount)
        assert passed <= rate * now_s + rate + largest + 1e-6
