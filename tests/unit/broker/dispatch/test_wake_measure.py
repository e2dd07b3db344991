# SPDX-License-Identifier: Apache-2.0
"""Whoever catches up takes short turns beside little publishing, and usual ones beside much or none."""

from magnetar.broker.dispatch.wake_measure import SHORT, USUAL, WakeMeasure
from magnetar.broker.publish_budget import PublishBudget

MIB = 1024 * 1024


def test_turns_are_short_while_little_is_published_and_shortly_after() -> None:
    budget = PublishBudget(64 * MIB)
    connection = budget.connection(16 * MIB, lambda: None)
    measure = WakeMeasure(budget)
    assert measure.of_one_behind(1.0) == USUAL
    connection.take(1_600)
    assert measure.of_one_behind(1.0) == SHORT
    connection.give_back(1_600)
    assert measure.of_one_behind(1.01) == SHORT, "who publishes one at a time is back soon"
    assert measure.of_one_behind(1.03) == USUAL


def test_turns_are_usual_beside_much_publishing_at_once_and_as_long_as_it_goes_on() -> None:
    budget = PublishBudget(64 * MIB)
    connection = budget.connection(16 * MIB, lambda: None)
    measure = WakeMeasure(budget)
    connection.take(1_600)
    assert measure.of_one_behind(1.0) == SHORT
    connection.take(MIB)
    assert measure.of_one_behind(1.0) == USUAL
    connection.give_back(MIB)
    assert measure.of_one_behind(1.0) == SHORT
