# SPDX-License-Identifier: Apache-2.0
"""Where frames go: a query for each sink of a stream, a write for each sink of a batch.

Topics, files, databases and keyed tables are written exactly once: a query's checkpoint lies below the pipeline's, by
the sink's name, and every sink recognises a batch that comes again. The console is for looking.
Assembles.
"""

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from magnetar.errors import BadSetting
from magnetar.spark.pipelines.delta_table import DeltaSink
from magnetar.spark.pipelines.jdbc_table import JdbcTable
from magnetar.spark.pipelines.keyed_table import KeyedTable
from magnetar.spark.pipelines.spec import PipelineSpec, Place, Sink

DEAD_LETTERS: Final = "dead-letters"
DELTA: Final = "delta"


class Sinks:
    def __init__(self, spec: PipelineSpec, connection: Mapping[str, str]) -> None:
        self._spec = spec
        self._connection = dict(connection)

    def dead_letters(self) -> Sink:
        """What is done with rows that cannot be processed."""
        assert self._spec.dead_letter is not None
        options = {"topic": self._spec.dead_letter}
        return Sink(DEAD_LETTERS, "", Place.TOPIC, "pulsar", "", "append", (), (), None, None, options)

    def start(self, sink: Sink, frame: DataFrame, *, only_now: bool = False) -> StreamingQuery:
        """A query under the name of pipeline and sink; it goes on where its checkpoint says."""
        writer: Any = frame.writeStream.queryName(f"{self._spec.name}/{sink.name}").outputMode(sink.mode)
        writer = writer.option("checkpointLocation", f"{self._spec.checkpoint}/{sink.name}")
        if only_now or self._spec.trigger_s == 0:
            writer = writer.trigger(availableNow=True)
        elif self._spec.trigger_s is not None:
            writer = writer.trigger(processingTime=f"{int(self._spec.trigger_s * 1000)} milliseconds")
        table: DeltaSink | JdbcTable | KeyedTable | None = (
            self._delta(sink) if sink.format == DELTA else self._table(sink)
        )
        if table is not None:
            started = writer.foreachBatch(table.append).start()
        else:
            writer = writer.format(sink.format).options(**self._options(sink))
            if sink.partition_by:
                writer = writer.partitionBy(*sink.partition_by)
            started = writer.start(sink.address) if sink.address else writer.start()
        assert isinstance(started, StreamingQuery)
        return started

    def write(self, sink: Sink, frame: DataFrame) -> None:
        """A batch pipeline's rows, once."""
        if sink.place is Place.CONSOLE:
            frame.show(truncate=False)
            return
        table = self._table(sink)
        if table is not None:
            raise BadSetting(f"sink {sink.name}: tables are kept up by streams; read a source with read: stream")
        if sink.format == DELTA:
            self._delta(sink).write(frame, sink.options.get("writeId"))
            return
        writer: Any = frame.write.format(sink.format).options(**self._options(sink)).mode("append")
        if sink.place is Place.JDBC:
            writer.option("url", sink.address).save()
            return
        if sink.partition_by:
            writer = writer.partitionBy(*sink.partition_by)
        if sink.address:
            writer.save(sink.address)
        else:
            writer.save()

    def _options(self, sink: Sink) -> dict[str, str]:
        if sink.place is not Place.TOPIC:
            return dict(sink.options)
        reading = {"metadata.url"}
        return {**{k: v for k, v in self._connection.items() if k not in reading}, **sink.options}

    def _delta(self, sink: Sink) -> DeltaSink:
        return DeltaSink(sink.address, f"{self._spec.name}/{sink.name}", sink.partition_by)

    def _table(self, sink: Sink) -> JdbcTable | KeyedTable | None:
        if sink.place is Place.TABLE:
            return KeyedTable(sink.address, sink.keys, sink.order_by, sink.deleted_when)
        if sink.place is Place.JDBC and self._spec.is_stream:
            name = f"{self._spec.name}/{sink.name}"
            table = sink.options["dbtable"]
            return JdbcTable(sink.address, table, name, sink.options, sink.keys, sink.order_by, sink.deleted_when)
        return None
