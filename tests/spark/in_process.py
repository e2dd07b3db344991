# SPDX-License-Identifier: Apache-2.0
"""The data source called as Spark calls it, in this process: what was read can be counted, and no JVM is needed."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pyspark.sql.datasource import Filter
from pyspark.sql.types import StructType

from magnetar.spark.archive.history import PushedHistoryReader
from magnetar.spark.options import SourceOptions
from magnetar.spark.read_counts import ReadCounts, totals
from magnetar.spark.reader import PushedReader
from magnetar.spark.source import PulsarDataSource
from magnetar.spark.stream_reader import PulsarStreamReader

Options = Mapping[str, str]
Rows = list[dict[str, Any]]


class Read(NamedTuple):
    rows: Rows
    counts: ReadCounts

    @property
    def numbers(self) -> list[int]:
        return sorted(int(row["value"]) for row in self.rows)


class _Counted:
    """What the totals grew by."""

    def __init__(self) -> None:
        self._before = {name: getattr(totals, name) for name in ReadCounts.__slots__}

    def counts(self) -> ReadCounts:
        return ReadCounts(**{name: getattr(totals, name) - before for name, before in self._before.items()})


def schema_of(source: PulsarDataSource) -> StructType:
    columns = source.schema()
    assert isinstance(columns, StructType)
    return columns


def read_batch(options: Options, filters: Iterable[Filter] = ()) -> Read:
    source = PulsarDataSource({"filterPushDown": "true", **options})
    reader = source.reader(schema_of(source))
    assert isinstance(reader, PushedReader | PushedHistoryReader)
    counted = _Counted()
    list(reader.pushFilters(list(filters)))
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    return Read(rows, counted.counts())


class Stream:
    """A query's source, micro-batch by micro-batch."""

    def __init__(self, options: Options) -> None:
        start = {} if "startingTime" in options else {"startingOffsets": "earliest"}
        source = PulsarDataSource({**start, **options})
        self.columns = schema_of(source)
        made = source.streamReader(self.columns)
        assert isinstance(made, PulsarStreamReader)
        self.reader = made
        self.offset: dict[str, Any] = made.initialOffset()

    @property
    def options(self) -> SourceOptions:
        return self.reader._options

    def next(self) -> Read | None:
        """The next micro-batch, committed; None where there is nothing to read."""
        end = self.reader.latestOffset(self.offset, self.reader.getDefaultReadLimit())
        if end == self.offset:
            return None
        read = self.read(self.offset, end)
        self.reader.commit(end)
        self.offset = end
        return read

    def read(self, start: dict[str, Any], end: dict[str, Any]) -> Read:
        counted = _Counted()
        parts = self.reader.partitions(start, end)
        rows = [row for part in parts for batch in self.reader.read(part) for row in batch.to_pylist()]
        return Read(rows, counted.counts())
