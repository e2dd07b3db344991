# SPDX-License-Identifier: Apache-2.0
"""Summaries: count, sum, and quantiles that forget."""

import math
from random import Random

from magnetar.runtime.metrics import Metrics
from magnetar.runtime.summary import QUANTILES, Summary


def test_a_quantile_is_right_within_a_tenth() -> None:
    random = Random(1)
    values = sorted(random.lognormvariate(0, 2) for _ in range(5_000))
    summary = Summary()
    for value in values:
        summary.observe(value)
    assert summary.count == 5_000
    assert math.isclose(summary.sum, sum(values))
    for share in QUANTILES:
        exact = values[math.ceil(share * len(values)) - 1]
        assert exact <= summary.quantile(share) <= exact * 1.1


def test_what_lies_two_windows_back_is_forgotten_by_quantiles_alone() -> None:
    summary = Summary()
    summary.observe(1_000.0, times=10)
    summary.rotate()
    summary.observe(1.0, times=10)
    assert summary.quantile(1.0) >= 1_000
    summary.rotate()
    assert summary.quantile(1.0) < 2
    summary.rotate()
    assert math.isnan(summary.quantile(0.5))
    assert (summary.count, summary.sum) == (20, 10_010.0)


def test_its_text_has_quantiles_count_and_sum() -> None:
    metrics = Metrics()
    made = Summary()
    metrics.summaries("add", "Adds.", ("success",)).adopt(made, "true")
    made.observe(3, times=2)
    lines = metrics.text().splitlines()
    assert "# TYPE add summary" in lines
    assert 'add_count{success="true"} 2' in lines
    assert 'add_sum{success="true"} 6' in lines
    assert any(line.startswith('add{success="true",quantile="0.99"} ') for line in lines)
