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


def check_served(told: dict[str, Any], topic: str) -> None:
    """By a client of Spark Connect, and by whoever looks at the UI."""
    view = topic.removeprefix("persistent://")
    assert view in told["tables"]
    rows = ask_connect(told["connect"], f"select count(*) as n from global_temp.`{view}` where __partition__ = 0")
    assert rows == [{"n": 25}]
    listed = httpx.get(f"{told['ui']}/api/v1/applications", timeout=30).json()
    queries = httpx.get(f"{told['ui']}/api/v1/applications/{listed[0]['id']}/sql", timeout=30).json()
    assert any(one["status"] == "COMPLETED" for one in queries)
    assert told["ui"].startswith(("http://127.0.0.1:", "http://localhost:"))


@pytest.mark.feature("F-SQL-01", "F-SQL-08")
def test_others_join_through_spark_connect_and_the_ui_lists_their_query(
    spark: SparkSession, standalone: StandaloneProcess, served_topic: str, tmp_path: Path
) -> None:
    ready = tmp_path / "ready.json"
    given = {"namespace": str(TopicName.parse(served_topic).namespace), "ready_file": str(ready)}
    served = ServedTopics(spark, {"service.url": standalone.service_url})
    _offer(served, given, spark, spark.conf.get("spark.connect.grpc.binding.port") or "")
    check_served(json.loads(ready.read_text()), served_topic)


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
        check_served(json.loads(ready.read_text()), served_topic)
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
