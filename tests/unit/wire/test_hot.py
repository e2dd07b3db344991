# SPDX-License-Identifier: Apache-2.0
"""Hand-written codecs: byte for byte what the generated ones write, for all field values."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.wire import frame, hot
from magnetar.wire.proto import pulsar_api_pb2 as api

UINT64 = st.one_of(
    st.integers(0, 300),
    st.integers(0, 2**64 - 1),
    st.sampled_from([2 ** (7 * n) - less for n in range(1, 10) for less in (0, 1)]),
)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
Type = api.BaseCommand.Type


def framed(command: api.BaseCommand) -> bytes:
    return frame.join(command.SerializeToString())


def receipt(producer_id: int, sequence_id: int, highest: int, ledger_id: int, entry_id: int) -> bytes:
    message = api.CommandSendReceipt(
        producer_id=producer_id,
        sequence_id=sequence_id,
        message_id=api.MessageIdData(ledgerId=ledger_id, entryId=entry_id),
        highest_sequence_id=highest or None,
    )
    return framed(api.BaseCommand(type=Type.SEND_RECEIPT, send_receipt=message))


@settings(max_examples=200)
@given(
    UINT64,
    st.lists(
        st.tuples(UINT64, st.integers(0, 2**64 - 500), st.lists(st.tuples(UINT64, UINT64), max_size=5)), max_size=4
    ),
)
def test_receipts_are_those_of_protobuf(producer_id: int, runs: list[tuple[int, int, list[tuple[int, int]]]]) -> None:
    encoder = hot.ReceiptEncoder(producer_id)
    for ledger_id, first_entry_id, sequences in runs:
        expected = [
            receipt(producer_id, sequence_id, highest, ledger_id, first_entry_id + offset)
            for offset, (sequence_id, highest) in enumerate(sequences)
        ]
        assert encoder.encode(ledger_id, first_entry_id, sequences) == b"".join(expected)


def test_a_long_run_of_receipts_crosses_every_size_of_number() -> None:
    encoder = hot.ReceiptEncoder(7)
    first_entry, first_sequence, count = 100, 16_300, 400
    got = encoder.encode(12, first_entry, [(first_sequence + n, 0) for n in range(count)])
    assert got == b"".join(receipt(7, first_sequence + n, 0, 12, first_entry + n) for n in range(count))


@settings(max_examples=200)
@given(
    UINT64,
    INT32,
    UINT64,
    st.lists(UINT64, min_size=1, max_size=4),
    st.integers(0, 2**20),
    st.integers(0, 2**32 - 1),
    st.lists(INT64, max_size=3),
    st.none() | UINT64,
)
def test_message_headers_are_those_of_protobuf(
    consumer_id: int,
    partition: int,
    ledger_id: int,
    entry_ids: list[int],
    body_bytes: int,
    redelivery_count: int,
    ack_set: list[int],
    consumer_epoch: int | None,
) -> None:
    encoder = hot.MessageEncoder(consumer_id, partition)
    for entry_id in entry_ids:
        message = api.CommandMessage(
            consumer_id=consumer_id,
            message_id=api.MessageIdData(
                ledgerId=ledger_id, entryId=entry_id, partition=None if partition == -1 else partition
            ),
        )
        command = api.BaseCommand(type=Type.MESSAGE, message=message)
        assert encoder.header(ledger_id, entry_id, body_bytes) == frame.header(command.SerializeToString(), body_bytes)
        command.message.ack_set.extend(ack_set)
        if redelivery_count:
            command.message.redelivery_count = redelivery_count
        if consumer_epoch is not None:
            command.message.consumer_epoch = consumer_epoch
        got = encoder.repeated_header(ledger_id, entry_id, body_bytes, redelivery_count, ack_set, consumer_epoch)
        assert got == frame.header(command.SerializeToString(), body_bytes)


@settings(max_examples=300)
@given(UINT64, UINT64, INT32, UINT64)
def test_sends_are_those_of_protobuf_and_the_usual_ones_are_read(
    producer_id: int, sequence_id: int, num_messages: int, highest: int
) -> None:
    send = api.CommandSend(producer_id=producer_id, sequence_id=sequence_id)
    plain = api.BaseCommand(type=Type.SEND, send=send).SerializeToString()
    assert hot.encode_send(producer_id, sequence_id, 1) == plain
    assert hot.decode_send(plain) == (producer_id, sequence_id, 1, 0)
    if num_messages != 1:
        send.num_messages = num_messages
    if highest:
        send.highest_sequence_id = highest
    batch = api.BaseCommand(type=Type.SEND, send=send).SerializeToString()
    assert hot.encode_send(producer_id, sequence_id, num_messages, highest) == batch
    assert hot.decode_send(batch) == ((producer_id, sequence_id, num_messages, highest) if num_messages > 0 else None)


@pytest.mark.parametrize(
    "fields",
    [
        {"num_messages": 0},
        {"num_messages": -1},
        {"txnid_least_bits": 1, "txnid_most_bits": 2},
        {"is_chunk": True},
        {"marker": True},
        {"message_id": api.MessageIdData(ledgerId=1, entryId=2)},
    ],
)
def test_an_unusual_send_is_left_to_protobuf(fields: dict[str, object]) -> None:
    send = api.CommandSend(producer_id=1, sequence_id=2, **fields)  # type: ignore[arg-type]
    assert hot.decode_send(api.BaseCommand(type=Type.SEND, send=send).SerializeToString()) is None


@settings(max_examples=400)
@given(st.binary(max_size=24) | st.binary(max_size=20).map(lambda rest: bytes((8, 6, 0x32, len(rest))) + rest))
def test_what_the_hot_decoder_reads_protobuf_reads_alike(data: bytes) -> None:
    got = hot.decode_send(data)
    if got is not None:
        command = api.BaseCommand.FromString(data)
        assert command.type == Type.SEND
        send = command.send
        assert got == (send.producer_id, send.sequence_id, send.num_messages, send.highest_sequence_id)
        usual = {"producer_id", "sequence_id", "num_messages", "highest_sequence_id"}
        assert {field.name for field, _ in send.ListFields()} <= usual


@given(UINT64, st.integers(0, 2**32 - 1))
def test_flows_are_those_of_protobuf(consumer_id: int, permits: int) -> None:
    flow = api.CommandFlow(consumer_id=consumer_id, messagePermits=permits)
    assert hot.encode_flow(consumer_id, permits) == framed(api.BaseCommand(type=Type.FLOW, flow=flow))


@given(UINT64, st.lists(st.tuples(UINT64, UINT64), max_size=5), st.booleans(), st.none() | UINT64)
def test_acks_are_those_of_protobuf(
    consumer_id: int, positions: list[tuple[int, int]], cumulative: bool, request_id: int | None
) -> None:
    ack = api.CommandAck(
        consumer_id=consumer_id,
        ack_type=api.CommandAck.Cumulative if cumulative else api.CommandAck.Individual,
        message_id=[api.MessageIdData(ledgerId=ledger_id, entryId=entry_id) for ledger_id, entry_id in positions],
        request_id=request_id,
    )
    got = hot.encode_ack(consumer_id, positions, cumulative=cumulative, request_id=request_id)
    assert got == framed(api.BaseCommand(type=Type.ACK, ack=ack))


IDS = st.lists(
    st.fixed_dictionaries(
        {"ledgerId": UINT64, "entryId": UINT64},
        optional={
            "partition": INT32,
            "batch_index": INT32,
            "ack_set": st.lists(INT64, max_size=1),
            "batch_size": INT32,
        },
    ),
    max_size=4,
)


@settings(max_examples=300)
@given(UINT64, IDS, st.booleans(), st.none() | UINT64, st.none() | UINT64)
def test_acks_of_whole_entries_are_read_as_protobuf_reads_them(
    consumer_id: int,
    ids: list[dict[str, Any]],
    cumulative: bool,
    request_id: int | None,
    txn_id: int | None,
) -> None:
    ack = api.CommandAck(
        consumer_id=consumer_id,
        ack_type=api.CommandAck.Cumulative if cumulative else api.CommandAck.Individual,
        message_id=[api.MessageIdData(**each) for each in ids],
        txnid_least_bits=txn_id,
        request_id=request_id,
    )
    got = hot.decode_ack(api.BaseCommand(type=Type.ACK, ack=ack).SerializeToString())
    positions = [(each["ledgerId"], each["entryId"]) for each in ids]
    is_plain = ids and not cumulative and txn_id is None and max(max(each) for each in positions) < 2**63
    if is_plain and not any(each.get("ack_set") or "batch_size" in each for each in ids):
        assert got == (consumer_id, request_id, positions)
    else:
        assert got is None


@settings(max_examples=400)
@given(st.binary(max_size=30).map(lambda rest: bytes((8, 10, 0x52, len(rest))) + rest) | st.binary(max_size=24))
def test_what_the_ack_decoders_read_protobuf_reads_alike(data: bytes) -> None:
    got = hot.decode_ack_plainly(data)
    assert hot.decode_ack(data) == got
    if got is not None:
        ack = api.BaseCommand.FromString(data).ack
        assert got[0] == ack.consumer_id
        assert got[1] == (ack.request_id if ack.HasField("request_id") else None)
        assert got[2] == [(each.ledgerId, each.entryId) for each in ack.message_id]


def test_ping_and_pong_are_those_of_protobuf() -> None:
    assert framed(api.BaseCommand(type=Type.PING, ping=api.CommandPing())) == hot.PING
    assert framed(api.BaseCommand(type=Type.PONG, pong=api.CommandPong())) == hot.PONG


# Commands that an Apache Pulsar 4.0.8 broker sent; it writes some defaults that we leave out.
APACHE_RECEIPT = "08073a0c080110001a04080310002000"
APACHE_MESSAGE = "08094a130805120f0803100618ffffffffffffffffff01"


def test_a_client_reads_ours_as_it_reads_apaches() -> None:
    theirs = api.BaseCommand.FromString(bytes.fromhex(APACHE_RECEIPT)).send_receipt
    ours = api.BaseCommand.FromString(hot.ReceiptEncoder(1).encode(3, 0, [(0, 0)])[8:]).send_receipt
    for field in api.CommandSendReceipt.DESCRIPTOR.fields:
        assert getattr(ours, field.name) == getattr(theirs, field.name)
    delivered = api.BaseCommand.FromString(bytes.fromhex(APACHE_MESSAGE)).message
    mine = api.BaseCommand.FromString(hot.MessageEncoder(5).header(3, 6, 0)[8:]).message
    for field in api.MessageIdData.DESCRIPTOR.fields:
        assert getattr(mine.message_id, field.name) == getattr(delivered.message_id, field.name)
    assert mine.consumer_id == delivered.consumer_id
