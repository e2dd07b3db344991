# SPDX-License-Identifier: Apache-2.0
"""Bytes that are no text, where a command or a message's metadata should have text, are refused as such."""

import pytest

from magnetar.errors import BadCommand, BadFrame, BadPayload
from magnetar.wire import batch, commands, message
from magnetar.wire.proto import pulsar_api_pb2 as pb
from magnetar.wire.text_fields import unreadable

GOOD, WRONG = b"text", b"t\xff\xfet"
Type = pb.BaseCommand


def spoiled(parsed: pb.BaseCommand | pb.MessageMetadata | pb.SingleMessageMetadata) -> bytes:
    return parsed.SerializeToString().replace(GOOD, WRONG)


@pytest.mark.parametrize(
    ("command", "field"),
    [
        (
            Type(type=Type.PRODUCER, producer=pb.CommandProducer(topic="text", producer_id=1, request_id=1)),
            "PRODUCER has bytes that are no UTF-8 in topic",
        ),
        (
            Type(
                type=Type.SUBSCRIBE,
                subscribe=pb.CommandSubscribe(
                    topic="t",
                    subscription="s",
                    subType=pb.CommandSubscribe.Shared,
                    consumer_id=1,
                    request_id=1,
                    metadata=[pb.KeyValue(key="a", value="b"), pb.KeyValue(key="text", value="b")],
                ),
            ),
            "SUBSCRIBE has bytes that are no UTF-8 in metadata.key",
        ),
        (
            Type(
                type=Type.PRODUCER,
                producer=pb.CommandProducer(
                    topic="t",
                    producer_id=1,
                    request_id=1,
                    schema=pb.Schema(name="text", schema_data=b"", type=pb.Schema.String),
                ),
            ),
            "PRODUCER has bytes that are no UTF-8 in schema.name",
        ),
        (
            Type(type=Type.LOOKUP, lookupTopic=pb.CommandLookupTopic(topic="text", request_id=1)),
            "LOOKUP has bytes that are no UTF-8 in topic",
        ),
    ],
)
def test_a_command_says_which_field_is_no_text(command: pb.BaseCommand, field: str) -> None:
    commands.parse(command.SerializeToString(), commands.Sender.CLIENT)
    with pytest.raises(BadCommand, match=field):
        commands.parse(spoiled(command), commands.Sender.CLIENT)


@pytest.mark.parametrize("field", ["producer_name", "partition_key", "uuid"])
def test_metadata_that_brokers_read_is_text(field: str) -> None:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=2)
    setattr(metadata, field, "text")
    message.parse_metadata(metadata.SerializeToString())
    with pytest.raises(BadFrame, match=field):
        message.parse_metadata(spoiled(metadata))


def test_the_key_of_a_batched_message_is_text() -> None:
    with pytest.raises(BadPayload, match="key of message 3"):
        batch.parse_single(spoiled(pb.SingleMessageMetadata(payload_size=0, partition_key="text")), 3)


def test_what_has_no_text_is_readable() -> None:
    assert unreadable(pb.CommandFlow(consumer_id=1, messagePermits=2)) == ""
    assert unreadable(pb.MessageMetadata(producer_name="ü", sequence_id=1, publish_time=2)) == ""
