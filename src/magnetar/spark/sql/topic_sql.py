# SPDX-License-Identifier: Apache-2.0
"""A statement in which tables are topics, as a DataFrame that reads of each what the statement needs.

Spark cannot tell a Python source which columns a query uses. So every statement is planned twice: over stand-ins that
have the topics' columns and no rows, to see what Spark's optimiser keeps of them, and then over the topics with options
that ask for that alone. What the first plan does not use is null in the second.
Assembles.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as functions
from pyspark.sql.types import StructType

from magnetar.spark.cluster import cluster
from magnetar.spark.columns import METADATA_NAMES
from magnetar.spark.offsets import offsets_to_json
from magnetar.spark.options import source_options
from magnetar.spark.planner import Planner
from magnetar.spark.sentences import QueryFailed, failed
from magnetar.spark.source import PulsarDataSource
from magnetar.spark.sql.jvm import Nodes, optimised
from magnetar.spark.sql.needs import Needs, needs_of, stand_in_number
from magnetar.spark.sql.relations import Relation, relations_in, renamed
from magnetar.spark.sql.statements import changes_a_table
from magnetar.spark.sql.table_names import (
    DEFAULT_NAMESPACE,
    HIDDEN,
    HIDDEN_FROM,
    is_elsewhere,
    mentioned,
    quoted,
    topic_of,
)
from magnetar.spark.sql.topics import Topics

# The cheapest column: what is read where a query counts rows and looks at none.
_CHEAPEST: Final = "__partition"
_QUOTES: Final = "spark.sql.ansi.doubleQuotedIdentifiers"


@dataclass(slots=True)
class Table:
    """A topic in a statement: its view, all its columns, and with which options it is read."""

    topic: str
    view: str
    columns: StructType
    asked: frozenset[str]
    options: dict[str, str] = field(default_factory=dict)

    @property
    def shown(self) -> list[str]:
        """Its values, and the metadata that the statement names."""
        return [name for name in self.columns.names if name not in METADATA_NAMES or name in self.asked]

    @property
    def hidden(self) -> list[str]:
        return [name for name in HIDDEN if name in self.asked]

    def made_from(self, frame: DataFrame) -> DataFrame:
        """The view's columns; those that the frame does not have are null."""
        there = set(frame.columns)

        def column(name: str) -> Any:
            if name in there:
                return functions.col(quoted(name))
            return functions.lit(None).cast(self.columns[name].dataType).alias(name)

        whole = frame.select(
            *(column(name) for name in self.columns.names if name in there or name in self._all_used())
        )
        made = [f"{HIDDEN[name]} AS {name}" for name in self.hidden]
        return whole.selectExpr(*(quoted(name) for name in self.shown), *made)

    def _all_used(self) -> set[str]:
        return {*self.shown, *(HIDDEN_FROM[name] for name in self.hidden)}

    def read_as(self, needs: Needs) -> None:
        """Fill the options from what is needed."""
        if needs.columns is not None:
            used = [name for name in self.columns.names if name in needs.columns]
            self.options["columns"] = ",".join(used or [_CHEAPEST])
        if needs.keys:
            self.options["keys"] = ",".join(sorted(needs.keys))
        if needs.uses == 1:
            # Spark shares what one use of a frame pushed with the others.
            self.options["filterPushDown"] = "true"


class TopicSql:
    """Statements over the topics of one cluster, in one session."""

    def __init__(self, spark: SparkSession, connection: Mapping[str, str], namespace: str = DEFAULT_NAMESPACE) -> None:
        self._spark = spark
        self._connection = dict(connection)
        self._topics = Topics(connection)
        self._nodes = Nodes(spark)
        self.namespace = namespace
        # Of the last statement: its tables, and how many messages it reads where a LIMIT lets it read few.
        self.tables: list[Table] = []
        self.narrowed_to: int | None = None
        # A name in double quotes is a name, as standard SQL has it.
        spark.conf.set(_QUOTES, "true")

    @property
    def topics(self) -> Topics:
        return self._topics

    def frame(self, text: str, *, may_narrow: bool = True) -> DataFrame:
        """Raises QueryFailed, TopicNotFound, BadName: one sentence each.

        With a LIMIT as many messages are read as rows are wanted; `rows` notices where that was too few.
        """
        self.tables, self.narrowed_to = [], None
        try:
            plan = self._nodes.parsed(text)
            relations = [one for one in relations_in(self._nodes, plan) if self._is_topic(one)]
            tables = self._tables_of(relations, text)
            self.tables = list(tables.values())
            if not tables:
                return self._spark.sql(text)
            statement = renamed(text, relations, lambda one: tables[one.start].view)
            if self._nodes.is_query(plan):
                self._ask_stand_ins(statement, may_narrow)
            for table in self.tables:
                frame = self._spark.read.format("pulsar").options(**table.options).load()
                table.made_from(frame).createOrReplaceTempView(table.view)
            return self._spark.sql(statement)
        except (PySparkException, Py4JJavaError) as error:
            if changes_a_table(text):
                raise QueryFailed(
                    "SQL reads topics and never changes them: pipelines write them, magnetar admin topics deletes them "
                    f"({failed(error)})"
                ) from None
            raise failed(error) from None

    def rows(self, text: str) -> tuple[list[str], Iterator[Row]]:
        """The names of the columns, and the rows as they come."""
        frame = self.frame(text)
        try:
            if self.narrowed_to is None:
                return frame.columns, _told(frame.toLocalIterator())
            wanted, found = self.narrowed_to, frame.collect()
            if len(found) < wanted:
                # Some messages were no rows: chunks, markers, what compaction took.
                again = self.frame(text, may_narrow=False)
                return again.columns, _told(again.toLocalIterator())
            return frame.columns, iter(found)
        except Exception as error:
            raise failed(error) from None

    def columns_of(self, topic: str) -> StructType:
        """All columns of a topic, with all metadata. Raises TopicNotFound."""
        self._topics.check(topic)
        found = PulsarDataSource({**self._connection, "topic": topic, "metadata": "all"}).schema()
        assert isinstance(found, StructType)
        return found

    def _is_topic(self, one: Relation) -> bool:
        if is_elsewhere(one.parts):
            return False
        return len(one.parts) > 1 or not self._spark.catalog.tableExists(quoted(one.parts[0]))

    def _tables_of(self, relations: list[Relation], text: str) -> dict[int, Table]:
        """One for each place where a topic is named, so that each reads what is needed there."""
        columns: dict[str, StructType] = {}
        found: dict[int, Table] = {}
        for one in relations:
            topic = topic_of(one.parts, self.namespace)
            if topic not in columns:
                columns[topic] = self.columns_of(topic)
            options = {**self._connection, "topic": topic, "metadata": "all"}
            view = f"topic_{len(found)}_of_statement"
            found[one.start] = Table(topic, view, columns[topic], mentioned(text), options)
        return found

    def _ask_stand_ins(self, statement: str, may_narrow: bool) -> None:
        numbers = {}
        for table in self.tables:
            empty = self._spark.createDataFrame(self._spark.sparkContext.emptyRDD(), table.columns)
            numbers[stand_in_number(optimised(empty))] = table
            table.made_from(empty).createOrReplaceTempView(table.view)
        for number, needs in needs_of(optimised(self._spark.sql(statement))).items():
            if number in numbers:
                numbers[number].read_as(needs)
                if may_narrow and needs.rows_max:
                    self._narrow(numbers[number], needs.rows_max)

    def _narrow(self, table: Table, rows_max: int) -> None:
        """End where enough messages were read, if there are more than that."""
        options = source_options(table.options, streaming=False)
        planner = Planner(cluster(options.connection), options)
        topics = planner.topics()
        starts, ends = planner.bound(topics, options.start), planner.bound(topics, options.end)
        reached = planner.limited(starts, ends, rows_max, None)
        if reached != ends:
            table.options["startingOffsets"] = json.dumps(offsets_to_json(starts))
            table.options["endingOffsets"] = json.dumps(offsets_to_json(reached))
            self.narrowed_to = rows_max


def _told(rows: Iterator[Row]) -> Iterator[Row]:
    """Rows; what goes wrong on the way is one sentence."""
    try:
        yield from rows
    except Exception as error:
        raise failed(error) from None
