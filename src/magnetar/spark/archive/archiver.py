# SPDX-License-Identifier: Apache-2.0
"""`magnetar pipeline archive`: from where the archive ends to the end of what is closed, in steps.

Each step is staged by Spark, decided by one record and then moved, so that it happens once wherever a crash comes. The
step's columns are those of the topic's schema at that time; files of earlier steps keep theirs.
Assembles.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as functions

from magnetar.errors import BadSetting
from magnetar.spark.archive.archive_log import DAY, ArchiveDirectory
from magnetar.spark.archive.record import ArchivedFile, ArchiveRecord, record_number
from magnetar.spark.closed_ledger import ClosedLedger
from magnetar.spark.cluster import cluster
from magnetar.spark.cursors import move
from magnetar.spark.delta_log import DeltaLog, NewFile
from magnetar.spark.offsets import START, Offset, offsets_to_json
from magnetar.spark.options import SourceOptions, Way, source_options
from magnetar.spark.planner import Planner
from magnetar.spark.positions import Positions, numbered
from magnetar.spark.stored_entry import StoredEntry

STEP_MESSAGES_MAX: Final = 5_000_000
_TIMES: Final = "spark.sql.parquet.outputTimestampType"

LedgersOf = Callable[[str], list[ClosedLedger]]
"""The closed ledgers of a topic partition, for those who have no `metadata.url`."""


class Archiver:
    def __init__(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        path: str,
        *,
        ledgers_of: LedgersOf | None = None,
        subscription: str | None = None,
        step_messages_max: int = STEP_MESSAGES_MAX,
        is_delta: bool = False,
    ) -> None:
        """`options` are the data source's; `subscription` holds messages until they are archived.

        `is_delta`: the archive is a table in Delta's format as well; its log follows the archive's.
        """
        self._spark = spark
        self._given = {**options, "metadata": "all"}
        self._options: SourceOptions = source_options(self._given, streaming=False)
        if len(self._options.topics.names) != 1:
            raise BadSetting("an archive is of one topic: give the option topic")
        self.topic = self._options.topics.names[0]
        self._path = path
        self._ledgers_of = ledgers_of
        self._subscription = subscription
        self._step_messages_max = step_messages_max
        self._delta = DeltaLog(path, f"archive of {self.topic}") if is_delta else None

    def run(self, *, includes_open: bool = False) -> Iterator[ArchiveRecord]:
        """Archive what is closed (or all there is now), giving each step's record when its files are in place."""
        with ArchiveDirectory(self._path) as directory:
            records = directory.records(self.topic)
            if records:
                directory.publish(records[-1])
            directory.forget_staged()
            self._tell_delta(records)
            planner = Planner(cluster(self._options.connection), self._options)
            topics = planner.topics()
            reached = records[-1].ends if records else planner.bound(topics, "earliest")
            self._hold(reached)
            starts = {topic: reached.get(topic, START) for topic in topics}
            ends = planner.ends(topics) if includes_open else self._closed_ends(topics, starts)
            ends = {topic: _later(starts[topic], ends[topic]) for topic in topics}
            sequence = len(records)
            while starts != ends:
                upto = planner.limited(starts, ends, self._step_messages_max, None)
                record = self._step(directory, sequence, starts, upto)
                yield record
                starts, sequence = upto, sequence + 1

    def _closed_ends(self, topics: list[str], starts: Mapping[str, Offset]) -> dict[str, Offset]:
        here = cluster(self._options.connection)
        if self._options.connection.metadata_url is not None:
            planner = Planner(here, replace(self._options, way=Way.BOOKIES))
            return planner.ends(planner.topics())
        if self._ledgers_of is None:
            raise BadSetting("which ledgers are closed is not known: give metadata.url, or where a broker serves HTTP")
        return {topic: self._closed_end(topic, self._ledgers_of(topic), starts[topic]) for topic in topics}

    def _closed_end(self, topic: str, closed: list[ClosedLedger], start: Offset) -> Offset:
        held = [one for one in closed if one.entries]
        if not held:
            return start
        here = cluster(self._options.connection)
        timeout_s = self._options.read_timeout_ms / 1000

        async def ask() -> StoredEntry | None:
            return await Positions(here.core(), topic, timeout_s).first_from(held[-1].last)

        last = here.run(ask())
        if last is None or last.position != held[-1].last:
            return start
        return numbered(last, last.messages)

    def _step(
        self, directory: ArchiveDirectory, sequence: int, starts: Mapping[str, Offset], ends: Mapping[str, Offset]
    ) -> ArchiveRecord:
        frame = self._frame(starts, ends)
        staging = f"{directory.path}/{directory.staging_of(sequence)}"
        times = self._spark.conf.get(_TIMES)
        # Other writers' default has no statistics, and readers could not skip by time.
        self._spark.conf.set(_TIMES, "TIMESTAMP_MICROS")
        try:
            day = functions.to_date("__publishTime")
            frame.withColumn(DAY, day).write.mode("overwrite").partitionBy(DAY).parquet(f"file://{staging}")
        finally:
            if times is not None:
                self._spark.conf.set(_TIMES, times)
        columns: dict[str, Any] = json.loads(frame.schema.json())
        files = tuple(
            ArchivedFile(staged, _place_of(staged, sequence, number), _rows_of(f"{directory.path}/{staged}"))
            for number, staged in enumerate(directory.staged(sequence))
        )
        record = ArchiveRecord(sequence, self.topic, dict(starts), dict(ends), files, columns)
        directory.decide(record)
        directory.publish(record)
        directory.forget_staged()
        self._tell_delta([record])
        self._hold(ends)
        return record

    def _tell_delta(self, records: Sequence[ArchiveRecord]) -> None:
        """Steps that the archive has and the table does not have yet: their files are in place."""
        if self._delta is None or not records:
            return
        reached = self._delta.last_batch()
        for record in records:
            if record.sequence > reached:
                day = {"name": DAY, "type": "date", "nullable": True, "metadata": {}}
                columns = {**record.columns, "fields": [*record.columns["fields"], day]}
                files = [NewFile(one.path, one.rows) for one in record.files]
                self._delta.append(record.sequence, files, columns, [DAY])

    def _frame(self, starts: Mapping[str, Offset], ends: Mapping[str, Offset]) -> DataFrame:
        bounds = {
            "startingOffsets": json.dumps(offsets_to_json(starts)),
            "endingOffsets": json.dumps(offsets_to_json(ends)),
        }
        return self._spark.read.format("pulsar").options(**self._given, **bounds).load()

    def _hold(self, offsets: Mapping[str, Offset]) -> None:
        if self._subscription is not None and offsets:
            here = cluster(self._options.connection)
            here.run(move(here.client, self._subscription, offsets))


def _place_of(staged: str, sequence: int, number: int) -> str:
    day = staged.split("/")[-2]
    return f"{day}/{record_number(sequence)}-{number:05d}.parquet"


def _rows_of(path: str) -> int:
    return int(pq.read_metadata(path).num_rows)


def _later(one: Offset, other: Offset) -> Offset:
    assert one.after is not None
    assert other.after is not None
    return other if other.after.order > one.after.order else one
