# SPDX-License-Identifier: Apache-2.0
"""What filters say of what must be read."""

from datetime import UTC, datetime

from pyspark.sql import datasource as pushed

from magnetar.spark.conditions import TIME_SLACK_MS, Conditions


def narrowed(*filters: pushed.Filter) -> Conditions:
    found = Conditions()
    for one in filters:
        found, _ = found.narrowed(one)
    return found


def test_keys_of_several_filters_must_all_fit() -> None:
    found = narrowed(pushed.In(("__key",), (b"a", b"b")), pushed.EqualTo(("__key",), b"b"))
    assert found.keys == frozenset({b"b"})
    assert narrowed(pushed.EqualTo(("__key",), "text")).keys is None


def test_a_partition_is_exact_and_the_others_are_applied_again() -> None:
    for one, is_exact in (
        (pushed.EqualTo(("__partition",), 1), True),
        (pushed.EqualTo(("__key",), b"a"), False),
        (pushed.GreaterThan(("__index",), 5), False),
        (pushed.EqualTo(("value",), b"a"), False),
    ):
        assert Conditions().narrowed(one)[1] is is_exact


def test_times_are_wider_by_the_slack() -> None:
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    at_ms = int(moment.timestamp() * 1000)
    found = narrowed(pushed.GreaterThan(("__publishTime",), moment), pushed.LessThan(("__publishTime",), moment))
    assert found.time_from_ms == at_ms - TIME_SLACK_MS
    assert found.time_until_ms == at_ms + TIME_SLACK_MS
