# SPDX-License-Identifier: Apache-2.0
"""Topics read as a batch: `spark.read.format("pulsar")`.

Made in Spark's planner, pickled to its workers; holds options only. Pushed filters on partition, number, publish time
and key narrow what is read; Spark applies all of them again, except that on the partition, which is exact.
Carries.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from magnetar.client.schema_info import SchemaInfo
from magnetar.spark.cluster import cluster
from magnetar.spark.conditions import Conditions
from magnetar.spark.offsets import Offset
from magnetar.spark.options import SourceOptions
from magnetar.spark.planner import Planner
from magnetar.spark.range_reader import RangeReader
from magnetar.spark.ranges import TopicRange

DEFAULT_TASKS = 8


class RangePartition(InputPartition):
    """One task's range."""

    def __init__(self, span: TopicRange) -> None:
        super().__init__(span)
        self.span = span


class PulsarReader(DataSourceReader):
    def __init__(self, options: SourceOptions, columns: spark.StructType, info: SchemaInfo) -> None:
        self._options = options
        self._columns = columns
        self._info = info
        self._conditions = Conditions()

    def partitions(self) -> Sequence[RangePartition]:
        return [RangePartition(span) for span in self.plan()]

    def plan(self) -> list[TopicRange]:
        """What is read, in tasks; each says how much it is and through whom."""
        planner = Planner(cluster(self._options.connection), self._options)
        topics = [topic for topic in planner.topics() if self._conditions.takes_topic(topic)]
        starts = planner.bound(topics, self._options.start)
        ends = planner.bound(topics, self._options.end)
        starts, ends = self._narrowed(planner, topics, starts, ends)
        wanted = self._options.tasks_wanted or DEFAULT_TASKS
        return planner.ranges(starts, ends, wanted)

    def _narrowed(
        self, planner: Planner, topics: list[str], starts: dict[str, Offset], ends: dict[str, Offset]
    ) -> tuple[dict[str, Offset], dict[str, Offset]]:
        """Only what the conditions can be true for; message numbers first, then publish times."""
        conditions = self._conditions
        numbered = [topic for topic in topics if starts[topic].index is not None and ends[topic].index is not None]
        if conditions.index_from is not None or conditions.index_until is not None:
            wanted = {topic: conditions.index_span(starts[topic], ends[topic]) for topic in numbered}
            starts |= planner.settled(numbered, {topic: span[0] for topic, span in wanted.items()})
            ends |= planner.settled(numbered, {topic: span[1] for topic, span in wanted.items()})
        if conditions.time_from_ms is not None:
            starts = _later(starts, planner.bound(topics, conditions.time_from_ms))
        if conditions.time_until_ms is not None:
            ends = _earlier(ends, planner.bound(topics, conditions.time_until_ms))
        return starts, ends

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RangePartition):
            return iter(())  # Spark's stand-in where there is nothing to read
        options, keys = self._options, self._conditions.keys
        if keys is not None:
            options = replace(options, keys=keys if options.keys is None else options.keys & keys)
        return RangeReader(options, self._columns, self._info, partition.span).batches()


class PushedReader(PulsarReader):
    """With filters pushed down: for a frame that one query uses once (docs/decisions/0173)."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for one in filters:
            self._conditions, is_exact = self._conditions.narrowed(one)
            if not is_exact:
                yield one


def _order(offset: Offset) -> tuple[int, int, int]:
    assert offset.after is not None
    return offset.after.order


def _later(one: dict[str, Offset], other: dict[str, Offset]) -> dict[str, Offset]:
    return {topic: max(one[topic], other[topic], key=_order) for topic in one}


def _earlier(one: dict[str, Offset], other: dict[str, Offset]) -> dict[str, Offset]:
    return {topic: min(one[topic], other[topic], key=_order) for topic in one}
