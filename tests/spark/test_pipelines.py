# SPDX-License-Identifier: Apache-2.0
"""The reference pipelines of examples/pipelines, each from its file, end to end."""

import contextlib
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pulsar
import pytest
from pyspark.sql import SparkSession

from magnetar.blocking import Client
from magnetar.cli.pipeline_file import finder_beside, load_pipeline
from magnetar.client.options import ConsumerType, DeadLetterPolicy, InitialPosition
from magnetar.errors import MagnetarError, TimedOut
from magnetar.spark.pipelines.frames import FrameBuilder
from magnetar.spark.pipelines.keyed_table import read_table
from magnetar.spark.pipelines.run import PipelineRun
from tests.processes import StandaloneProcess
from tests.spark.in_process import read_batch
from tests.spark.test_source_reads import publish

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "pipelines"
Rows = list[dict[str, Any]]
Runs = Callable[..., PipelineRun]


@pytest.fixture
def pipeline(spark: SparkSession, standalone: StandaloneProcess, tmp_path: Path) -> Runs:
    """Runs an example to its end, over what is there now; again with the same names it goes on."""

    def run(file: str | Path, **variables: str) -> PipelineRun:
        path = str(EXAMPLES / file)
        text = Path(path).read_text()
        if "checkpoint:" in text or "checkpoint=" in text:
            variables.setdefault("checkpoint", str(tmp_path / "checkpoint"))
        spec = load_pipeline(path, variables)
        builder = FrameBuilder(spark, spec, {"service.url": standalone.service_url}, finder_beside(path))
        made = PipelineRun(spark, spec, builder, only_now=True)
        made.start()
        while not made.is_done:
            made.turn()
        made.check()
        return made

    return run


@pytest.fixture
def rows_of(standalone: StandaloneProcess) -> Callable[..., Rows]:
    def rows(topic: str, **more: str) -> Rows:
        return read_batch({"service.url": standalone.service_url, "topic": topic, **more}).rows

    return rows


def send(standalone: StandaloneProcess, topic: str, kind: type, rows: list[Mapping[str, Any]]) -> None:
    """JSON records through Apache Pulsar's client; `key` and `at` describe the message."""
    client = pulsar.Client(standalone.service_url)
    producer = client.create_producer(topic, schema=pulsar.schema.JsonSchema(kind))
    for row in rows:
        values = {name: value for name, value in row.items() if name not in ("key", "at")}
        producer.send(kind(**values), partition_key=row.get("key", ""), event_timestamp=row.get("at"))
    client.close()


@pytest.mark.feature("F-SPK-10", "F-IO-01")
def test_a_topic_to_parquet_by_day(
    spark: SparkSession, client: Client, admin: httpx.Client, topic: str, pipeline: Runs, tmp_path: Path
) -> None:
    publish(client, topic, 100)
    files = str(tmp_path / "files")
    pipeline("topic-to-parquet.yaml", topic=topic, files=files)
    publish(client, topic, 50, start=100)
    again = pipeline("topic-to-parquet.yaml", topic=topic, files=files)
    assert sum(one.rows for one in again.states) == 50
    found = spark.read.parquet(files)
    assert sorted(int(row.value) for row in found.select("value").collect()) == list(range(150))
    days = {str(row.day) for row in found.select("day").distinct().collect()}
    assert days <= {path.name.removeprefix("day=") for path in Path(files).glob("day=*")}
    stats = admin.get(f"/{topic.replace('://', '/')}/stats").json()
    assert stats["subscriptions"]["topic-to-parquet"]["msgBacklog"] == 0


@pytest.mark.feature("F-SPK-10")
def test_the_latest_value_of_each_key(
    spark: SparkSession, client: Client, topic: str, pipeline: Runs, tmp_path: Path
) -> None:
    table = str(tmp_path / "table")
    with client.create_producer(topic) as producer:
        for number in range(40):
            producer.send(str(number).encode(), partition_key=f"k{number % 4}")
    pipeline("latest-per-key.yaml", topic=topic, table=table)
    assert {row.key: row.value for row in read_table(spark, table).collect()} == {
        f"k{n}": str(36 + n) for n in range(4)
    }
    with client.create_producer(topic) as producer:
        producer.send(b"new", partition_key="k1")
        producer.send(b"", partition_key="k2")
    pipeline("latest-per-key.yaml", topic=topic, table=table)
    found = {row.key: row.value for row in read_table(spark, table).collect()}
    assert found == {"k0": "36", "k1": "new", "k3": "39"}


@pytest.mark.feature("F-SPK-10")
def test_usage_of_each_tenant(
    spark: SparkSession, client: Client, admin: httpx.Client, topic: str, pipeline: Runs, tmp_path: Path
) -> None:
    clusters = admin.get("/clusters").json()
    assert admin.put("/tenants/metered", json={"allowedClusters": clusters, "adminRoles": []}).is_success
    assert admin.put("/namespaces/metered/one").is_success
    other, table = "persistent://metered/one/topic", str(tmp_path / "usage")
    publish(client, topic, 100)
    publish(client, other, 50)
    for more in (0, 25):
        if more:
            publish(client, other, more)
        pipeline("usage-metering.yaml", topics=f"{topic},{other}", table=table)
        found = read_table(spark, table).groupBy("tenant").sum("messages", "bytes").collect()
        assert {row.tenant: (row[1], row[2]) for row in found} == {
            "public": (100, sum(len(str(n)) for n in range(100))),
            "metered": (50 + more, sum(len(str(n)) for n in (*range(50), *range(more)))),
        }


@pytest.mark.feature("F-SPK-10")
def test_dead_letters_are_counted_and_sent_again_once(
    spark: SparkSession, client: Client, topic: str, pipeline: Runs, rows_of: Callable[..., Rows], tmp_path: Path
) -> None:
    """The letters are made as consumers make them: messages that nobody could process."""
    dead = f"{topic}-billing-DLQ"
    publish(client, topic, 5)
    consumer = client.subscribe(
        topic,
        "billing",
        consumer_type=ConsumerType.Shared,
        initial_position=InitialPosition.Earliest,
        negative_ack_redelivery_delay_ms=100,
        dead_letter_policy=DeadLetterPolicy(1, dead),
    )
    waiting = client.subscribe(dead, "check", initial_position=InitialPosition.Earliest)
    letters: list[Any] = []
    while len(letters) < 5:
        with contextlib.suppress(TimedOut):
            consumer.negative_acknowledge(consumer.receive(300))
        with contextlib.suppress(TimedOut):
            letters.append(waiting.receive(50))
    consumer.close()
    waiting.close()
    assert {one.properties()["REAL_TOPIC"] for one in letters} == {topic}
    report = str(tmp_path / "report")
    for _ in range(2):
        pipeline("dead-letters.yaml", dead_letters=dead, report=report, run="one")
    assert len(rows_of(topic)) == 10
    sent_again = [row for row in rows_of(topic) if int(row["value"]) < 5][5:]
    assert sorted(int(row["value"]) for row in sent_again) == list(range(5))
    (told, *_) = [row.asDict() for row in spark.read.json(f"{report}/one").collect()]
    assert (told["topic"], told["messages"]) == (topic, 5)


class Metric(pulsar.schema.Record):  # type: ignore[misc]
    name = pulsar.schema.String()
    reading = pulsar.schema.Double()


@pytest.mark.feature("F-SPK-10")
def test_metrics_by_minute(
    standalone: StandaloneProcess, topic: str, pipeline: Runs, rows_of: Callable[..., Rows]
) -> None:
    start_ms = 1_760_000_040_000  # a whole minute
    rows = [{"name": "load", "reading": float(n), "at": start_ms + n * 1000} for n in range(120)]
    send(standalone, topic, Metric, [*rows[:50], rows[60], rows[50], *rows[61:]])
    out = f"{topic}-out"
    pipeline("metrics-rollup.yaml", topic=topic, out=out)
    send(standalone, topic, Metric, [{"name": "load", "reading": 0.0, "at": start_ms + 600_000}])
    pipeline("metrics-rollup.yaml", topic=topic, out=out)
    found = sorted((row["minute"], row["count"], row["most"]) for row in rows_of(out))
    minutes = [datetime.fromtimestamp(start_ms / 1000 + 60 * n, UTC).strftime("%Y-%m-%d %H:%M:00") for n in range(2)]
    assert found == [(minutes[0], 51, 50.0), (minutes[1], 60, 119.0)]


@pytest.mark.feature("F-SPK-10")
def test_a_span_of_time_is_replayed_once(
    client: Client, topic: str, pipeline: Runs, rows_of: Callable[..., Rows], eventually: Callable[..., bool]
) -> None:
    def now_ms() -> int:
        return int(datetime.now(UTC).timestamp() * 1000)

    publish(client, topic, 25)
    begin = now_ms() + 2
    eventually(lambda: now_ms() > begin)
    publish(client, topic, 25, start=25)
    end = now_ms() + 2
    eventually(lambda: now_ms() > end)
    publish(client, topic, 25, start=50)
    span = {"from": datetime.fromtimestamp(begin / 1000, UTC).isoformat(), "until": str(end)}
    for _ in range(2):
        pipeline("replay.yaml", topic=topic, out=f"{topic}-out", run="r1", **span)
    found = rows_of(f"{topic}-out")
    assert sorted(int(row["value"]) for row in found) == list(range(25, 50))
    assert {dict(row["__messageProperties"])["replayed-from"] for row in found} == {topic}
    assert {row["__key"] for row in found} == {f"k{n}".encode() for n in range(5)}


class Order(pulsar.schema.Record):  # type: ignore[misc]
    customer = pulsar.schema.String()
    amount = pulsar.schema.Integer()


@pytest.mark.feature("F-SPK-10", "F-PLAT-13")
def test_enrichment_with_a_table_a_function_and_a_dead_letter_topic(
    standalone: StandaloneProcess, topic: str, pipeline: Runs, rows_of: Callable[..., Rows], tmp_path: Path
) -> None:
    customers = tmp_path / "customers.csv"
    customers.write_text("customer,discount\nann,0.5\n")
    send(
        standalone,
        topic,
        Order,
        [
            {"customer": "ann", "amount": 300, "key": "1"},
            {"customer": "bob", "amount": 20, "key": "2"},
            {"customer": "ann", "amount": -1, "key": "3"},
        ],
    )
    out, refused = f"{topic}-out", f"{topic}-refused"
    given = {"topic": topic, "out": out, "refused": refused, "customers": str(customers)}
    pipeline("enrichment.yaml", **given)
    pipeline("enrichment.yaml", **given)
    found = {row["__key"]: (row["total"], row["is_large"]) for row in rows_of(out)}
    assert found == {b"1": (150.0, True), b"2": (20.0, False)}
    (letter,) = rows_of(refused)
    assert letter["__key"] == b"3"
    assert dict(letter["__messageProperties"]) == {
        "pipeline": "enrichment",
        "step": "priced",
        "error": "ValueError: an order of -1 has no price",
    }
    assert json.loads(letter["value"])["amount"] == -1


class Change(pulsar.schema.Record):  # type: ignore[misc]
    op = pulsar.schema.String()
    id = pulsar.schema.Integer()
    name = pulsar.schema.String()
    city = pulsar.schema.String()


@pytest.mark.feature("F-SPK-10", "F-IO-01")
def test_changes_of_a_database_make_a_table_in_another(
    spark: SparkSession, standalone: StandaloneProcess, topic: str, pipeline: Runs, tmp_path: Path
) -> None:
    jvm: Any = spark._jvm
    jvm.java.lang.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))
    given = {"topic": topic, "database": f"jdbc:derby:{tmp_path / 'shop'};create=true", "table": "customers"}

    def table() -> dict[int, tuple[str, str]]:
        read = spark.read.format("jdbc").options(url=given["database"], dbtable="customers")
        return {row.id: (row.name, row.city) for row in read.load().collect()}

    def change(op: str, number: int, name: str = "", city: str = "") -> dict[str, Any]:
        return {"op": op, "id": number, "name": name, "city": city, "key": str(number)}

    send(standalone, topic, Change, [change("c", 1, "ann", "Bern"), change("c", 2, "bob", "Linz")])
    pipeline("cdc-to-table.yaml", **given)
    assert table() == {1: ("ann", "Bern"), 2: ("bob", "Linz")}
    send(standalone, topic, Change, [change("u", 1, "ann", "Graz"), change("c", 3, "eve", "Wien"), change("d", 2)])
    pipeline("cdc-to-table.yaml", **given)
    assert table() == {1: ("ann", "Graz"), 3: ("eve", "Wien")}
    # A batch that comes again, as after a crash between the database's commit and Spark's, changes nothing.
    commits = sorted((tmp_path / "checkpoint" / "rows-1" / "commits").glob("[0-9]*"))
    for leftover in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
        leftover.unlink(missing_ok=True)
    connection = jvm.java.sql.DriverManager.getConnection(given["database"])
    connection.createStatement().executeUpdate('update customers set "city" = \'touched\' where "id" = 3')
    connection.close()
    pipeline("cdc-to-table.yaml", **given)
    assert table() == {1: ("ann", "Graz"), 3: ("eve", "touched")}


@pytest.mark.feature("F-SPK-10")
def test_a_pipeline_in_python_keeps_state(
    client: Client, topic: str, pipeline: Runs, rows_of: Callable[..., Rows]
) -> None:
    out = f"{topic}-out"
    publish(client, topic, 10)
    pipeline("visits.py", topic=topic, out=out)
    publish(client, topic, 5)
    pipeline("visits.py", topic=topic, out=out)
    found = [(row["user"], row["seen"]) for row in rows_of(out)]
    assert sorted(found) == sorted([(f"k{n}", 2) for n in range(5)] + [(f"k{n}", 3) for n in range(5)])


FLAKY = """
name: flaky
variables: {{topic: x, out: y, checkpoint: z}}
sources:
  messages: {{topic: "${{topic}}", startingOffsets: earliest, maxMessagesPerTrigger: 20}}
steps:
  - {{name: mended, from: messages, python: "steps.py:mended", into: seen}}
  - {{name: out, sql: "select seen as value from mended"}}
sinks:
  - {{from: out, topic: "${{out}}"}}
checkpoint: ${{checkpoint}}
retries: {{times: {times}, first: 10ms, most: 50ms}}
"""
STEPS = """
from pathlib import Path

def mended(value: bytes) -> str:
    if int(value) == 50 and not Path({file!r}).exists():
        raise RuntimeError("the thing is broken")
    return value.decode()
"""


def test_a_query_that_fails_is_tried_again_and_goes_on_where_it_was(
    spark: SparkSession, standalone: StandaloneProcess, client: Client, topic: str, tmp_path: Path
) -> None:
    mended = tmp_path / "mended"
    (tmp_path / "flaky.yaml").write_text(FLAKY.format(times=50))
    (tmp_path / "steps.py").write_text(STEPS.format(file=str(mended)))
    publish(client, topic, 100)
    path = str(tmp_path / "flaky.yaml")
    variables = {"topic": topic, "out": f"{topic}-out", "checkpoint": str(tmp_path / "checkpoint")}
    spec = load_pipeline(path, variables)
    connection = {"service.url": standalone.service_url}
    run = PipelineRun(spark, spec, FrameBuilder(spark, spec, connection, finder_beside(path)), only_now=True)
    run.start()
    failures, lag = 0, 0
    while not run.is_done:
        (state,) = run.turn()
        failures = max(failures, state.failures)
        lag = max(lag, sum(one.messages or 0 for one in state.lag.values()))
        if state.state == "waiting to retry":
            assert "the thing is broken" in (state.error or "")
            mended.touch()
    run.check()
    assert failures >= 1
    assert lag >= 20
    found = read_batch({**connection, "topic": f"{topic}-out", "metadata": "none"})
    assert found.numbers == list(range(100))
    assert run.states[0].line().startswith("out-1: ended, batch 4")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sources: {a: {topic: absent-topic}}", "source a: There is no topic persistent://public/default/absent-topic"),
        ("sources: {a: {files: /absent}}", "source a: Path does not exist"),
        ("sources: {a: {files: FILES}}\nsteps: [{name: b, sql: selec 1}]", "step b: Syntax error at or near 'selec'"),
        (
            "sources: {a: {files: FILES}}\nsteps: [{name: b, from: a, python: 'x.py:f'}]",
            "step b: python: 'x.py:f' should",
        ),
        (
            "sources: {a: {files: FILES}}\nsteps: [{name: b, from: a, python: 'steps.py:f'}]",
            "step b: f takes text as int, and the column is string",
        ),
    ],
)
def test_what_is_wrong_with_a_pipeline_is_one_sentence(
    spark: SparkSession, standalone: StandaloneProcess, tmp_path: Path, text: str, said: str
) -> None:
    files = tmp_path / "data"
    files.mkdir()
    (files / "a.json").write_text('{"text": "x"}\n')
    (tmp_path / "steps.py").write_text("def f(text: int) -> int:\n    return text\n")
    text = text.replace("FILES", f"{files}, format: json")
    file = tmp_path / "wrong.yaml"
    file.write_text(f"name: wrong\nsinks: [{{from: a, console: true}}]\ncheckpoint: {tmp_path}/c\n{text}\n")
    spec = load_pipeline(str(file), {})
    with pytest.raises(MagnetarError) as told:
        FrameBuilder(spark, spec, {"service.url": standalone.service_url}, finder_beside(str(file))).build()
    assert said in str(told.value)
    assert "\n" not in str(told.value)
