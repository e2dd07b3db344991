# SPDX-License-Identifier: Apache-2.0
"""Options are understood, wrong ones are named, and secrets are refused where they would be seen."""

import pytest

from magnetar.errors import BadSetting
from magnetar.spark.offsets import Offset, Place
from magnetar.spark.options import sink_options, source_options

URL = {"service.url": "pulsar://localhost:6650"}
T = "persistent://public/default/t"


def test_names_are_not_case_sensitive_and_units_are_understood() -> None:
    made = source_options(
        {**URL, "Topic": "t", "MAXBYTESPERTRIGGER": "10m", "maxTriggerDelay": "30s", "admin.url": "http://localhost"},
        streaming=True,
    )
    assert made.topics.names == (T,)
    assert made.bytes_per_trigger_max == 10 << 20
    assert made.trigger_delay_max_ms == 30_000
    assert made.start == "latest"
    assert source_options({**URL, "topic": "t"}, streaming=False).start == "earliest"


def test_offsets_are_given_by_topic() -> None:
    made = source_options({**URL, "topic": "t", "startingOffsets": '{"t": {"index": 5}}'}, streaming=False)
    assert made.start == {T: Offset(5, None)}
    made = source_options({**URL, "topic": "t", "startingOffsets": '{"t": "earliest"}'}, streaming=False)
    assert made.start == {T: "earliest"}
    made = source_options({**URL, "topic": "t", "startingOffsets": '{"t": "latest"}'}, streaming=False)
    assert made.start == {T: "latest"}


@pytest.mark.feature("F-SPK-02")
def test_offsets_and_times_may_be_written_as_the_jvm_connector_writes_them() -> None:
    """The bytes of a message id, signed, which is part of what is read; times by topic, -1 and -2 for the two ends."""
    given = {"startingOffsets": '{"t": [8,7,16,3,32,2,48,10]}', "endingOffsets": '{"t": [8,-56,1,16,3]}'}
    made = source_options({**URL, "topic": "t", **given}, streaming=False)
    assert made.start == {T: Offset(None, Place(7, 3, 2))}
    assert made.end == {T: Offset(None, Place(200, 3))}
    made = source_options({**URL, "topics": "t,u,v", "startingTime": '{"t": 5, "u": -1, "v": -2}'}, streaming=True)
    assert made.start == {T: 5, T[:-1] + "u": "earliest", T[:-1] + "v": "latest"}
    made = source_options({**URL, "topic": "t", "startingTime": "1970-01-01T00:00:05Z"}, streaming=True)
    assert made.start == 5_000


@pytest.mark.feature("F-SPK-02")
def test_a_token_is_found_as_the_jvm_connector_finds_it_unless_it_would_be_seen() -> None:
    plugin = {"pulsar.client.authPluginClassName": "org.apache.pulsar.client.impl.auth.AuthenticationToken"}
    for params, file, variable in (("file:///a/b", "/a/b", None), ("env:TOKEN", None, "TOKEN")):
        made = source_options({**URL, **plugin, "topic": "t", "pulsar.client.authParams": params}, streaming=False)
        assert (made.connection.token_file, made.connection.token_environment) == (file, variable)


def test_topics_of_different_schemas_are_bytes() -> None:
    made = source_options({**URL, "topics": "t,u", "allowDifferentTopicSchemas": "true"}, streaming=False)
    assert made.schema_type == "bytes"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"topic": "t"}, "service.url"),
        ({**URL}, "exactly one of"),
        ({**URL, "topic": "t", "topics": "a,b"}, "exactly one of"),
        ({**URL, "topic": "t", "maxMessagesPerTriger": "5"}, "maxmessagespertriger"),
        ({**URL, "topic": "t", "maxMessagesPerTrigger": "many"}, "maxMessagesPerTrigger"),
        ({**URL, "topic": "t", "metadata": "some"}, "none, basic, all"),
        ({**URL, "topic": "t", "startingOffsets": "[]"}, "startingOffsets"),
        ({**URL, "topic": "t", "token": "s3cret"}, "tokenFile"),
        ({**URL, "topic": "t", "pulsar.client.authParams": "token:s3cret"}, "tokenFile"),
        ({**URL, "topic": "t", "pulsar.client.authPluginClassName": "a.b.AuthenticationSasl"}, "AuthenticationToken"),
        ({**URL, "topic": "t", "startOffsets": "earliest"}, "did you mean startingOffsets"),
        ({**URL, "topic": "t", "startingOffsets": '{"t": -5}'}, "the first one is 0"),
        ({**URL, "topic": "t", "startingOffsets": '{"t": [300, "x"]}'}, "bytes of a message id"),
        ({**URL, "topic": "t", "startingTime": "noon"}, "startingTime"),
        ({**URL, "topic": "t", "startingTime": "{"}, "startingTime"),
        ({**URL, "topicsPattern": " "}, "topicsPattern"),
        ({**URL, "topic": "t", "metadata.url": "embedded:x"}, "metadata.url"),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, str], told: str) -> None:
    with pytest.raises(BadSetting, match=told) as refused:
        source_options(options, streaming=False)
    assert "s3cret" not in str(refused.value)


def test_ids_belong_to_their_kind_of_write() -> None:
    assert sink_options({**URL, "topic": "t", "sinkId": "a"}, streaming=True).sink_id == "a"
    with pytest.raises(BadSetting, match="writeId"):
        sink_options({**URL, "topic": "t", "writeId": "a"}, streaming=True)
    with pytest.raises(BadSetting, match="sinkId"):
        sink_options({**URL, "topic": "t", "sinkId": "a/b"}, streaming=False)
