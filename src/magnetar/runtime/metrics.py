# SPDX-License-Identifier: Apache-2.0
"""Counters, gauges and histograms, and their Prometheus text.

Owns the numbers of one process. The hot path adds to a plain attribute (`counter.value += n`); names, labels and text
cost something only when a series is made or scraped. A family holds a bounded number of series: values beyond the
bound share one series whose labels are all `other`. There is no global registry: the assembler makes one and passes it.
Decides.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Final, Generic, Protocol, TypeVar

from magnetar.runtime.summary import Summary

SERIES_MAX: Final = 10_000
OVERFLOW_LABEL: Final = "other"
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
# Seconds: from a tenth of a millisecond to ten seconds.
LATENCY_BOUNDS: Final = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    10.0,
)

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_LABEL_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})


class Counter:
    """Only rises. Add to `value` directly where calls are too dear."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: int | float = 0

    def add(self, amount: int | float = 1) -> None:
        self.value += amount

    def lines(self, name: str, labels: str) -> Iterator[str]:
        yield f"{name}{_braced(labels)} {_number(self.value)}"


class Gauge:
    """Rises and falls; or asks `source` at each scrape."""

    __slots__ = ("source", "value")

    def __init__(self) -> None:
        self.value: int | float = 0
        self.source: Callable[[], int | float] | None = None

    def set(self, value: int | float) -> None:
        self.value = value

    def lines(self, name: str, labels: str) -> Iterator[str]:
        value = self.value if self.source is None else self.source()
        yield f"{name}{_braced(labels)} {_number(value)}"


class Histogram:
    """Counts of observations by upper bound, with their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float] = LATENCY_BOUNDS) -> None:
        assert bounds, "at least one bound"
        assert list(bounds) == sorted(set(bounds)), "bounds rise"
        self.bounds = tuple(bounds)
        # One more for what lies above the last bound. Not cumulative: the text is.
        self.counts = [0] * (len(bounds) + 1)
        self.sum: int | float = 0

    def observe(self, value: int | float, times: int = 1) -> None:
        """Note one value; `times` for a batch that shares it, such as one sync for many entries."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    @property
    def count(self) -> int:
        return sum(self.counts)

    def lines(self, name: str, labels: str) -> Iterator[str]:
        comma = "," if labels else ""
        cumulative = list(accumulate(self.counts))
        for bound, count in zip(self.bounds, cumulative, strict=False):
            yield f'{name}_bucket{{{labels}{comma}le="{_number(float(bound))}"}} {count}'
        yield f'{name}_bucket{{{labels}{comma}le="+Inf"}} {cumulative[-1]}'
        yield f"{name}_sum{_braced(labels)} {_number(self.sum)}"
        yield f"{name}_count{_braced(labels)} {cumulative[-1]}"


class _Metric(Protocol):
    def lines(self, name: str, labels: str) -> Iterator[str]: ...


Metric = TypeVar("Metric", bound=_Metric)


class Family(Generic[Metric]):
    """One name with labels: a series per combination of label values, made on first use and kept until forgotten."""

    __slots__ = ("_make", "_series", "_series_max", "help", "kind", "labels", "name")

    def __init__(
        self, name: str, help: str, kind: str, labels: Sequence[str], make: Callable[[], Metric], series_max: int
    ) -> None:
        self.name = name
        self.help = help
        self.kind = kind
        self.labels = tuple(labels)
        self._make = make
        self._series_max = series_max
        self._series: dict[tuple[str, ...], Metric] = {}

    def series(self, *values: str) -> Metric:
        """The series of these label values. Keep what it returns: the look-up is not for the hot path."""
        assert len(values) == len(self.labels), f"{self.name} has the labels {self.labels}"
        found = self._series.get(values)
        if found is None:
            if len(self._series) >= self._series_max:
                values = (OVERFLOW_LABEL,) * len(self.labels)
            found = self._series.setdefault(values, self._make())
        return found

    def adopt(self, metric: Metric, *values: str) -> None:
        """Show a metric that its owner made and keeps."""
        assert len(values) == len(self.labels), f"{self.name} has the labels {self.labels}"
        self._series[values] = metric

    def forget(self, *values: str) -> None:
        """Drop a series whose subject is gone; nothing happens when there is none."""
        self._series.pop(values, None)

    def __len__(self) -> int:
        return len(self._series)

    def text_lines(self) -> Iterator[str]:
        yield f"# HELP {self.name} {self.help.translate(_HELP_ESCAPES)}"
        yield f"# TYPE {self.name} {self.kind}"
        for values, metric in list(self._series.items()):
            labels = ",".join(
                f'{label}="{value.translate(_LABEL_ESCAPES)}"' for label, value in zip(self.labels, values, strict=True)
            )
            yield from metric.lines(self.name, labels)


class Metrics:
    """All metrics of one process, in the order of their making."""

    __slots__ = ("_families", "_series_max")

    def __init__(self, series_max: int = SERIES_MAX) -> None:
        self._series_max = series_max
        self._families: dict[str, Family[Any]] = {}

    def counter(self, name: str, help: str) -> Counter:
        return self.counters(name, help, ()).series()

    def gauge(self, name: str, help: str, source: Callable[[], int | float] | None = None) -> Gauge:
        gauge = self.gauges(name, help, ()).series()
        gauge.source = source
        return gauge

    def histogram(self, name: str, help: str, bounds: Sequence[float] = LATENCY_BOUNDS) -> Histogram:
        return self.histograms(name, help, (), bounds).series()

    def counters(self, name: str, help: str, labels: Sequence[str]) -> Family[Counter]:
        return self._family(Family(name, help, "counter", labels, Counter, self._series_max))

    def gauges(self, name: str, help: str, labels: Sequence[str]) -> Family[Gauge]:
        return self._family(Family(name, help, "gauge", labels, Gauge, self._series_max))

    def histograms(
        self, name: str, help: str, labels: Sequence[str], bounds: Sequence[float] = LATENCY_BOUNDS
    ) -> Family[Histogram]:
        return self._family(Family(name, help, "histogram", labels, lambda: Histogram(bounds), self._series_max))

    def summaries(self, name: str, help: str, labels: Sequence[str]) -> Family[Summary]:
        return self._family(Family(name, help, "summary", labels, Summary, self._series_max))

    def asked_counters(self, name: str, help: str, labels: Sequence[str]) -> Family[Gauge]:
        """Counters that ask their source at each scrape, where something else counts already."""
        return self._family(Family(name, help, "counter", labels, Gauge, self._series_max))

    def text(self) -> str:
        """The Prometheus text of everything, as CONTENT_TYPE."""
        return "".join(f"{line}\n" for line in self.lines())

    def lines(self) -> Iterator[str]:
        """The same line by line, for a server that lets others run between some thousand of them."""
        for family in list(self._families.values()):
            yield from family.text_lines()

    def _family(self, family: Family[Metric]) -> Family[Metric]:
        assert _NAME.fullmatch(family.name), f"{family.name!r} cannot name a metric"
        assert all(_LABEL.fullmatch(label) and label != "le" for label in family.labels), family.labels
        assert family.name not in self._families, f"metric {family.name} has two owners"
        self._families[family.name] = family
        return family


def _braced(labels: str) -> str:
    return f"{{{labels}}}" if labels else ""


def _number(value: int | float) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
