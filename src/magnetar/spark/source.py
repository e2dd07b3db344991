# SPDX-License-Identifier: Apache-2.0
"""The data source `pulsar` as Spark sees it: from options to columns, readers and writers.

Spark makes one in each process that it needs one in; making it connects nothing, and what only some processes need is
loaded there: Spark starts several for each query, and their loading is most of what a small query costs.
Assembles.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamArrowWriter

from magnetar.client.schema_info import BYTES_INFO, SchemaInfo, SchemaType
from magnetar.errors import BadSetting
from magnetar.names import TopicName
from magnetar.spark.cluster import cluster
from magnetar.spark.columns import columns_of
from magnetar.spark.options import BadRows, Metadata, SourceOptions, sink_options, source_options
from magnetar.spark.reader import PulsarReader, PushedReader
from magnetar.spark.stream_reader import PulsarStreamReader
from magnetar.spark.values import sides_of

if TYPE_CHECKING:
    from magnetar.spark.archive.history import HistoryReader


class PulsarDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "pulsar"

    def _source(self, *, streaming: bool) -> SourceOptions:
        return source_options(dict(self.options), streaming=streaming)

    def schema(self) -> spark.StructType:
        # Options of streams and batches differ in defaults only, none of which the columns depend on.
        options = self._source(streaming=False)
        info = topic_schema(options)
        if options.schema_type is None:
            _refuse_different_schemas(options, info)
        return columns_of(sides_of(info) or info, options.metadata, options.bad_rows, options.columns)

    def reader(self, schema: spark.StructType) -> "PulsarReader | HistoryReader":
        options = self._source(streaming=False)
        _refuse_keys_without_column(options, schema)
        if options.history is not None:
            from magnetar.spark.archive.history import HistoryReader, PushedHistoryReader

            history = PushedHistoryReader if options.filter_push_down else HistoryReader
            return history(options, schema, topic_schema(options))
        kind = PushedReader if options.filter_push_down else PulsarReader
        return kind(options, schema, topic_schema(options))

    def streamReader(self, schema: spark.StructType) -> PulsarStreamReader:
        options = self._source(streaming=True)
        if options.history is not None:
            raise BadSetting("option history is for batch reads; a stream reads what is in the topic")
        _refuse_keys_without_column(options, schema)
        return PulsarStreamReader(options, schema, topic_schema(options))

    def writer(self, schema: spark.StructType, overwrite: bool) -> DataSourceArrowWriter:
        from magnetar.spark.writer import PulsarWriter

        _refuse_overwriting(overwrite)
        return PulsarWriter(sink_options(dict(self.options), streaming=False), schema)

    def streamWriter(self, schema: spark.StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from magnetar.spark.stream_writer import PulsarStreamWriter

        return PulsarStreamWriter(sink_options(dict(self.options), streaming=True), schema)


def _refuse_overwriting(overwrite: bool) -> None:
    if overwrite:
        raise BadSetting("a topic is appended to, never overwritten: use mode('append')")


def _refuse_keys_without_column(options: SourceOptions, columns: spark.StructType) -> None:
    if options.keys is not None and "__key" not in columns.names:
        raise BadSetting("option keys needs the column __key: metadata=basic, or name it in columns")


def topic_schema(options: SourceOptions) -> SchemaInfo:
    """The schema that columns are made from: the one given, or that of the first topic."""
    if options.schema_type is not None:
        return given_schema(options.schema_type, options.schema_definition)
    here = cluster(options.connection)
    topics = here.run(here.partitions_of(options.topics))
    return here.run(here.schema_of(topics[0])) if topics else BYTES_INFO


def _refuse_different_schemas(options: SourceOptions, first: SchemaInfo) -> None:
    """Rows of several topics have the same columns, or they would be read with a schema that is not theirs."""
    if len(options.topics.names) == 1:
        return
    here = cluster(options.connection)
    topics = list(dict.fromkeys(str(TopicName.parse(one).base) for one in here.run(here.partitions_of(options.topics))))
    wanted = _value_columns(first)
    for topic in topics[1:]:
        found = here.run(here.schema_of(topic))
        if found.type is not first.type or _value_columns(found) != wanted:
            raise BadSetting(
                f"{topic} has the schema {found.type.name} {_value_columns(found).simpleString()}, and {topics[0]} has "
                f"{first.type.name} {wanted.simpleString()}: read them one by one, or as bytes with schemaType=bytes"
            )


def _value_columns(info: SchemaInfo) -> spark.StructType:
    return columns_of(sides_of(info) or info, Metadata.NONE, BadRows.FAIL, None)


def given_schema(kind: str, definition: str | None) -> SchemaInfo:
    """A schema by the name of its type, with a definition where the type needs one. Raises BadSetting."""
    try:
        found = SchemaType[kind.upper()]
    except KeyError:
        raise BadSetting(f"option schemaType is {kind!r}, which is no type of schema") from None
    if found in (SchemaType.AVRO, SchemaType.JSON):
        try:
            written: object = json.loads(definition or "")
        except (ValueError, RecursionError):
            raise BadSetting(f"schemaType={kind} needs an Avro record as schemaDefinition") from None
        name = written.get("name", "") if isinstance(written, Mapping) else ""
        return SchemaInfo(found, name, (definition or "").encode())
    return SchemaInfo(found, kind)
