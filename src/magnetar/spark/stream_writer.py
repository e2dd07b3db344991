# SPDX-License-Identifier: Apache-2.0
"""Streams written to topics: `df.writeStream.format("pulsar")`, exactly once.

The sink is known by `sinkId`, or by the query's own id, which its checkpoint keeps; a batch by its number. A batch that
Spark runs again is recognised by these two and never by its rows.
Carries.
"""

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from magnetar.errors import BadSetting
from magnetar.spark.cluster import cluster
from magnetar.spark.committer import SinkTopics
from magnetar.spark.encoding import RowEncoder
from magnetar.spark.options import Delivery, SinkOptions
from magnetar.spark.writer import Staged, committer_of, staged_in, write_rows

_QUERY_ID = "sql.streaming.queryId"


class PulsarStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions, columns: spark.StructType) -> None:
        self._options = options
        self._columns = columns
        self._encoder()  # wrong columns are refused before anything runs

    def _encoder(self) -> RowEncoder:
        return RowEncoder(self._columns, self._options.schema_type, needs_topic=self._options.topic is None)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        query = _query_id()
        sink_id = self._options.sink_id or query
        if not sink_id:
            raise BadSetting("this Spark does not tell tasks the id of their query: give the option sinkId")
        topics = SinkTopics.of(self._options.topic, sink_id)
        return replace(write_rows(self._options, self._encoder(), topics, sink_id, iterator), query=query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        staged = [one for one in messages if isinstance(one, Staged)]
        sinks = sorted({one.sink_id for one in staged})
        if self._options.delivery is Delivery.AT_LEAST_ONCE or not sinks:
            return
        topics = SinkTopics.of(self._options.topic, sinks[0])
        committer = committer_of(self._options, self._encoder(), topics, sinks[0])
        cluster(self._options.connection).run(committer.commit(batchId, staged_in(messages), staged[0].query))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What was staged stays unseen, and is trimmed with the next batch that is done."""


def _query_id() -> str:
    """Empty where Spark does not tell it."""
    context = TaskContext.get()
    return (None if context is None else context.getLocalProperty(_QUERY_ID)) or ""
