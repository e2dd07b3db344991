# SPDX-License-Identifier: Apache-2.0
"""The words of a pipeline's file; functions and their hints; how far a query is."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import DataFrame
from pyspark.sql import types as spark

from magnetar.errors import BadSetting, DamagedRecord
from magnetar.spark.archive.record import ArchivedFile, ArchiveRecord, check_chain
from magnetar.spark.offsets import Offset, Place
from magnetar.spark.pipelines.functions import checked_columns, is_of_frames, spark_type
from magnetar.spark.pipelines.pipeline import Pipeline
from magnetar.spark.pipelines.progress import QueryState, updated
from magnetar.spark.pipelines.spec import Retries, pipeline_spec, seconds_of

EXAMPLES = sorted((Path(__file__).resolve().parents[3] / "examples" / "pipelines").glob("*.yaml"))
WHOLE = """
name: p
sources: {a: {topic: t}}
steps: [{name: b, sql: select 1}]
sinks: [{from: b, console: true}]
checkpoint: c
"""


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_right(path: Path) -> None:
    spec = pipeline_spec(yaml.safe_load(path.read_text()))
    assert spec.name == path.stem


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("name: 'a b'", "the pipeline's name 'a b' should be"),
        ("sources: 3", "sources should be names"),
        ("sources: {}", "at least one source"),
        ("sources: {a: {topik: t}}", "source a should say topic, topics, topicsPattern, files or jdbc"),
        ("sources: {a: {topic: t, read: sometimes}}", "read is 'sometimes'; it should be one of stream, batch"),
        ("sources: {a: {topic: t, watermark: {column: x}}}", "source a: watermark: delay is missing"),
        ("sources: {a: {jdbc: u}}", "source a: table is missing"),
        ("sources: {'a-b': {topic: t}}", "'a-b' should be letters"),
        ("sources: {b: {topic: t}}", "the name b is given twice"),
        ("steps: {b: 1}", "steps should be a list"),
        ("steps: [{name: b}]", "step b should say sql or python"),
        ("steps: [{name: b, sql: x, form: a}]", "step b: there is no word 'form' here"),
        ("steps: [{name: b, from: [z], python: f}]", "step b takes z"),
        ("sinks: [{from: z, console: true}]", "takes z, which no source or step is called"),
        ("sinks: [{from: b}]", "should say topic, topics-by-row: true, files"),
        ("sinks: [{from: b, table: t}]", "a table needs key"),
        ("sinks: [{from: b, console: true, name: x}, {from: b, console: true, name: x}]", "given to two sinks"),
        ("checkpoint:", "needs checkpoint"),
        ("trigger: later", "trigger should be"),
        ("trigger: {every: soon}", "'soon'; it should be a time"),
        ("retries: {times: many}", "it should be a number"),
        ("colour: red", "the pipeline: there is no word 'colour' here"),
        ("dead-letter: ${x}", "${x} is used and not among the variables"),
    ],
)
def test_what_is_wrong_is_named(change: str, said: str) -> None:
    document = {**yaml.safe_load(WHOLE), **yaml.safe_load(change)}
    with pytest.raises(BadSetting) as told:
        pipeline_spec(document)
    assert said in str(told.value)


def test_variables_are_filled_in_and_unknown_ones_refused() -> None:
    document = {**yaml.safe_load(WHOLE), "variables": {"d": "one"}, "dead-letter": "${d}-x"}
    assert pipeline_spec(document).dead_letter == "one-x"
    assert pipeline_spec(document, {"d": "two"}).dead_letter == "two-x"
    with pytest.raises(BadSetting, match="no variable e; it has d"):
        pipeline_spec(document, {"e": "1"})
    with pytest.raises(BadSetting, match="should say name"):
        pipeline_spec([])


def test_python_and_yaml_say_the_same() -> None:
    made = Pipeline("p", checkpoint="c", dead_letter="d", cluster={"service.url": "u"})
    made.source("a", topic="t")
    made.sql("b", "select 1")

    @made.step
    def joined(a: DataFrame, b: DataFrame) -> DataFrame:
        return a

    @made.column("joined", into="twice")
    def double(n: int) -> int:
        return 2 * n

    made.sink("with_double", files="f", partition_by="n")
    spec = made.spec()
    assert [step.name for step in spec.steps] == ["b", "joined", "with_double"]
    assert spec.steps[1].inputs == ("a", "b")
    assert spec.steps[2].into == "twice"
    assert spec.dead_letter == "d"
    assert spec.sinks[0].partition_by == ("n",)


def test_pauses_grow_up_to_a_limit() -> None:
    retries = Retries(5, 1.0, 60.0)
    assert [retries.pause_s(n) for n in (1, 2, 3, 10)] == [1.0, 2.0, 4.0, 60.0]
    assert [seconds_of("x", text) for text in ("500ms", "2 s", "10 minutes", "1h")] == [0.5, 2.0, 600.0, 3600.0]


@dataclass
class Point:
    x: int
    name: str | None


def test_hints_are_types_of_spark() -> None:
    assert spark_type(list[int]) == spark.ArrayType(spark.LongType())
    assert spark_type(dict[str, float]) == spark.MapType(spark.StringType(), spark.DoubleType())
    assert spark_type(Point | None).simpleString() == "struct<x:bigint,name:string>"
    with pytest.raises(BadSetting, match="no type for the hint"):
        spark_type(object)


def test_columns_of_a_function_are_checked() -> None:
    def of_columns(n: int, text: str) -> float:
        return n + len(text)

    def of_frames(a: DataFrame) -> DataFrame:
        return a

    def unsaid(n: int):  # type: ignore[no-untyped-def]
        return n

    columns = spark.StructType().add("n", spark.IntegerType()).add("text", spark.StringType())
    assert checked_columns(of_columns, columns) == ["n", "text"]
    assert is_of_frames(of_frames)
    assert not is_of_frames(of_columns)
    with pytest.raises(BadSetting, match="takes text; the columns are n"):
        checked_columns(of_columns, spark.StructType().add("n", spark.IntegerType()))
    with pytest.raises(BadSetting, match="takes n as int, and the column is string"):
        checked_columns(of_columns, spark.StructType().add("n", "string").add("text", "string"))
    with pytest.raises(BadSetting, match="what it returns"):
        checked_columns(unsaid, columns)


def progress(batch: int, rows: int, end: int, latest: int) -> dict[str, Any]:
    def offsets(index: int) -> str:
        return f'{{"persistent://a/b/c": {{"index": {index}, "after": "1:{index}"}}}}'

    source = {"endOffset": offsets(end), "latestOffset": offsets(latest)}
    files = {"endOffset": '{"logOffset": 3}', "latestOffset": None}
    return {"batchId": batch, "numInputRows": rows, "processedRowsPerSecond": 10.0, "sources": [source, files]}


def test_progress_counts_each_batch_once_and_says_the_lag() -> None:
    state = QueryState("q", state="running")
    for told in (None, progress(0, 5, 5, 9), progress(0, 5, 5, 9), progress(1, 4, 9, 20)):
        updated(state, told)
    assert (state.batch, state.rows, state.rows_per_s) == (1, 9, 10.0)
    assert state.lag["persistent://a/b/c"].messages == 11
    state.lag["persistent://a/b/c"].seconds = 3.0
    assert state.line() == "q: running, batch 1, 9 rows, 10 rows/s, lag 11 messages in 1 partitions, 3 s"


def record(sequence: int, start: int, end: int, topic: str = "t") -> ArchiveRecord:
    def offset(index: int) -> dict[str, Offset]:
        return {topic: Offset(index, Place(1, index))}

    files = (ArchivedFile("_staging/x", "day/x", 3),)
    return ArchiveRecord(sequence, topic, offset(start), offset(end), files, {"type": "struct"})


def test_the_records_of_an_archive_follow_each_other() -> None:
    whole = [record(0, 0, 5), record(1, 5, 9)]
    check_chain(whole, "t")
    assert ArchiveRecord.decode(whole[1].encode(), "x") == whole[1]
    for broken in ([record(1, 0, 5)], [record(0, 0, 5), record(1, 6, 9)], [record(0, 0, 5), record(1, 5, 9, "u")]):
        with pytest.raises(DamagedRecord):
            check_chain(broken)
    with pytest.raises(BadSetting, match="the archive of t, not of u"):
        check_chain(whole, "u")
    for data in (b"", b"{}", b'{"version": 9}'):
        with pytest.raises(DamagedRecord, match="00"):
            ArchiveRecord.decode(data, "00.json")
