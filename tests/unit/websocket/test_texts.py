# SPDX-License-Identifier: Apache-2.0
"""Texts in and out: expected is what Apache Pulsar answered; whatever comes in is read or refused."""

import base64
import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.ids import MessageId
from magnetar.websocket import dates
from magnetar.websocket.texts import (
    BadText,
    Code,
    Order,
    end_text,
    failure_text,
    read_consumer_text,
    read_message_id,
    read_producer_text,
    receipt_text,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = (
    "payload",
    "properties",
    "context",
    "key",
    "replicationClusters",
    "eventTime",
    "deliverAt",
    "deliverAfterMs",
    "encryptionParam",
    "compressionType",
    "uncompressedMessageSize",
    "type",
    "messageId",
    "permitMessages",
)


def bad(text: str) -> tuple[Code, str | None]:
    with pytest.raises(BadText) as caught:
        read_producer_text(text)
    return caught.value.code, caught.value.context


@pytest.mark.feature("F-PH-10")
def test_a_whole_message_is_read() -> None:
    found = read_producer_text(
        json.dumps(
            {
                "payload": "aGk=",
                "properties": {"a": "b", "n": 1, "t": True},
                "context": 5,
                "key": "k",
                "replicationClusters": ["east"],
                "eventTime": "2020-01-02T03:04:05.670+01:00",
                "deliverAt": 7,
                "deliverAfterMs": "9",
                "sequenceId": 3,
                "unknown": {},
            }
        )
    )
    assert found.payload == b"hi"
    assert found.properties == {"a": "b", "n": "1", "t": "true"}
    assert (found.context, found.key, found.replication_clusters) == ("5", "k", ["east"])
    assert (found.event_time_ms, found.deliver_at_ms, found.deliver_after_ms) == (1_577_930_645_670, 7, 9)


@pytest.mark.feature("F-PH-10")
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, Code.BAD_PAYLOAD),
        ({"payload": None}, Code.BAD_PAYLOAD),
        ({"payload": "@"}, Code.BAD_PAYLOAD),
        ({"payload": "A"}, Code.BAD_PAYLOAD),
        ({"payload": []}, Code.NOT_JSON),
        ({"payload": "", "properties": {"a": None}}, Code.BAD_PAYLOAD),
        ({"payload": "", "properties": {"a": []}}, Code.NOT_JSON),
        ({"payload": "", "replicationClusters": "east"}, Code.NOT_JSON),
        ({"payload": "", "replicationClusters": [1]}, Code.NOT_JSON),
        ({"payload": "", "eventTime": "2020-01-02T03:04:05"}, Code.BAD_PAYLOAD),
        ({"payload": "", "eventTime": "1969-01-02T03:04:05Z"}, Code.BAD_PAYLOAD),
        ({"payload": "", "deliverAt": 2**63}, Code.NOT_JSON),
        ({"payload": "", "deliverAt": 1.5}, Code.NOT_JSON),
        ({"payload": "", "compressionType": "RAR", "uncompressedMessageSize": 1}, Code.NOT_JSON),
        ({"payload": "", "compressionType": "LZ4"}, Code.BAD_PAYLOAD),
    ],
)
def test_what_is_wrong_has_pulsars_code_and_keeps_its_context(fields: dict[str, Any], code: Code) -> None:
    assert bad(json.dumps({**fields, "context": "c"})) == (code, "c")


@pytest.mark.parametrize(
    "text", ['{"payload": "", "key": "\\ud800"}', "", "{", "null", "[]", "5", '"x"', "[" * 100_000]
)
def test_no_object_is_no_message(text: str) -> None:
    assert bad(text) == (Code.NOT_JSON, None)


@pytest.mark.feature("F-PH-10")
def test_what_consumers_say() -> None:
    assert read_consumer_text('{"messageId": "CAMQADAA"}') == (Order.ACKNOWLEDGE, "CAMQADAA", 0)
    assert read_consumer_text('{"type": "negativeAcknowledge", "messageId": "x"}') == (Order.REFUSE, "x", 0)
    assert read_consumer_text('{"type": "permit", "permitMessages": 3}') == (Order.PERMIT, "", 3)
    assert read_consumer_text('{"type": "unsubscribe"}').order is Order.UNSUBSCRIBE
    assert read_consumer_text('{"type": "isEndOfTopic"}').order is Order.ASK_END
    assert read_consumer_text('{"type": "what"}').order is Order.ACKNOWLEDGE
    with pytest.raises(BadText, match="permitMessages"):
        read_consumer_text('{"type": "permit"}')


def test_ids_of_the_java_client_are_read() -> None:
    """It writes the size of a batch always, 0 for none."""
    assert read_message_id("CAMQADAA") == MessageId(3, 0)
    assert read_message_id("CAMQBCABMAA=") == MessageId(3, 4, -1, 1)
    for text in ("", "@@", "AAAA", "CA"):
        with pytest.raises(BadText):
            read_message_id(text)


@pytest.mark.feature("F-PH-10")
def test_answers_have_the_fields_and_the_order_of_pulsars() -> None:
    assert receipt_text(MessageId(3, 4), "c") == (
        '{"result":"ok","messageId":"CAMQBA==","context":"c","errorCode":0,"schemaVersion":0}'
    )
    assert receipt_text(MessageId(3, 4), None) == (
        '{"result":"ok","messageId":"CAMQBA==","errorCode":0,"schemaVersion":0}'
    )
    assert failure_text(Code.BAD_PAYLOAD, "why", None) == (
        '{"result":"send-error:7","errorMsg":"why","errorCode":0,"schemaVersion":0}'
    )
    assert end_text(True) == '{"endOfTopic":true}'


@given(st.text() | JSON.map(json.dumps))
def test_whatever_comes_is_read_or_refused(text: str) -> None:
    for read in (read_producer_text, read_consumer_text):
        with contextlib.suppress(BadText):
            assert read(text)


@given(st.dictionaries(st.sampled_from(FIELDS), JSON | st.binary().map(lambda data: base64.b64encode(data).decode())))
def test_known_fields_with_any_value_are_read_or_refused(fields: dict[str, Any]) -> None:
    test_whatever_comes_is_read_or_refused.hypothesis.inner_test(json.dumps(fields))  # type: ignore[attr-defined]


@given(st.binary(max_size=50))
def test_bytes_arrive_as_they_were(data: bytes) -> None:
    text = base64.b64encode(data).decode()
    for written in (text, text.rstrip("=")):
        assert read_producer_text(json.dumps({"payload": written})).payload == data


@given(st.integers(0, 253_402_300_799_999))
def test_moments_survive_their_text(moment_ms: int) -> None:
    assert dates.read(dates.written(moment_ms)) == moment_ms


@pytest.mark.parametrize(
    ("moment_ms", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_577_934_245_670, "2020-01-02T03:04:05.67Z"),
        (1_577_934_245_007, "2020-01-02T03:04:05.007Z"),
    ],
)
def test_moments_are_written_as_java_writes_them(moment_ms: int, text: str) -> None:
    assert dates.written(moment_ms) == text
