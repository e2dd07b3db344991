# SPDX-License-Identifier: Apache-2.0
"""Schemas and compaction over HTTP: what the official client stored is shown, and what HTTP started is done."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pulsar
import pytest

from tests.conftest import Eventually
from tests.processes import StandaloneProcess

QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
AVRO = '{"type":"record","name":"Order","fields":[{"name":"drink","type":"string"}]}'


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    directory: Path = tmp_path_factory.mktemp("schemas")
    with StandaloneProcess(directory) as running:
        yield running


@pytest.fixture(scope="module")
def http(standalone: StandaloneProcess) -> Iterator[httpx.Client]:
    transport = httpx.HTTPTransport(retries=50)
    with httpx.Client(base_url=f"{standalone.web_url}/admin/v2", transport=transport, timeout=30) as client:
        yield client


@pytest.mark.feature("F-SCH-01")
def test_a_schema_is_put_shown_listed_compared_and_deleted(http: httpx.Client) -> None:
    path = "/schemas/public/default/orders"
    assert http.get(f"{path}/schema").status_code == 404
    put = http.post(f"{path}/schema", json={"type": "AVRO", "schema": AVRO, "properties": {"by": "test"}})
    assert (put.status_code, put.json()) == (202, {"version": {"version": 0}})
    shown = http.get(f"{path}/schema").json()
    assert (shown["version"], shown["type"], shown["data"]) == (0, "AVRO", AVRO)
    assert shown["properties"] == {"by": "test"}
    assert http.get(f"{path}/schema/0").json() == shown
    assert http.get(f"{path}/schemas").json() == {"getSchemaResponses": [shown]}
    same = {"type": "AVRO", "schema": AVRO, "properties": {}}
    assert http.post(f"{path}/version", json=same).json() == {"version": 0}
    other = {"type": "AVRO", "schema": AVRO.replace("string", "long"), "properties": {}}
    assert http.post(f"{path}/compatibility", json=other).json()["compatibility"] is False
    assert http.post(f"{path}/schema", json={"type": "NOTHING"}).status_code == 422
    assert http.delete(f"{path}/schema").status_code == 200
    assert http.get(f"{path}/schema").status_code == 404


@pytest.mark.feature("F-CMP-01")
def test_compaction_started_over_http_leaves_the_last_value_of_each_key(
    standalone: StandaloneProcess, http: httpx.Client, eventually: Eventually
) -> None:
    client = pulsar.Client(standalone.service_url, logger=QUIET)
    topic = "persistent://public/default/prices"
    producer = client.create_producer(topic, batching_enabled=False)
    for price in range(5):
        for drink in ("tea", "milk"):
            producer.send(f"{drink} {price}".encode(), partition_key=drink)
    path = "/persistent/public/default/prices/compaction"
    assert http.get(path).json()["status"] == "NOT_RUN"
    assert http.put(path).status_code == 204
    eventually(lambda: http.get(path).json()["status"] == "SUCCESS")
    reader = client.create_reader(topic, pulsar.MessageId.earliest, is_read_compacted=True)
    assert [reader.read_next(timeout_millis=10_000).data() for _ in range(2)] == [b"tea 4", b"milk 4"]
    assert not reader.has_message_available()
    client.close()
