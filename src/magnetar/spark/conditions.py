# SPDX-License-Identifier: Apache-2.0
"""What a query's filters say about partition, message number, publish time and key, so that only that is read.

Publish times are the producers' clocks and need not rise along a topic; the span that is read is wider than the filter
by a slack on both sides, and Spark applies the filter to the rows. Filters on anything else are left to Spark.
A key says nothing about where its messages are: all are looked at, and those of other keys never become rows.
Decides.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import datasource as pushed

from magnetar.names import TopicName
from magnetar.spark.offsets import Offset

TIME_SLACK_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Conditions:
    partitions: frozenset[int] | None = None
    index_from: int | None = None
    index_until: int | None = None
    time_from_ms: int | None = None
    time_until_ms: int | None = None
    keys: frozenset[bytes] | None = None

    def narrowed(self, one: pushed.Filter) -> tuple["Conditions", bool]:
        """These and one more; true if the filter needs not be applied to the rows again."""
        column = getattr(one, "attribute", ())
        if column == ("__partition",) and isinstance(one, (pushed.EqualTo, pushed.In)):
            wanted = frozenset(one.value if isinstance(one, pushed.In) else (one.value,))
            return replace(self, partitions=wanted if self.partitions is None else self.partitions & wanted), True
        if column == ("__index",):
            return self._by_index(one), False
        if column == ("__publishTime",):
            return self._by_time(one), False
        if column == ("__key",) and isinstance(one, (pushed.EqualTo, pushed.In)):
            return self._by_key(one.value if isinstance(one, pushed.In) else (one.value,)), False
        return self, False

    def _by_key(self, values: tuple[Any, ...]) -> "Conditions":
        if not all(isinstance(value, (bytes, bytearray)) for value in values):
            return self
        wanted = frozenset(bytes(value) for value in values)
        return replace(self, keys=wanted if self.keys is None else self.keys & wanted)

    def _by_index(self, one: pushed.Filter) -> "Conditions":
        value: Any = getattr(one, "value", None)
        if not isinstance(value, int):
            return self
        made = self
        if isinstance(one, (pushed.EqualTo, pushed.GreaterThan, pushed.GreaterThanOrEqual)):
            least = value + isinstance(one, pushed.GreaterThan)
            made = replace(made, index_from=max(least, made.index_from or 0))
        if isinstance(one, (pushed.EqualTo, pushed.LessThan, pushed.LessThanOrEqual)):
            until = value + (not isinstance(one, pushed.LessThan))
            made = replace(made, index_until=until if made.index_until is None else min(until, made.index_until))
        return made

    def _by_time(self, one: pushed.Filter) -> "Conditions":
        value: Any = getattr(one, "value", None)
        if not isinstance(value, datetime):
            return self
        moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        at_ms = int(moment.timestamp() * 1000)
        made = self
        if isinstance(one, (pushed.EqualTo, pushed.GreaterThan, pushed.GreaterThanOrEqual)):
            made = replace(made, time_from_ms=max(at_ms - TIME_SLACK_MS, made.time_from_ms or 0))
        if isinstance(one, (pushed.EqualTo, pushed.LessThan, pushed.LessThanOrEqual)):
            until = at_ms + TIME_SLACK_MS
            made = replace(made, time_until_ms=until if made.time_until_ms is None else min(until, made.time_until_ms))
        return made

    def takes_topic(self, topic: str) -> bool:
        """A topic without partitions is partition 0 to SQL."""
        return self.partitions is None or max(0, TopicName.parse(topic).partition_index) in self.partitions

    def index_span(self, start: Offset, end: Offset) -> tuple[Offset, Offset]:
        """The part of a span of numbered messages that can fit; both ends keep their places where they do not move."""
        assert start.index is not None
        assert end.index is not None
        first = start if self.index_from is None or self.index_from <= start.index else Offset(self.index_from, None)
        last = end if self.index_until is None or self.index_until >= end.index else Offset(self.index_until, None)
        if last.index is not None and last.index <= start.index:
            return start, start
        if first.index is not None and first.index >= end.index:
            return end, end
        return first, last
