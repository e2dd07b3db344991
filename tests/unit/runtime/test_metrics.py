# SPDX-License-Identifier: Apache-2.0
"""Metrics: what is counted is what Prometheus's own parser reads back, and series stay bounded."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from magnetar.runtime.metrics import OVERFLOW_LABEL, Histogram, Metrics


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.text())
        for sample in family.samples
    }


def test_counters_and_gauges() -> None:
    metrics = Metrics()
    sent = metrics.counter("sent_total", "Messages sent.")
    sent.add()
    sent.add(2)
    sent.value += 4
    level = metrics.gauge("level", "Water level.")
    level.set(1.5)
    asked = [10]
    metrics.gauge("asked", "Asked at each scrape.", lambda: asked[0])
    assert samples(metrics) == {("sent_total", ()): 7, ("level", ()): 1.5, ("asked", ()): 10}
    asked[0] = 11
    assert samples(metrics)["asked", ()] == 11


def test_the_text_is_exact() -> None:
    metrics = Metrics()
    metrics.counters("in_total", 'Back\\slash\nand "quote".', ("topic",)).series('a"\\\nb').add()
    metrics.histogram("wait_seconds", "Waits.", (0.5, 1)).observe(0.75)
    assert metrics.text() == (
        '# HELP in_total Back\\\\slash\\nand "quote".\n'
        "# TYPE in_total counter\n"
        'in_total{topic="a\\"\\\\\\nb"} 1\n'
        "# HELP wait_seconds Waits.\n"
        "# TYPE wait_seconds histogram\n"
        'wait_seconds_bucket{le="0.5"} 0\n'
        'wait_seconds_bucket{le="1.0"} 1\n'
        'wait_seconds_bucket{le="+Inf"} 1\n'
        "wait_seconds_sum 0.75\n"
        "wait_seconds_count 1\n"
    )


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 20, allow_nan=False), st.integers(1, 5)), max_size=30))
def test_histograms_count_as_a_plain_list_would(observed: list[tuple[float, int]]) -> None:
    histogram = Histogram((1, 2.5, 10))
    values: list[float] = []
    for value, times in observed:
        histogram.observe(value, times)
        values += [value] * times
    assert histogram.count == len(values)
    assert math.isclose(histogram.sum, math.fsum(values), abs_tol=1e-6)
    metrics = Metrics()
    family = metrics.histograms("h", "H.", ("a",), (1, 2.5, 10))
    for value, times in observed:
        family.series("x").observe(value, times)
    read = samples(metrics)
    if values:
        for bound in (1.0, 2.5, 10.0):
            assert read["h_bucket", (("a", "x"), ("le", repr(bound)))] == sum(value <= bound for value in values)
        assert read["h_bucket", (("a", "x"), ("le", "+Inf"))] == len(values)


def test_series_are_bounded_and_what_is_beyond_is_still_counted() -> None:
    metrics = Metrics(series_max=2)
    family = metrics.counters("in_total", "In.", ("topic",))
    for topic in ("a", "b", "c", "d", "a"):
        family.series(topic).add()
    assert samples(metrics) == {
        ("in_total", (("topic", "a"),)): 2,
        ("in_total", (("topic", "b"),)): 1,
        ("in_total", (("topic", OVERFLOW_LABEL),)): 2,
    }
    family.forget("a")
    family.forget("unknown")
    family.forget("b")
    assert family.series("e") is family.series("e")
    assert len(family) == 2


@pytest.mark.parametrize(
    ("value", "text"), [(math.inf, "+Inf"), (-math.inf, "-Inf"), (math.nan, "NaN"), (10**20, str(10**20))]
)
def test_unusual_numbers(value: float, text: str) -> None:
    metrics = Metrics()
    metrics.gauge("g", "G.").set(value)
    assert metrics.text().endswith(f"g {text}\n")


def test_a_name_has_one_owner_and_is_a_name() -> None:
    metrics = Metrics()
    metrics.counter("a_total", "A.")
    with pytest.raises(AssertionError, match="two owners"):
        metrics.gauge("a_total", "A.")
    with pytest.raises(AssertionError, match="cannot name a metric"):
        metrics.gauge("a-b", "A.")
    with pytest.raises(AssertionError):
        metrics.counters("b_total", "B.", ("le",))
    with pytest.raises(AssertionError, match="has the labels"):
        metrics.counters("c_total", "C.", ("x",)).series("1", "2")


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=20), st.text(max_size=20))
def test_any_label_value_survives(first: str, second: str) -> None:
    metrics = Metrics()
    metrics.counters("x_total", "X.", ("a", "b")).series(first, second).add(3)
    lines = [line for line in metrics.text().split("\n") if line and not line.startswith("#")]
    assert len(lines) == 1
    if not any(character in first + second for character in "\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"):
        assert list(samples(metrics)) == [("x_total", (("a", first), ("b", second)))]
