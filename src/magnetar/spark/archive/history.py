# SPDX-License-Identifier: Apache-2.0
"""History and live tail as one table: what the archive has comes from its files, what is behind it from the topic.

The seam is the offset where the archive's log ends: nothing is read twice, and the live part must begin exactly there,
or the read fails with the range that is missing. Files of earlier schemas have nulls in columns that came later.
Carries.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from magnetar.client.schema_info import SchemaInfo
from magnetar.errors import BadSetting
from magnetar.spark.archive.archive_log import LOG, local_path, log_of, places
from magnetar.spark.cluster import cluster
from magnetar.spark.conditions import Conditions
from magnetar.spark.offsets import BEFORE_ALL, Offset
from magnetar.spark.options import SourceOptions
from magnetar.spark.planner import Planner
from magnetar.spark.ranges import TopicRange
from magnetar.spark.read_counts import ReadCounts, totals
from magnetar.spark.reader import PulsarReader, PushedReader, RangePartition
from magnetar.spark.rows import arrow_schema


class HistoryFile(NamedTuple):
    """Where a file belongs, and where it is if nobody has moved it yet."""

    path: str
    staged: str

    def __str__(self) -> str:
        return f"{self.path}, from the archive"


class FilePartition(InputPartition):
    """One task's file."""

    def __init__(self, file: HistoryFile) -> None:
        super().__init__(file)
        self.file = file


class HistoryReader(DataSourceReader):
    def __init__(self, options: SourceOptions, columns: spark.StructType, info: SchemaInfo) -> None:
        if options.history is None or len(options.topics.names) != 1:
            raise BadSetting("option history is for one topic, whose archive it names")
        if options.start != "earliest" or options.end != "latest":
            raise BadSetting(
                "with option history everything is read; narrow it with filters, not with offsets or times"
            )
        self._options = options
        self._columns = columns
        self._info = info
        self._filters: list[Filter] = []
        self._conditions = Conditions()

    def partitions(self) -> Sequence[InputPartition]:
        return [FilePartition(one) if isinstance(one, HistoryFile) else RangePartition(one) for one in self.plan()]

    def plan(self) -> list[HistoryFile | TopicRange]:
        """What is read, in tasks: the archive's files, then the live part."""
        options = self._options
        assert options.history is not None
        root = local_path(options.history)
        if not Path(root, LOG).is_dir():
            raise BadSetting(f"option history: {root} is no archive; magnetar pipeline archive makes one")
        records = log_of(root, options.topics.names[0])
        planner = Planner(cluster(options.connection), options)
        ends = records[-1].ends if records else {}
        starts = {topic: ends.get(topic, Offset(None, BEFORE_ALL)) for topic in planner.topics()}
        live = self._live(replace(options, start=starts))
        files = [HistoryFile(f"{root}/{path}", f"{root}/{staged}") for path, staged in places(records)]
        return [*files, *live.plan()]

    def _live(self, options: SourceOptions) -> PulsarReader:
        reader = PushedReader(options, self._columns, self._info)
        list(reader.pushFilters(self._filters))
        return reader

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, FilePartition):
            return self._rows_of(partition.file)
        return self._live(self._options).read(partition)

    def _rows_of(self, file: HistoryFile) -> Iterator[pa.RecordBatch]:
        path = file.path if Path(file.path).exists() else file.staged
        stored = ds.dataset(path, format="parquet")
        wanted = arrow_schema(self._columns)
        names = [field.name for field in wanted if field.name in stored.schema.names]
        counts = ReadCounts()
        for found in stored.scanner(
            columns=names, filter=self._filter(), batch_size=self._options.rows_per_batch_max
        ).to_batches():
            counts.rows += found.num_rows
            counts.messages += found.num_rows
            counts.bytes += found.nbytes
            if found.num_rows:
                yield _as_wanted(found, wanted)
        totals.add(counts)

    def _filter(self) -> ds.Expression | None:
        """Only what the conditions let through; files are skipped by their statistics."""
        conditions = self._conditions
        number, time = pc.field("__index"), pc.field("__publishTime")
        found: list[ds.Expression] = []
        if conditions.partitions is not None:
            found.append(pc.field("__partition").isin(sorted(conditions.partitions)))
        keys = conditions.keys
        if self._options.keys is not None:
            keys = self._options.keys if keys is None else keys & self._options.keys
        if keys is not None:
            found.append(pc.field("__key").isin(pa.array(sorted(keys), pa.binary())))
        if self._options.partitions is not None:
            found.append(pc.field("__partition").isin(sorted(self._options.partitions)))
        if conditions.index_from is not None:
            found.append(number >= conditions.index_from)
        if conditions.index_until is not None:
            found.append(number < conditions.index_until)
        if conditions.time_from_ms is not None:
            found.append(time >= _moment(conditions.time_from_ms))
        if conditions.time_until_ms is not None:
            found.append(time <= _moment(conditions.time_until_ms))
        whole: ds.Expression | None = None
        for one in found:
            whole = one if whole is None else whole & one
        return whole


class PushedHistoryReader(HistoryReader):
    """With filters pushed down: for a frame that one query uses once."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for one in filters:
            self._filters.append(one)
            self._conditions, is_exact = self._conditions.narrowed(one)
            if not is_exact:
                yield one


def _moment(at_ms: int) -> pa.Scalar:
    return pa.scalar(at_ms * 1000, pa.timestamp("us", tz="UTC"))


def _as_wanted(found: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """The columns in their order and types; those that the file does not have are null."""
    there = set(found.schema.names)
    arrays = [
        found.column(field.name).cast(field.type) if field.name in there else pa.nulls(found.num_rows, field.type)
        for field in wanted
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)
