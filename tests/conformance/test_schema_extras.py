# SPDX-License-Identifier: Apache-2.0
"""Schemas beyond the everyday: definitions that only outside registries understand, enforcement, and where versions
lie.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pulsar
import pytest
from pulsar import schema as of

from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.conformance.raw_client import RawClient, Type
from tests.processes import StandaloneProcess

QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    directory: Path = tmp_path_factory.mktemp("schema-extras")
    with StandaloneProcess(directory) as running:
        yield running


@pytest.fixture(scope="module")
def admin(standalone: StandaloneProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{standalone.web_url}/admin/v2", timeout=30) as client:
        yield client


@pytest.mark.feature("B-19")
def test_a_definition_that_only_an_outside_registry_knows_is_kept_as_it_is(
    standalone: StandaloneProcess, admin: httpx.Client
) -> None:
    topic = "persistent://public/default/external"
    external = pb.Schema(name="s", schema_data=b"\x00\x01 id 4711", type=pb.Schema.External)
    with RawClient(standalone.port) as raw:
        assert raw.open_producer(topic, 1, schema=external).type == Type.PRODUCER_SUCCESS
        request_id = raw.request_id()
        raw.say(Type.GET_SCHEMA, pb.CommandGetSchema(request_id=request_id, topic=topic))
        found = raw.answer_to(request_id).getSchemaResponse.schema
        assert (found.type, found.schema_data) == (pb.Schema.External, external.schema_data)
        other = pb.Schema(name="s", schema_data=b'"string"', type=pb.Schema.Avro)
        assert raw.open_producer(topic, 2, schema=other).type == Type.ERROR, "another type may not follow it"
    places = admin.get("/schemas/public/default/external/metadata").json()
    assert [place["version"] for place in places["index"]] == [0]
    assert places["info"]["ledgerId"] >= 0
    assert admin.get("/schemas/public/default/nothing/metadata").status_code == 404


@pytest.mark.feature("B-19")
def test_where_schemas_are_enforced_nobody_produces_without_one(
    standalone: StandaloneProcess, admin: httpx.Client
) -> None:
    assert admin.put("/namespaces/public/enforced").is_success
    assert admin.post("/namespaces/public/enforced/schemaValidationEnforced", json=True).is_success
    client = pulsar.Client(standalone.service_url, logger=QUIET)
    topic = "persistent://public/enforced/t"
    client.create_producer(topic).close()
    client.create_producer(topic, schema=of.StringSchema()).send("first")
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(topic)
    assert admin.post("/namespaces/public/enforced/schemaValidationEnforced", json=False).is_success
    client.create_producer(topic).close()
    client.close()


def test_a_client_may_register_a_schema_without_a_producer(standalone: StandaloneProcess, admin: httpx.Client) -> None:
    """GET_OR_CREATE_SCHEMA, which clients use before a message of another schema: one version per definition."""
    topic = "persistent://public/default/adopted"
    assert admin.put("/persistent/public/default/adopted").is_success
    fields = [{"name": "a", "type": "int"}, {"name": "b", "type": "int", "default": 0}]
    narrow, wide, wrong = (
        pb.Schema(name="s", schema_data=json.dumps(definition).encode(), type=pb.Schema.Avro)
        for definition in (
            {"type": "record", "name": "R", "fields": fields[:1]},
            {"type": "record", "name": "R", "fields": fields},
            {"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]},
        )
    )
    with RawClient(standalone.port) as raw:

        def adopt(schema: pb.Schema, of_topic: str = topic) -> pb.BaseCommand:
            request_id = raw.request_id()
            asked = pb.CommandGetOrCreateSchema(request_id=request_id, topic=of_topic, schema=schema)
            raw.say(Type.GET_OR_CREATE_SCHEMA, asked)
            return raw.answer_to(request_id)

        versions = [adopt(schema).getOrCreateSchemaResponse.schema_version for schema in (narrow, wide, narrow, wide)]
        assert versions[0] != versions[1]
        assert versions[2:] == versions[:2]
        request_id = raw.request_id()
        raw.say(Type.GET_SCHEMA, pb.CommandGetSchema(request_id=request_id, topic=topic, schema_version=versions[0]))
        assert raw.answer_to(request_id).getSchemaResponse.schema.schema_data == narrow.schema_data
        for refused, error in (
            (adopt(wrong), pb.IncompatibleSchema),
            (adopt(narrow, "persistent://public/default/nowhere"), pb.TopicNotFound),
        ):
            assert refused.type == Type.GET_OR_CREATE_SCHEMA_RESPONSE, refused
            assert refused.getOrCreateSchemaResponse.error_code == error, refused
