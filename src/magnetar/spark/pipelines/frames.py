# SPDX-License-Identifier: Apache-2.0
"""From a pipeline's words to Spark's DataFrames: sources first, then steps in their order.

Each is a view of its name, so that SQL finds it. Rows that cannot be read, or for which a function raises, are kept
apart where the pipeline has a dead-letter topic.
Assembles.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as functions

from magnetar.errors import BadSetting, MagnetarError, TopicNotFound
from magnetar.names import TopicName
from magnetar.spark.pipelines.functions import applied, is_of_frames
from magnetar.spark.pipelines.spec import PipelineSpec, Place, Source, Step, Watermark
from magnetar.spark.sentences import QueryFailed, sentence_of
from magnetar.spark.sql.topics import Topics

ERROR: Final = "__error"

Finder = Callable[[str], Callable[..., Any]]
"""Finds a function by what YAML calls it: file.py:name."""


@dataclass(slots=True)
class Frames:
    """By the names of sources and steps; and the rows that cannot be processed, each with the step that refused it."""

    by_name: dict[str, DataFrame] = field(default_factory=dict)
    bad: list[DataFrame] = field(default_factory=list)


class FrameBuilder:
    def __init__(
        self, spark: SparkSession, spec: PipelineSpec, connection: Mapping[str, str], find: Finder | None = None
    ) -> None:
        """`connection`: options of the data source for what the pipeline's file leaves open."""
        self._spark = spark
        self._spec = spec
        self._connection = {**connection, **spec.cluster}
        self._find = find

    @property
    def connection(self) -> dict[str, str]:
        return self._connection

    def build(self) -> Frames:
        """Raises BadSetting, TopicNotFound or QueryFailed, naming the source or step."""
        made = Frames()
        for source in self._spec.sources:
            self._named(f"source {source.name}", partial(self._add_source, made, source))
        for step in self._spec.steps:
            self._named(f"step {step.name}", partial(self._add_step, made, step))
        return made

    def _named(self, where: str, build: Callable[[], None]) -> None:
        try:
            build()
        except (PySparkException, Py4JJavaError, MagnetarError) as error:
            kind = type(error) if isinstance(error, (BadSetting, TopicNotFound)) else QueryFailed
            raise kind(f"{where}: {sentence_of(error)}") from None

    def _add_source(self, made: Frames, source: Source) -> None:
        frame = self._read(source)
        if source.place is Place.TOPIC and self._spec.dead_letter is not None and ERROR in frame.columns:
            made.bad.append(self._refused(frame.where(f"{ERROR} is not null"), source.name))
            frame = frame.where(f"{ERROR} is null").drop(ERROR)
        self._keep(made, source.name, frame, source.watermark)

    def _read(self, source: Source) -> DataFrame:
        options = dict(source.options)
        if source.place is Place.TOPIC:
            options = self._topic_options(options)
        reader: Any = self._spark.readStream if source.is_stream else self._spark.read
        reader = reader.format(source.format).options(**options)
        if source.place is Place.JDBC:
            return _frame(reader.option("url", source.address).load())
        if source.schema is not None:
            reader = reader.schema(source.schema)
        return _frame(reader.load(source.address) if source.address else reader.load())

    def _topic_options(self, options: dict[str, str]) -> dict[str, str]:
        options = {**self._connection, **options}
        named = options["topic"].split() if "topic" in options else options.get("topics", "").split(",")
        topics = Topics(self._connection)
        for topic in filter(None, (one.strip() for one in named)):
            topics.check(_whole(topic))
        if self._spec.dead_letter is not None:
            options.setdefault("badRows", "column")
        return options

    def _add_step(self, made: Frames, step: Step) -> None:
        if step.sql is not None:
            frame = self._spark.sql(step.sql)
        else:
            assert step.python is not None
            function = step.python if callable(step.python) else self._found(step.python)
            if is_of_frames(function):
                frame = function(*(made.by_name[name] for name in step.inputs))
                if not isinstance(frame, DataFrame):
                    raise BadSetting("the function should return a DataFrame")
            else:
                frame = self._applied(made, step, function)
        self._keep(made, step.name, frame, step.watermark)

    def _found(self, text: str) -> Callable[..., Any]:
        if self._find is None:
            raise BadSetting(f"the function {text} cannot be found: there is no file beside which it would be")
        return self._find(text)

    def _applied(self, made: Frames, step: Step, function: Callable[..., Any]) -> DataFrame:
        if len(step.inputs) != 1:
            raise BadSetting("a function of columns takes one source or step: say from")
        keeps_bad = self._spec.dead_letter is not None
        split = applied(made.by_name[step.inputs[0]], function, step.into, keeps_bad=keeps_bad)
        if split.bad is not None:
            made.bad.append(self._refused(split.bad, step.name))
        return split.good

    def _keep(self, made: Frames, name: str, frame: DataFrame, watermark: Watermark | None) -> None:
        if watermark is not None:
            frame = frame.withWatermark(watermark.column, watermark.delay)
        frame.createOrReplaceTempView(name)
        made.by_name[name] = frame

    def _refused(self, frame: DataFrame, where: str) -> DataFrame:
        """A row for the dead-letter topic: what is known of it as JSON, why and where in its properties."""
        rest = [functions.col(f"`{name}`") for name in frame.columns if name != ERROR]
        key = functions.col("__key") if "__key" in frame.columns else functions.lit(None).cast("binary")
        properties = functions.create_map(
            *(functions.lit(one) for one in ("pipeline", self._spec.name, "step", where, "error")),
            functions.col(ERROR),
        )
        return frame.select(
            functions.to_json(functions.struct(*rest)).alias("value"),
            key.alias("__key"),
            properties.alias("__messageProperties"),
        )


def _frame(made: Any) -> DataFrame:
    assert isinstance(made, DataFrame)
    return made


def _whole(topic: str) -> str:
    return str(TopicName.parse(topic))
