# SPDX-License-Identifier: Apache-2.0
"""A summary: how many observations, their sum, and quantiles of the recent ones, as Prometheus text has it.

Owns counts by size, a few per doubling, so that a quantile is right within a tenth of its value and an observation
costs one search. Quantiles speak of the present and the last window; whoever owns the clock ends a window by `rotate`.
Decides.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

QUANTILES: Final = (0.5, 0.75, 0.95, 0.99, 0.999, 0.9999, 1.0)
# From a thousandth to some thousand million, eight to each doubling.
_BOUNDS: Final = tuple(0.001 * 2 ** (i / 8) for i in range(8 * 43))


class Summary:
    __slots__ = ("_before", "_now", "count", "sum")

    def __init__(self) -> None:
        self.count = 0
        self.sum: int | float = 0
        self._now = [0] * (len(_BOUNDS) + 1)
        self._before = [0] * (len(_BOUNDS) + 1)

    def observe(self, value: int | float, times: int = 1) -> None:
        """Note one value; `times` for a batch that shares it, such as one sync for many entries."""
        self._now[bisect_left(_BOUNDS, value)] += times
        self.count += times
        self.sum += value * times

    def rotate(self) -> None:
        """A window ends; what lies before it is forgotten by the quantiles."""
        self._before, self._now = self._now, [0] * (len(_BOUNDS) + 1)

    def quantile(self, share: float) -> float:
        """A bound that this share of the recent observations does not exceed; NaN when there are none."""
        counts = [now + before for now, before in zip(self._now, self._before, strict=True)]
        total = sum(counts)
        if not total:
            return float("nan")
        wanted = share * total
        reached = 0
        for bound, count in zip(_BOUNDS, counts, strict=False):
            reached += count
            if reached >= wanted:
                return bound
        return _BOUNDS[-1]

    def lines(self, name: str, labels: str) -> Iterator[str]:
        comma = "," if labels else ""
        for share in QUANTILES:
            value = self.quantile(share)
            yield f'{name}{{{labels}{comma}quantile="{share}"}} {"NaN" if value != value else repr(value)}'
        braced = f"{{{labels}}}" if labels else ""
        yield f"{name}_count{braced} {self.count}"
        yield f"{name}_sum{braced} {self.sum!r}"


class JoinedSummary(Summary):
    """Several that are shown as one."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[Summary]) -> None:
        super().__init__()
        self._parts = tuple(parts)

    def lines(self, name: str, labels: str) -> Iterator[str]:
        self.count = sum(part.count for part in self._parts)
        self.sum = sum(part.sum for part in self._parts)
        self._now = [sum(counts) for counts in zip(*(part._now for part in self._parts), strict=True)] or self._now
        self._before = [sum(counts) for counts in zip(*(p._before for p in self._parts), strict=True)] or self._before
        return super().lines(name, labels)
