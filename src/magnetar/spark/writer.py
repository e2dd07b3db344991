# SPDX-License-Identifier: Apache-2.0
"""DataFrames written to topics: `df.write.format("pulsar")`.

Task attempts stage, the commit publishes. With a `writeId` the same write done again does nothing.
Carries.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from magnetar.spark.cluster import cluster
from magnetar.spark.committer import Committer, SinkTopics
from magnetar.spark.encoding import RowEncoder
from magnetar.spark.manifest import StagedAttempt
from magnetar.spark.options import Delivery, SinkOptions
from magnetar.spark.packing import PackedBatch, Packer
from magnetar.spark.staging import DirectAttempt, Routing, StagingAttempt, fresh_name

BATCH_MESSAGES_MAX: Final = 1_000
BATCH_BYTES_MAX: Final = 512 * 1024
HELD_BYTES_MAX: Final = 16 * 1024 * 1024


@dataclass
class Staged(WriterCommitMessage):
    """What a task attempt tells the commit: for which sink, and what it staged (nothing if it wrote directly).

    And whose batch it was: the query, where it is one and Spark tells.
    """

    sink_id: str
    attempt: StagedAttempt | None
    query: str = ""


def write_rows(
    options: SinkOptions, encoder: RowEncoder, topics: SinkTopics, sink_id: str, batches: Iterator[pa.RecordBatch]
) -> Staged:
    """Runs in a task."""
    here = cluster(options.connection)
    context = TaskContext.get()
    part = 0 if context is None else context.partitionId()
    attempt: StagingAttempt | DirectAttempt
    if options.delivery is Delivery.AT_LEAST_ONCE:
        attempt = DirectAttempt(here, encoder.info)
    else:
        attempt = StagingAttempt(here, topics.staging, topics.subscription, encoder.info, part)
    try:
        for packed in _packed(options, encoder, Routing(here, options.topic, part), batches):
            here.run(attempt.append(packed))
        return Staged(sink_id, here.run(attempt.finish()))
    finally:
        here.run(attempt.close())


def _packed(
    options: SinkOptions, encoder: RowEncoder, routing: Routing, batches: Iterator[pa.RecordBatch]
) -> Iterator[PackedBatch]:
    packer = Packer(BATCH_MESSAGES_MAX, BATCH_BYTES_MAX, HELD_BYTES_MAX)
    for batch in batches:
        payloads = encoder.payloads(batch) if options.topic is not None else None
        if payloads is None:
            for row in encoder.rows(batch):
                yield from packer.add(routing.target(row), row)
            continue
        for start in range(0, len(payloads), BATCH_MESSAGES_MAX):
            yield from packer.add_plain(routing.any_target(), payloads[start : start + BATCH_MESSAGES_MAX])
    yield from packer.rest()


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
