# SPDX-License-Identifier: Apache-2.0
"""`magnetar sql` and `magnetar pipeline` as people use them: the shell, the server, pipelines in the background."""

import io
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from magnetar.blocking import Client
from magnetar.cli.pipeline import run_pipeline
from magnetar.cli.sql import _offer, _Shell
from magnetar.names import TopicName
from magnetar.spark.sql.served import ServedTopics
from magnetar.spark.sql.topic_sql import TopicSql
from tests.processes import StandaloneProcess
from tests.spark.in_process import read_batch
from tests.spark.test_driver_kills import everywhere
from tests.spark.test_source_reads import publish

HOUSE = Path(__file__).resolve().parents[2]


@pytest.fixture
def shell(spark: SparkSession, standalone: StandaloneProcess) -> Iterator[Callable[..., _Shell]]:
    sql = TopicSql(spark, {"service.url": standalone.service_url})

    def made(**more: Any) -> _Shell:
        given = {"output": "table", "to": None, "explain": False, "admin_url": standalone.web_url}
        return _Shell(sql, {**given, **more})

    yield made
    spark.conf.unset("spark.sql.ansi.doubleQuotedIdentifiers")


@pytest.mark.feature("F-SQL-01", "D-24")
def test_a_conversation(
    shell: Callable[..., _Shell],
    client: Client,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    publish(client, topic, 25)
    name = topic.rpartition("/")[2]
    lines = (
        "show databases;\nuse public/default;\nshow tables;\n"
        f'describe "{name}";\nselect nothing\nfrom "{name}";\n'
        f'select cast(value as string) as text,\n __key__ from "{name}" where __index = 7; exit;\nquit\nselect 1;\n'
    )
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    assert shell().converse() == 0
    said = capsys.readouterr()
    assert "public/default" in said.out
    assert name in said.out
    assert "__index" in said.out
    assert "text | __key__\n-----+--------\n7    | k2\n(1 row)\n" in said.out
    assert "magnetar: A column, variable, or function parameter with name `nothing` cannot be resolved" in said.err


@pytest.mark.feature("F-SQL-01")
def test_results_as_csv_json_and_parquet(
    shell: Callable[..., _Shell],
    spark: SparkSession,
    client: Client,
    topic: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    publish(client, topic, 25)
    query = f"select __index as n, cast(value as string) as text from `{topic.rpartition('/')[2]}` where __index < 2"
    shell(output="csv").run(query)
    assert capsys.readouterr().out == "n,text\n0,0\n1,1\n"
    shell(output="json", to=str(tmp_path / "rows.json")).run(query)
    rows = [json.loads(line) for line in (tmp_path / "rows.json").read_text().splitlines()]
    assert rows == [{"n": 0, "text": "0"}, {"n": 1, "text": "1"}]
    shell(output="parquet", to=str(tmp_path / "rows")).run(query)
    assert spark.read.parquet(str(tmp_path / "rows")).count() == 2
    shell(explain=True).run(query)
    said = capsys.readouterr().out
    assert f'{topic}: {{"columns": "value,__index", "keys": "all"}}' in said
    assert "25 messages, through broker" in said


def environment(tmp_path: Path) -> dict[str, str]:
    paths = os.pathsep.join(filter(None, (str(HOUSE / "src"), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "PYTHONPATH": paths}


def length_of(data: bytes, place: int) -> tuple[int, int]:
    """A protobuf number, and the place behind it."""
    value = shift = 0
    while True:
        byte = data[place]
        value, shift, place = value | (byte & 0x7F) << shift, shift + 7, place + 1
        if byte < 0x80:
            return value, place


def field(number: int, payload: bytes) -> bytes:
    size, left = b"", len(payload)
    while left >= 0x80:
        size, left = size + bytes([left & 0x7F | 0x80]), left >> 7
    return bytes([number << 3 | 2]) + size + bytes([left]) + payload


def fields(data: bytes) -> dict[int, bytes]:
    """Those of a protobuf message that have a length."""
    found, place = {}, 0
    while place < len(data):
        tag, place = length_of(data, place)
        value, place = length_of(data, place)
        if tag & 7 == 2:
            found[tag >> 3] = data[place : place + value]
            place += value
    return found


def ask_connect(address: str, query: str) -> list[dict[str, Any]]:
    """What a client of Spark Connect does, without one: an ExecutePlanRequest over gRPC, and batches of Arrow back."""
    plan = field(1, field(10, field(1, query.encode())))
    request = field(1, str(uuid.uuid4()).encode()) + field(2, field(1, b"test")) + field(3, plan)
    with grpc.insecure_channel(address.removeprefix("sc://")) as channel:
        call = channel.unary_stream("/spark.connect.SparkConnectService/ExecutePlan")
        found: list[dict[str, Any]] = []
        for answer in call(request, timeout=100):
            batch = fields(answer).get(2)
            if batch is not None:
                found += pa.ipc.open_stream(fields(batch)[2]).read_all().to_pylist()
        return found


@pytest.fixture
def served_topic(client: Client, admin: httpx.Client, request: pytest.FixtureRequest) -> str:
    namespace = f"public/served-{'process' if 'process' in request.node.name else 'session'}"
    assert admin.put(f"/namespaces/{namespace}").is_success
    topic = f"persistent://{namespace}/numbers"
    publish(client, topic, 25)
    return topic


def queries(ui: str) -> dict[int, str]:
    """How each of a session's queries ended, as the UI lists them: the first twenty, unless it is asked for more."""
    (app, *_) = httpx.get(f"{ui}/api/v1/applications", timeout=60).json()
    listed = httpx.get(f"{ui}/api/v1/applications/{app['id']}/sql?details=false&length=100000", timeout=60).json()
    return {one["id"]: one["status"] for one in listed}


def check_served(told: dict[str, Any], topic: str, eventually: Callable[..., bool]) -> None:
    """By a client of Spark Connect, and by whoever looks at the UI."""
    assert told["ui"].startswith(("http://127.0.0.1:", "http://localhost:"))
    view = topic.removeprefix("persistent://")
    assert view in told["tables"]
    before = queries(told["ui"])
    rows = ask_connect(told["connect"], f"select count(*) as n from global_temp.`{view}` where __partition__ = 0")
    assert rows == [{"n": 25}]
    eventually(lambda: "COMPLETED" in {how for one, how in queries(told["ui"]).items() if one not in before})


@pytest.mark.feature("F-SQL-01", "F-SQL-08")
def test_others_join_through_spark_connect_and_the_ui_lists_their_query(
    spark: SparkSession,
    standalone: StandaloneProcess,
    served_topic: str,
    tmp_path: Path,
    eventually: Callable[..., bool],
) -> None:
    ready = tmp_path / "ready.json"
    given = {"namespace": str(TopicName.parse(served_topic).namespace), "ready_file": str(ready)}
    served = ServedTopics(spark, {"service.url": standalone.service_url})
    _offer(served, given, spark, spark.conf.get("spark.connect.grpc.binding.port") or "")
    check_served(json.loads(ready.read_text()), served_topic, eventually)


@everywhere
@pytest.mark.timeout(600)
@pytest.mark.feature("F-SQL-01", "F-SQL-08")
def test_a_process_serves_others(
    standalone: StandaloneProcess, served_topic: str, tmp_path: Path, eventually: Callable[..., bool]
) -> None:
    ready = tmp_path / "ready.json"
    command = [sys.executable, "-m", "magnetar.cli.entry", "sql", "--serve", "--port", "0", "--ready-file", str(ready)]
    command += ["--url", standalone.service_url, "--admin-url", standalone.web_url, "--master", "local[1]"]
    command += ["--namespace", str(TopicName.parse(served_topic).namespace)]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env=environment(tmp_path))
    try:
        eventually(lambda: ready.exists() or server.poll() is not None, limit_s=500)
        assert server.poll() is None, (tmp_path / "log").read_text()[-2000:]
        check_served(json.loads(ready.read_text()), served_topic, eventually)
    finally:
        server.terminate()
        server.wait(60)


PIPELINE = """
name: copied
sources:
  messages: {{topic: "{topic}", startingOffsets: earliest, maxMessagesPerTrigger: 30}}
sinks:
  - {{from: messages, topic: "{topic}-out"}}
checkpoint: {checkpoint}
"""


STEPPED = """
name: stepped
variables: {{most: 10}}
sources:
  messages: {{topic: "{topic}", startingOffsets: earliest, columns: "value,__index"}}
steps:
  - {{name: few, sql: "select value, {column} as number from messages where __index < ${{most}}"}}
sinks:
  - {{from: few, topic: "{topic}-out", schemaType: json}}
checkpoint: {checkpoint}
"""


@pytest.fixture
def stepped(client: Client, topic: str, tmp_path: Path, checkpoint: str) -> Callable[[str], str]:
    """The path of a pipeline's file, over a topic of fifty messages, whose step names a column."""
    publish(client, topic, 50)

    def write(column: str) -> str:
        file = tmp_path / "stepped.yaml"
        file.write_text(STEPPED.format(topic=topic, column=column, checkpoint=checkpoint))
        return str(file)

    return write


RIGHT = "stepped is right: a stream of 1 sources, 1 steps, 1 sinks\n"


def check_explained(said: str, topic: str) -> None:
    assert "messages (stream): value binary, __index bigint\n" in said
    assert "few (stream): value binary, number bigint\n" in said
    assert f"\nfew → topic {topic}-out (append)\n" in said
    assert "== Physical Plan ==" in said


def check_untouched(admin: httpx.Client, topic: str, checkpoint: str) -> None:
    """Nothing was read, written or remembered."""
    assert f"{topic}-out" not in admin.get("/persistent/public/default").json()
    assert admin.get(f"/{topic.replace('://', '/')}/stats").json()["msgOutCounter"] == 0
    assert not Path(checkpoint).exists()


@pytest.mark.feature("F-SPK-10")
def test_a_pipeline_is_checked_and_explained_before_it_runs(
    spark: SparkSession,
    standalone: StandaloneProcess,
    admin: httpx.Client,
    topic: str,
    stepped: Callable[[str], str],
    checkpoint: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    # The commands find a session that is there, and would end it for all other tests.
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)

    def magnetar(*words: str) -> tuple[int, str, str]:
        code = run_pipeline((*words, "--url", standalone.service_url))
        spark.sparkContext.setLogLevel("ERROR")
        return code, *capfd.readouterr()

    file = stepped("__index")
    code, said, _ = magnetar("check", file, "--set", "most=20")
    assert (code, said) == (0, RIGHT)
    code, said, _ = magnetar("explain", file, "--set", "most=20")
    assert code == 0
    check_explained(said, topic)
    assert "< 20" in said
    code, said, errors = magnetar("check", file, "--set", "most")
    assert (code, said) == (2, "")
    assert "--set 'most' should be name=value" in errors
    code, said, errors = magnetar("check", stepped("absent"))
    assert (code, said) == (1, "")
    assert (
        "magnetar: step few: A column, variable, or function parameter with name `absent` cannot be resolved" in errors
    )
    check_untouched(admin, topic, checkpoint)


@everywhere
@pytest.mark.timeout(600)
@pytest.mark.feature("F-SPK-10")
def test_processes_check_and_explain_a_pipeline(
    standalone: StandaloneProcess,
    admin: httpx.Client,
    topic: str,
    stepped: Callable[[str], str],
    tmp_path: Path,
    checkpoint: str,
) -> None:
    def magnetar(verb: str) -> str:
        command = [sys.executable, "-m", "magnetar.cli.entry", "pipeline", verb, stepped("__index")]
        command += ["--url", standalone.service_url, "--master", "local[1]", "--conf", "spark.ui.enabled=false"]
        made = environment(tmp_path)
        done = subprocess.run(command, env=made, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    assert magnetar("check") == RIGHT
    check_explained(magnetar("explain"), topic)
    check_untouched(admin, topic, checkpoint)


@pytest.mark.timeout(600)
@pytest.mark.feature("F-SPK-10")
def test_a_pipeline_in_the_background(
    standalone: StandaloneProcess,
    client: Client,
    topic: str,
    options: dict[str, str],
    tmp_path: Path,
    checkpoint: str,
    eventually: Callable[..., bool],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    publish(client, topic, 50)
    file = tmp_path / "copied.yaml"
    file.write_text(PIPELINE.format(topic=topic, checkpoint=checkpoint))

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPATH", environment(tmp_path)["PYTHONPATH"])

    def magnetar(*words: str) -> tuple[int, str]:
        """As the command line does it, without the time that a process takes to start."""
        code = run_pipeline(words)
        said = capfd.readouterr()
        return code, said.out + said.err

    command = [sys.executable, "-m", "magnetar.cli.entry", "pipeline", "submit", str(file)]
    subprocess.run([*command, "--url", standalone.service_url, "--master", "local[1]"], check=True)
    capfd.readouterr()
    try:
        code, said = magnetar("submit", str(file), "--url", standalone.service_url)
        assert (code, "runs already" in said) == (1, True)

        def has_read_all() -> bool:
            states = json.loads(magnetar("list", "--json")[1])
            assert states[0]["state"] in ("starting", "running"), states
            return bool(states[0]["queries"]) and states[0]["queries"][0]["rows"] == 50

        eventually(has_read_all, limit_s=400)
        code, said = magnetar("status", "copied")
        assert code == 0
        assert f"{topic}: lag 0 messages" in said
    finally:
        code, said = magnetar("stop", "copied")
    assert (code, said) == (0, "copied is stopped\n")
    assert magnetar("status", "copied")[1].startswith("copied  stopped")
    assert magnetar("stop", "copied")[0] == 1
    assert read_batch({**options, "topic": f"{topic}-out"}).numbers == list(range(50))
    assert magnetar("status", "absent") == (5, "magnetar: No pipeline absent has run here\n")
