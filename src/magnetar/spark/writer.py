# SPDX-License-Identifier: Apache-2.0
"""DataFrames written to topics: `df.write.format("pulsar")`.

Task attempts stage, the commit publishes. With a `writeId` the same write done again does nothing.
Carries.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from magnetar.spark.cluster import cluster
from magnetar.spark.committer import Committer, SinkTopics
from magnetar.spark.encoding import RowEncoder
from magnetar.spark.manifest import StagedAttempt
from magnetar.spark.options import Delivery, SinkOptions
from magnetar.spark.staging import DirectAttempt, StagingAttempt, fresh_name


@dataclass
class Staged(WriterCommitMessage):
    """What a task attempt tells the commit: for which sink, and what it staged (nothing if it wrote directly)."""

    sink_id: str
    attempt: StagedAttempt | None


def write_rows(
    options: SinkOptions, encoder: RowEncoder, topics: SinkTopics, sink_id: str, batches: Iterator[pa.RecordBatch]
) -> Staged:
    """Runs in a task."""
    here = cluster(options.connection)
    context = TaskContext.get()
    part = 0 if context is None else context.partitionId()
    attempt: StagingAttempt | DirectAttempt
    if options.delivery is Delivery.AT_LEAST_ONCE:
        attempt = DirectAttempt(here, encoder.info, options.topic, part)
    else:
        attempt = StagingAttempt(here, topics.staging, topics.subscription, options.topic, part)
    try:
        for batch in batches:
            here.run(attempt.append(encoder.rows(batch)))
        return Staged(sink_id, here.run(attempt.finish()))
    finally:
        here.run(attempt.close())


def committer_of(options: SinkOptions, encoder: RowEncoder, topics: SinkTopics, sink_id: str) -> Committer:
    timeout_s = options.connection.operation_timeout_ms / 1000
    return Committer(cluster(options.connection), topics, sink_id, encoder.info, timeout_s)


class PulsarWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions, columns: spark.StructType) -> None:
        self._options = options
        self._columns = columns
        self._encoder()  # wrong columns are refused before anything runs
        if options.write_id is not None:
            self._sink_id = f"write-{options.write_id}"
            self._topics = SinkTopics.of(options.topic, self._sink_id)
        else:
            self._sink_id = fresh_name("write")
            self._topics = SinkTopics.once(options.topic)

    def _encoder(self) -> RowEncoder:
        return RowEncoder(self._columns, self._options.schema_type, needs_topic=self._options.topic is None)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(self._options, self._encoder(), self._topics, self._sink_id, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        attempts = staged_in(messages)
        committer = committer_of(self._options, self._encoder(), self._topics, self._sink_id)
        if self._options.delivery is Delivery.EXACTLY_ONCE:
            cluster(self._options.connection).run(committer.commit(0, attempts))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        committer = committer_of(self._options, self._encoder(), self._topics, self._sink_id)
        if self._options.delivery is Delivery.EXACTLY_ONCE:
            cluster(self._options.connection).run(committer.forget(staged_in(messages)))


def staged_in(messages: list[WriterCommitMessage | None]) -> list[StagedAttempt]:
    return [one.attempt for one in messages if isinstance(one, Staged) and one.attempt is not None]
