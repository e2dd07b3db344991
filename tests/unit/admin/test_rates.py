# SPDX-License-Identifier: Apache-2.0
"""Rates come from two looks at the same counter."""

from magnetar.admin.rates import Counted, Rate, Rates


def test_a_rate_is_what_changed_between_two_looks() -> None:
    rates, topic = Rates(), object()
    rates.look([Counted(topic, 10, 100)], 1_000)
    assert rates.of(topic) == Rate()
    rates.look([Counted(topic, 30, 500)], 3_000)
    assert rates.of(topic) == Rate(10.0, 200.0)


def test_a_newcomer_and_one_that_left_have_no_rate() -> None:
    rates, gone, newcomer = Rates(), object(), object()
    rates.look([Counted(gone, 10, 10)], 1_000)
    rates.look([Counted(newcomer, 99, 99)], 2_000)
    assert rates.of(newcomer) == rates.of(gone) == Rate()


def test_a_clock_that_stands_still_makes_no_rate() -> None:
    rates, topic = Rates(), object()
    rates.look([Counted(topic, 1, 1)], 1_000)
    rates.look([Counted(topic, 9, 9)], 1_000)
    assert rates.of(topic) == Rate()
