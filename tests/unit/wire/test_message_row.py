# SPDX-License-Identifier: Apache-2.0
"""Rows of MESSAGE commands and batches read without parsing, against the generated code."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.errors import BadPayload
from magnetar.wire import batch
from magnetar.wire.message_row import NO_ROW, MessageRow
from magnetar.wire.proto import pulsar_api_pb2 as pb

NUMBERS = st.one_of(st.integers(0, 300), st.integers(0, 2**28 - 1), st.integers(0, 2**63 - 1))


def command(
    consumer_id: int, ledger_id: int, entry_id: int, partition: int | None, epoch: int | None, redelivered: int | None
) -> bytes:
    whole = pb.BaseCommand(type=pb.BaseCommand.MESSAGE)
    message = whole.message
    message.consumer_id = consumer_id
    message.message_id.ledgerId, message.message_id.entryId = ledger_id, entry_id
    if partition is not None:
        message.message_id.partition = partition
    if epoch is not None:
        message.consumer_epoch = epoch
    if redelivered is not None:
        message.redelivery_count = redelivered
    return whole.SerializeToString()


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([0, 5, 200]),
            st.sampled_from([0, 7, 300, 2**40]),
            NUMBERS,
            st.sampled_from([None, -1, 0, 3]),
            st.sampled_from([None, 0, 2]),
            st.sampled_from([None, None, None, 0, 1]),
        ),
        max_size=12,
    )
)
def test_a_row_says_what_protobuf_says(
    commands: list[tuple[int, int, int, int | None, int | None, int | None]],
) -> None:
    row = NO_ROW
    for fields in commands:
        data = command(*fields)
        consumer_id, ledger_id, entry_id, _, epoch, redelivered = fields
        found = row.entry_id(data)
        if found >= 0:
            assert (row.consumer_id, row.ledger_id, found, row.epoch) == (
                consumer_id,
                ledger_id,
                entry_id,
                -1 if epoch is None else epoch,
            )
            assert redelivered is None
        row = MessageRow.of(data)
        # Whatever begins a row belongs to it.
        assert row is NO_ROW or row.entry_id(data) == entry_id


def test_commands_of_one_consumer_and_ledger_are_one_row() -> None:
    row = MessageRow.of(command(3, 12, 128, None, 0, None))
    assert [row.entry_id(command(3, 12, entry, None, 0, None)) for entry in (129, 300, 16_383)] == [129, 300, 16_383]
    # Another length, consumer, ledger, epoch, or more to say: not of the row.
    for other in ((3, 12, 127), (3, 12, 16_384), (4, 12, 129), (3, 13, 129)):
        assert row.entry_id(command(*other, None, 0, None)) == -1
    assert row.entry_id(command(3, 12, 129, None, 1, None)) == -1
    assert row.entry_id(command(3, 12, 129, None, 0, 1)) == -1


@given(st.binary(max_size=30))
def test_no_bytes_are_too_strange(data: bytes) -> None:
    row = MessageRow.of(data)
    assert NO_ROW.entry_id(data) == -1
    assert row is NO_ROW or row.entry_id(data) >= 0


@st.composite
def singles(draw: st.DrawFn) -> batch.BatchedMessage:
    metadata = pb.SingleMessageMetadata()
    if draw(st.booleans()):
        metadata.sequence_id = draw(st.integers(0, 2**40))
    if draw(st.booleans()):
        metadata.partition_key = draw(st.text(max_size=5))
    if draw(st.booleans()):
        metadata.compacted_out = draw(st.booleans())
    if draw(st.booleans()):
        metadata.null_value = True
    if draw(st.booleans()):
        metadata.event_time = draw(st.integers(0, 2**40))
    return batch.BatchedMessage(metadata, draw(st.binary(max_size=300)))


@settings(max_examples=100, deadline=None)
@given(st.lists(singles(), min_size=1, max_size=8), st.binary(max_size=4))
def test_spans_of_a_batch_are_where_its_messages_are(messages: list[batch.BatchedMessage], rest: bytes) -> None:
    payload = batch.join(messages) + rest
    split = batch.split(payload, len(messages))
    found = batch.spans(payload, len(messages))
    assert [payload[start:end] for _, start, end, _ in found] == [bytes(one.payload) for one in split]
    assert [is_out for *_, is_out in found] == [one.metadata.compacted_out for one in split]
    parsed = [batch.parse_single(payload[begin:start], index) for index, (begin, start, _, _) in enumerate(found)]
    assert parsed == [one.metadata for one in split]


@settings(max_examples=100, deadline=None)
@given(st.lists(singles(), min_size=1, max_size=4), st.data())
def test_a_batch_that_lies_is_refused_by_both(messages: list[batch.BatchedMessage], data: st.DataObject) -> None:
    payload = bytearray(batch.join(messages))
    payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(payload[: data.draw(st.integers(0, len(payload)))])
    try:
        expected = [bytes(one.payload) for one in batch.split(cut, len(messages))]
    except BadPayload:
        # What is looked at later may still be wrong; nothing outside the payload is ever given out.
        try:
            spans = batch.spans(cut, len(messages))
        except BadPayload:
            return
        assert all(0 < begin <= start <= end <= len(cut) for begin, start, end, _ in spans)
        return
    assert [cut[start:end] for _, start, end, _ in batch.spans(cut, len(messages))] == expected


def test_a_count_beyond_the_payload_is_refused() -> None:
    payload = batch.join([batch.BatchedMessage(pb.SingleMessageMetadata(), b"x")])
    for count in (0, -1, 2, 2**31 - 1):
        with pytest.raises(BadPayload):
            batch.spans(payload, count)


def test_a_shorter_number_with_a_field_behind_it_is_not_taken_for_a_longer_number() -> None:
    """As long as the row's, and alike before the number: read as one number it was another entry's."""
    row = MessageRow.of(command(5, 0, 2**21, None, None, None))
    other = command(5, 0, 128, 3, None, None)
    assert len(other) == len(command(5, 0, 2**21, None, None, None))
    assert row.entry_id(other) == -1
