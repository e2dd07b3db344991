# SPDX-License-Identifier: Apache-2.0
"""OpenTelemetry's JSON from the lines of a scrape: the same numbers under the same names, in requests of bounded size.

Lines of one series of a histogram or summary stand together; a request never ends between them.
Decides.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

POINTS_MAX: Final = 2_000
_CUMULATIVE: Final = 2
_TYPE: Final = re.compile(r"# TYPE (\S+) (\S+)")
_SAMPLE: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
_LABEL: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(r"\\(.)")


class _Series:
    """What is known so far of one series of a histogram or summary."""

    __slots__ = ("bounds", "count", "counts", "labels", "quantiles", "sum")

    def __init__(self, labels: dict[str, str]) -> None:
        self.labels = labels
        self.bounds: list[float] = []
        self.counts: list[int] = []
        self.quantiles: list[dict[str, float]] = []
        self.sum = 0.0
        self.count = 0


class OtlpWriter:
    """Takes lines; gives a request's content whenever there is enough for one."""

    def __init__(self, resource: dict[str, str], version: str, now_ms: int) -> None:
        self._resource = {"attributes": _attributes(resource)}
        self._scope = {"name": "magnetar", "version": version}
        self._time = str(now_ms * 1_000_000)
        self._name = self._kind = ""
        self._metrics: list[dict[str, Any]] = []
        self._points: list[dict[str, Any]] = []
        self._series: _Series | None = None
        self._count = 0

    def feed(self, line: str) -> Iterator[dict[str, Any]]:
        """The contents of the requests that are complete now."""
        kind = _TYPE.fullmatch(line)
        if kind is not None:
            self._end_metric()
            self._name, self._kind = kind[1], kind[2]
        else:
            sample = _SAMPLE.fullmatch(line)
            if sample is not None and not line.startswith("#"):
                self._add(sample[1], _labels(sample[2] or ""), sample[3])
        if self._count >= POINTS_MAX and self._series is None:
            yield self._taken()

    def rest(self) -> Iterator[dict[str, Any]]:
        self._end_metric()
        if self._metrics:
            yield self._taken()

    # --- inside ---------------------------------------------------------------------------------

    def _add(self, name: str, labels: dict[str, str], text: str) -> None:
        if self._kind in ("histogram", "summary"):
            self._add_part(name, labels, text)
        elif text not in ("NaN", "+Inf", "-Inf"):
            self._points.append(self._point(labels, {"asDouble": float(text)}))
            self._count += 1

    def _add_part(self, name: str, labels: dict[str, str], text: str) -> None:
        bound, share = labels.pop("le", None), labels.pop("quantile", None)
        if self._series is None or self._series.labels != labels:
            self._end_series()
            self._series = _Series(labels)
        series = self._series
        if bound is not None:
            series.counts.append(int(float(text)))
            if bound != "+Inf":
                series.bounds.append(float(bound))
        elif share is not None:
            if text != "NaN":
                series.quantiles.append({"quantile": float(share), "value": float(text)})
        elif name.endswith("_sum"):
            series.sum = float(text)
        elif name.endswith("_count"):
            series.count = int(float(text))
        # A histogram's series ends with its count, a summary's with its sum.
        if name.endswith("_count" if self._kind == "histogram" else "_sum"):
            self._end_series()

    def _end_series(self) -> None:
        series, self._series = self._series, None
        if series is None:
            return
        value: dict[str, Any] = {"count": str(series.count), "sum": series.sum}
        if self._kind == "histogram":
            each = [count - before for before, count in zip([0, *series.counts], series.counts, strict=False)]
            value |= {"bucketCounts": [str(count) for count in each], "explicitBounds": series.bounds}
        else:
            value |= {"quantileValues": series.quantiles}
        self._points.append(self._point(series.labels, value))
        self._count += 1

    def _point(self, labels: dict[str, str], value: dict[str, Any]) -> dict[str, Any]:
        return {"attributes": _attributes(labels), "timeUnixNano": self._time, **value}

    def _end_metric(self) -> None:
        self._end_series()
        points, self._points = self._points, []
        if not points:
            return
        content: dict[str, Any] = {"dataPoints": points}
        if self._kind in ("counter", "histogram"):
            content["aggregationTemporality"] = _CUMULATIVE
        if self._kind == "counter":
            content["isMonotonic"] = True
        field = {"counter": "sum", "histogram": "histogram", "summary": "summary"}.get(self._kind, "gauge")
        self._metrics.append({"name": self._name, field: content})

    def _taken(self) -> dict[str, Any]:
        self._end_metric()
        metrics, self._metrics, self._count = self._metrics, [], 0
        scoped = {"scope": self._scope, "metrics": metrics}
        return {"resourceMetrics": [{"resource": self._resource, "scopeMetrics": [scoped]}]}


def _attributes(labels: dict[str, str]) -> list[dict[str, Any]]:
    return [{"key": name, "value": {"stringValue": value}} for name, value in labels.items()]


def _labels(text: str) -> dict[str, str]:
    return {name: _ESCAPED.sub(_unescaped, value) for name, value in _LABEL.findall(text)}


def _unescaped(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]
