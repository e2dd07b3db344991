# SPDX-License-Identifier: Apache-2.0
"""What a scrape says, as OpenTelemetry's JSON."""

from typing import Any

import pytest

from magnetar.admin import otlp_format
from magnetar.admin.otlp_format import OtlpWriter
from magnetar.runtime.metrics import Metrics

pytestmark = pytest.mark.feature("B-21")


def written(lines: list[str]) -> list[dict[str, Any]]:
    writer = OtlpWriter({"service.name": "broker"}, "1", now_ms=5)
    contents = [content for line in lines for content in writer.feed(line)]
    return [*contents, *writer.rest()]


def metrics_of(contents: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for content in contents:
        for metric in content["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]:
            found[metric["name"]] = metric
    return found


def test_every_kind_of_metric_has_its_form() -> None:
    metrics = Metrics()
    metrics.counter("sent_total", "Sent.").add(3)
    metrics.gauge("open", "Open.").set(2.5)
    metrics.gauges("named", "Named.", ("topic",)).series('a "quoted"\nname\\').set(1)
    histogram = metrics.histogram("took_seconds", "Took.", (0.1, 1.0))
    for value in (0.05, 0.5, 0.6, 7):
        histogram.observe(value)
    metrics.summaries("waited", "Waited.", ("kind",)).series("read").observe(8)
    metrics.summaries("never", "Never.", ()).series()
    found = metrics_of(written(list(metrics.lines())))
    assert found["sent_total"]["sum"]["isMonotonic"] is True
    assert found["sent_total"]["sum"]["dataPoints"][0]["asDouble"] == 3
    assert found["open"]["gauge"]["dataPoints"] == [{"attributes": [], "timeUnixNano": "5000000", "asDouble": 2.5}]
    label = found["named"]["gauge"]["dataPoints"][0]["attributes"][0]
    assert label == {"key": "topic", "value": {"stringValue": 'a "quoted"\nname\\'}}
    took = found["took_seconds"]["histogram"]["dataPoints"][0]
    assert (took["count"], took["bucketCounts"], took["explicitBounds"]) == ("4", ["1", "2", "1"], [0.1, 1.0])
    waited = found["waited"]["summary"]["dataPoints"][0]
    assert (waited["count"], waited["sum"]) == ("1", 8.0)
    assert {each["quantile"] for each in waited["quantileValues"]} >= {0.5, 0.99, 1.0}
    assert found["never"]["summary"]["dataPoints"][0]["quantileValues"] == []


def test_requests_are_bounded_and_say_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp_format, "POINTS_MAX", 10)
    metrics = Metrics()
    family = metrics.histograms("took", "Took.", ("topic",), (1.0,))
    for number in range(25):
        family.series(str(number)).observe(number)
    contents = written(list(metrics.lines()))
    points = [
        point
        for content in contents
        for metric in content["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
        for point in metric["histogram"]["dataPoints"]
    ]
    assert len(contents) == 3
    assert [point["attributes"][0]["value"]["stringValue"] for point in points] == [str(n) for n in range(25)]
