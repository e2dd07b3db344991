# SPDX-License-Identifier: Apache-2.0
"""Schemas as the official client brings them: versions, evolution, refusals, and after kill -9."""

from collections.abc import Mapping

import pulsar
import pytest
from pulsar import schema as of

from magnetar.blocking import Client
from magnetar.client.schema_auto import AutoConsumeSchema
from tests.conformance.exchanges import QUIET
from tests.processes import StandaloneProcess


class First(of.Record):  # type: ignore[misc]
    _avro_namespace = "tests"
    name = of.String(required=True)


def avro(name: str, *fields: Mapping[str, object]) -> of.AvroSchema:
    return of.AvroSchema(None, {"type": "record", "name": name, "fields": list(fields)})


A = {"name": "a", "type": "int"}
B = {"name": "b", "type": "int"}
B_WITH_DEFAULT = {**B, "default": 7}


@pytest.mark.feature("F-SCH-01", "F-SCH-06", "F-SCH-09")
def test_versions_rise_from_eight_zero_bytes_and_old_messages_are_read_with_the_new(
    client: pulsar.Client, topic: str
) -> None:
    consumer = client.subscribe(topic, "s", schema=avro("Thing", A))
    first = client.create_producer(topic, schema=avro("Thing", A))
    first.send({"a": 1})
    second = client.create_producer(topic, schema=avro("Thing", A, B_WITH_DEFAULT))
    second.send({"a": 2, "b": 3})
    again = client.create_producer(topic, schema=avro("Thing", A))
    again.send({"a": 3})
    versions, values = [], []
    for _ in range(3):
        message = consumer.receive(10_000)
        versions.append(message.schema_version())
        values.append(message.value()["a"])
    assert [version.encode() for version in versions] == [bytes(8), bytes(7) + b"\x01", bytes(8)]
    assert values == [1, 2, 3]


@pytest.mark.feature("F-SCH-06", "F-SCH-07")
def test_an_incompatible_schema_is_refused_for_producers_and_consumers(client: pulsar.Client, topic: str) -> None:
    client.create_producer(topic, schema=avro("Thing", A))
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(topic, schema=avro("Thing", A, B))
    with pytest.raises(pulsar.IncompatibleSchema):
        client.subscribe(topic, "s", schema=avro("Thing", A, B))
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(topic, schema=of.StringSchema())
    client.create_producer(topic)


@pytest.mark.feature("F-SCH-01")
def test_json_schemas_and_strings(client: pulsar.Client, topic: str) -> None:
    for name, schema, value in (
        ("json", of.JsonSchema(First), First(name="x")),
        ("string", of.StringSchema(), "text"),
        ("bytes", of.BytesSchema(), b"bytes"),
    ):
        consumer = client.subscribe(f"{topic}-{name}", "s", schema=schema)
        producer = client.create_producer(f"{topic}-{name}", schema=schema)
        producer.send(value)
        assert consumer.receive(10_000).value() == value


@pytest.mark.feature("F-SCH-04", "F-SCH-05")
def test_clients_may_follow_whatever_schema_the_topic_has(
    standalone: StandaloneProcess, client: pulsar.Client, topic: str
) -> None:
    client.create_producer(topic, schema=avro("Thing", A))
    with Client(standalone.service_url) as own:
        consumer = own.subscribe(topic, "s", schema=AutoConsumeSchema())
        client.create_producer(topic, schema=avro("Thing", A)).send({"a": 5})
        assert consumer.receive(10_000).value()["a"] == 5


@pytest.mark.feature("F-SCH-08")
def test_versions_survive_kill_9(standalone: StandaloneProcess, topic: str) -> None:
    client = pulsar.Client(standalone.service_url, logger=QUIET)
    client.create_producer(topic, schema=avro("Thing", A))
    client.create_producer(topic, schema=avro("Thing", A, B_WITH_DEFAULT))
    client.close()
    standalone.kill()
    standalone.start()
    client = pulsar.Client(standalone.service_url, logger=QUIET)
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(topic, schema=avro("Thing", B))
    consumer = client.subscribe(topic, "s", schema=avro("Thing", A))
    client.create_producer(topic, schema=avro("Thing", A, B_WITH_DEFAULT)).send({"a": 1, "b": 2})
    message = consumer.receive(10_000)
    assert message.value()["a"] == 1
    client.close()
