# SPDX-License-Identifier: Apache-2.0
"""What is missing from a message is named, however deep, and nothing is named when nothing is missing."""

from magnetar.wire.proto import bookkeeper_pb2 as bk
from magnetar.wire.proto import pulsar_api_pb2 as api
from magnetar.wire.required import missing


def test_a_whole_message_lacks_nothing() -> None:
    assert missing(api.CommandPing()) == ""
    assert missing(api.CommandFlow(consumer_id=0, messagePermits=0)) == ""


def test_missing_fields_are_named_in_order_of_the_message() -> None:
    assert missing(api.CommandFlow()) == "consumer_id, messagePermits"


def test_missing_fields_further_in_are_named_with_their_way() -> None:
    seek = api.CommandSeek(consumer_id=1, request_id=2, message_id=api.MessageIdData(ledgerId=3))
    assert missing(seek) == "message_id.entryId"
    ack = api.CommandAck(consumer_id=1, ack_type=api.CommandAck.Individual)
    ack.message_id.add(ledgerId=1, entryId=2)
    ack.message_id.add(entryId=2)
    assert missing(ack) == "message_id.ledgerId"


def test_an_enum_value_that_is_not_known_counts_as_missing() -> None:
    header = bk.BKPacketHeader.FromString(bytes.fromhex("080310631801"))
    assert missing(header) == "operation"
