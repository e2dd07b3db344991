# SPDX-License-Identifier: Apache-2.0
"""Topics read as a stream: `spark.readStream.format("pulsar")`.

Lives in Spark's planner process for as long as the query runs; its offsets are Spark's checkpoint and nothing else.
Limits per trigger are exact. A named subscription, if there is one, follows what Spark has committed.
Carries.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from magnetar.client.schema_info import SchemaInfo
from magnetar.runtime.clock import SystemClock
from magnetar.spark.cluster import Cluster, cluster
from magnetar.spark.cursors import make, move
from magnetar.spark.offsets import START, Offset, offsets_from_json, offsets_to_json
from magnetar.spark.options import SourceOptions
from magnetar.spark.planner import Planner
from magnetar.spark.range_reader import RangeReader
from magnetar.spark.reader import DEFAULT_TASKS, RangePartition


class PulsarStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, columns: spark.StructType, info: SchemaInfo) -> None:
        self._options = options
        self._columns = columns
        self._info = info
        # Where a query with the trigger availableNow stops.
        self._target: dict[str, Offset] | None = None
        self._last_batch_ms: int | None = None
        # Where a new query begins. Spark does not keep it, and asks again where the first batch runs again.
        self._initial: dict[str, Any] | None = None
        # What the subscription has been moved to, in this process.
        self._held: dict[str, Offset] = {}

    def _here(self) -> Cluster:
        return cluster(self._options.connection)

    def _planner(self) -> Planner:
        return Planner(self._here(), self._options)

    # --- offsets -----------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        planner = self._planner()
        topics = planner.topics()
        if self._options.start == "latest" and self._options.subscription is not None:
            # Before the end is looked up: what the first batch of an earlier start has planned is held as well.
            here = self._here()
            here.run(make(here.client, self._options.subscription, topics))
        offsets = planner.bound(topics, self._options.start)
        if self._options.start != "latest":
            self._hold(offsets)
        self._initial = offsets_to_json(offsets)
        return self._initial

    def _hold(self, offsets: Mapping[str, Offset]) -> None:
        """Nothing behind these offsets is trimmed before it is committed, if there is a subscription for that."""
        fresh = {topic: offset for topic, offset in offsets.items() if self._held.get(topic) != offset}
        if fresh and self._options.subscription is not None:
            here = self._here()
            here.run(move(here.client, self._options.subscription, fresh))
            self._held |= fresh

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.messages_per_trigger_max is not None:
            return ReadMaxRows(self._options.messages_per_trigger_max)
        if self._options.bytes_per_trigger_max is not None:
            return ReadMaxBytes(self._options.bytes_per_trigger_max)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        planner = self._planner()
        self._target = planner.ends(planner.topics())

    def reportLatestOffset(self) -> dict[str, Any] | None:
        planner = self._planner()
        return offsets_to_json(planner.ends(planner.topics()))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        planner = self._planner()
        starts = {topic: replace(one, begun=None) for topic, one in offsets_from_json(start).items()}
        ends = self._target if self._target is not None else planner.ends(planner.topics())
        # Spark asks for more once its checkpoint has everything before; its own word comes with the next batch only.
        self._hold({topic: one for topic, one in starts.items() if topic in ends and one.after is not None})
        # A topic that was found since then is read from its beginning; one that is gone stays where it was.
        found = {topic: START for topic in ends if topic not in starts}
        self._hold(found)
        starts |= found
        starts = planner.settled(starts, starts) if any(one.after is None for one in starts.values()) else starts
        ends = {topic: _later(starts[topic], ends.get(topic, starts[topic])) for topic in starts}
        if self._waits_for_more(starts, ends):
            return start
        if isinstance(limit, ReadAllAvailable):
            reached = ends
        else:
            rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
            size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._options.bytes_per_trigger_max
            reached = planner.limited(starts, ends, rows, size)
        if start == self._initial:
            reached = {topic: replace(one, begun=starts[topic]) for topic, one in reached.items()}
        if reached != starts:
            self._last_batch_ms = SystemClock().now_ms()
        return offsets_to_json(reached) if reached != offsets_from_json(start) else start

    def _waits_for_more(self, starts: Mapping[str, Offset], ends: Mapping[str, Offset]) -> bool:
        """Less is there than a batch should have, and it has not waited for long."""
        least = self._options.messages_per_trigger_min
        if least == 0 or self._target is not None:
            return False
        now_ms = SystemClock().now_ms()
        if self._last_batch_ms is None:
            self._last_batch_ms = now_ms
        waiting = sum((ends[topic].index or 0) - (starts[topic].index or 0) for topic in starts)
        return waiting < least and now_ms - self._last_batch_ms < self._options.trigger_delay_max_ms

    # --- reading -----------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[RangePartition]:
        planner = self._planner()
        ends = offsets_from_json(end)
        planner.look_up(sorted(ends))
        starts = {**dict.fromkeys(ends, START), **offsets_from_json(start)}
        starts |= {topic: end.begun for topic, end in ends.items() if end.begun is not None}
        if any(one.after is None for one in starts.values()):
            starts = planner.settled(starts, starts)
        if any(one.after is None for one in ends.values()):
            ends = planner.settled(ends, ends)
        wanted = self._options.tasks_wanted or DEFAULT_TASKS
        return [RangePartition(span) for span in planner.ranges(starts, ends, wanted)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RangePartition):
            return iter(())  # Spark's stand-in where there is nothing to read
        return RangeReader(self._options, self._columns, self._info, partition.span).batches()

    def commit(self, end: dict[str, Any]) -> None:
        self._hold(offsets_from_json(end))


def _later(one: Offset, other: Offset) -> Offset:
    assert one.after is not None
    assert other.after is not None
    return other if other.after.order > one.after.order else one
