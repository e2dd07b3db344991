# SPDX-License-Identifier: Apache-2.0
"""What is read by hand is what protobuf reads, for every decoder that goes past the generated code.

A hand decoder may decline (then protobuf reads). What it reads, protobuf must read, to the same fields and with nothing
left over; and what our own encoder writes it must not decline. Where a decoder has a compiled twin, all three agree.
Decides.
"""

from collections.abc import Sequence
from typing import Any, Final

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from magnetar.errors import MagnetarError
from magnetar.ids import MessageId
from magnetar.wire import batch, commands, frame, hot, message
from magnetar.wire.message_row import NO_ROW, MessageRow
from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.fuzz.target import Target, answer_of
from tests.fuzz.twins import RUNS

_BODY: Final = b"".join(
    map(
        bytes,
        message.join(pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1).SerializeToString(), b"x"),
    )
)


def _parsed(data: bytes, sender: commands.Sender, field: str, what: str) -> Any:
    """The command's one body, by protobuf."""
    try:
        command = commands.parse(data, sender)
    except MagnetarError as error:
        raise AssertionError(f"{what} was read by hand, and protobuf refuses it: {error}") from error
    found: Message = getattr(command, field)
    assert commands.body_of(command) is found or commands.body_of(command) == found, f"{what} is another command"
    _says_only(command, ("type", field))
    return found


def _says_only(found: Message, names: Sequence[str]) -> None:
    """Nothing was passed over."""
    more = {field.name for field, _ in found.ListFields()} - set(names)
    assert not more, f"{sorted(more)} was passed over by hand"
    assert len(UnknownFieldSet(found)) == 0, "a field that nobody knows was passed over by hand"


# --- commands -------------------------------------------------------------------------------------


def read_send(data: bytes) -> None:
    fields = hot.decode_send(data)
    if fields is None:
        return _declined_send(data)
    send = _parsed(data, commands.Sender.CLIENT, "send", "a SEND")
    _says_only(send, ("producer_id", "sequence_id", "num_messages", "highest_sequence_id"))
    said = (send.producer_id, send.sequence_id, send.num_messages, send.highest_sequence_id)
    assert fields == said, f"by hand a SEND is {fields}, by protobuf {said}"
    return _compiled_send(data, fields)


def _declined_send(data: bytes) -> None:
    try:
        send = commands.parse(data, commands.Sender.CLIENT).send
    except MagnetarError:
        return
    if send.num_messages > 0 and send.HasField("producer_id"):
        own = (send.producer_id, send.sequence_id, send.num_messages, send.highest_sequence_id)
        assert hot.encode_send(*own) != data, f"a SEND as we write it was declined: {own}"
    _compiled_send(data, None)


def _compiled_send(data: bytes, fields: hot.SendFields | None) -> None:
    if RUNS is None:
        return
    run: list[Any] = []
    found = RUNS.read_sends([(data, _BODY)], 0, run)
    if fields is None:
        assert run == [], f"the compiled reader read {run} where the plain one declined"
        return
    producer_id, sequence_id, messages, highest = fields
    assert found == (1, producer_id)
    assert run == [(sequence_id, highest if highest >= sequence_id else 0, messages, _BODY)]


def read_ack(data: bytes) -> None:
    fields = hot.decode_ack_plainly(data)
    assert hot.decode_ack(data) == fields
    if RUNS is not None:
        assert RUNS.read_ack(data) == fields, f"compiled, an ACK is {RUNS.read_ack(data)}, plainly {fields}"
    if fields is None:
        return _declined_ack(data)
    ack = _parsed(data, commands.Sender.CLIENT, "ack", "an ACK")
    _says_only(ack, ("consumer_id", "ack_type", "message_id", "request_id"))
    assert ack.ack_type == pb.CommandAck.Individual
    for each in ack.message_id:
        _says_only(each, ("ledgerId", "entryId", "partition", "batch_index"))
    said = (
        ack.consumer_id,
        ack.request_id if ack.HasField("request_id") else None,
        [(each.ledgerId, each.entryId) for each in ack.message_id],
    )
    assert fields == said, f"by hand an ACK is {fields}, by protobuf {said}"
    return None


def _declined_ack(data: bytes) -> None:
    try:
        ack = commands.parse(data, commands.Sender.CLIENT).ack
    except MagnetarError:
        return
    places = [(each.ledgerId, each.entryId) for each in ack.message_id]
    request_id = ack.request_id if ack.HasField("request_id") else None
    if places and max(map(max, places)) < 2**63:
        own = hot.encode_ack(ack.consumer_id, places, request_id=request_id)[frame.HEADER_BYTES :]
        assert own != data, "an ACK as we write it was declined"


def read_message_row(data: bytes) -> None:
    """A MESSAGE command that begins a row, which others of the row only change in one number."""
    row = MessageRow.of(data)
    if row is NO_ROW:
        return
    for command in (data, _next_of(data)):
        entry_id = row.entry_id(command)
        if entry_id < 0:
            continue
        said = _parsed(command, commands.Sender.BROKER, "message", "a MESSAGE")
        _says_only(said, ("consumer_id", "message_id", "consumer_epoch"))
        _says_only(said.message_id, ("ledgerId", "entryId", "partition"))
        epoch = said.consumer_epoch if said.HasField("consumer_epoch") else -1
        by_protobuf = (said.consumer_id, said.message_id.ledgerId, said.message_id.entryId, epoch)
        by_hand = (row.consumer_id, row.ledger_id, entry_id, row.epoch)
        assert by_hand == by_protobuf, f"by hand a MESSAGE is {by_hand}, by protobuf {by_protobuf}"


def _next_of(data: bytes) -> bytes:
    """With another number somewhere."""
    place = sum(data) % (len(data) or 1)
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :] if data else data


# --- batches and ids ------------------------------------------------------------------------------


def read_batch(data: bytes) -> None:
    """Where messages lie, with and without parsing their metadata."""
    for count in (1, 2, 5):
        whole: Any = answer_of(lambda count=count: batch.split(data, count))  # type: ignore[misc]
        spans: Any = answer_of(lambda count=count: batch.spans(data, count))  # type: ignore[misc]
        if not isinstance(whole, list):
            # The places of other fields are not looked at by hand, and their damage is seen by who asks for them.
            continue
        assert isinstance(spans, list), f"a batch of {count} is refused by hand: {spans}"
        said = [(bytes(each.payload), each.metadata.compacted_out) for each in whole]
        found = [(data[begin:end], is_out) for _, begin, end, is_out in spans]
        assert found == said, f"by hand a batch is {found!r:.200}, by protobuf {said!r:.200}"


def read_message_id(data: bytes) -> None:
    found: Any = answer_of(lambda: MessageId.decode(data))
    if not isinstance(found, MessageId):
        return
    try:
        said = pb.MessageIdData.FromString(data)
    except DecodeError:
        # Fields that are not of a place are passed over unread.
        assert MessageId.decode(found.encode()) == found
        return
    pairs = ((found, said), (found.first_chunk, said.first_chunk_message_id))
    for own, theirs in pairs:
        if own is None:
            continue
        by_hand = (*_signed(own.ledger_id, own.entry_id), own.partition, own.batch_index, own.batch_size)
        by_protobuf = (
            *_signed(theirs.ledgerId, theirs.entryId),
            theirs.partition,
            theirs.batch_index,
            theirs.batch_size,
        )
        assert by_hand == by_protobuf, f"by hand a message id is {by_hand}, by protobuf {by_protobuf}"


def _signed(*numbers: int) -> list[int]:
    return [number - 2**64 if number >= 2**63 else number for number in numbers]


_SINGLES: Final = (
    pb.SingleMessageMetadata(payload_size=0),
    pb.SingleMessageMetadata(payload_size=0, sequence_id=300),
    pb.SingleMessageMetadata(payload_size=0, partition_key="k", sequence_id=7, event_time=9, compacted_out=True),
)
BATCH: Final = batch.join([batch.BatchedMessage(each, b"x" * size) for each in _SINGLES for size in (1, 200)])
# Fields that come twice, and behind those that are read by hand: the last one holds.
_TWICE: Final = b"\x00\x00\x00\x06\x18\x01\x40\x01\x18\x02ab"
_OUT_LATE: Final = b"\x00\x00\x00\x06\x18\x01\x40\x01\x20\x01a"
SEND: Final = hot.encode_send(3, 300, 5, 304)
ACK: Final = hot.encode_ack(1, [(5, 6), (5, 7)])[frame.HEADER_BYTES :]
_LONG_ACK: Final = hot.encode_ack(1, [(5, n) for n in range(30)], request_id=9)[frame.HEADER_BYTES :]
_MESSAGES: Final = tuple(
    commands.encode(commands.Type.MESSAGE, pb.CommandMessage(consumer_id=1, message_id=place, consumer_epoch=epoch))[
        frame.HEADER_BYTES :
    ]
    for place in (pb.MessageIdData(ledgerId=5, entryId=6), pb.MessageIdData(ledgerId=500, entryId=70_000, partition=3))
    for epoch in (None, 4)
)
_IDS: Final = (
    MessageId(5, 6).encode(),
    MessageId(5, 300, 2, 7, 9).encode(),
    MessageId(5, 9, first_chunk=MessageId(5, 6)).encode(),
    pb.MessageIdData(ledgerId=5, entryId=6, ack_set=[1, -1]).SerializeToString(),
)

BY_HAND: Final = (
    Target(
        "SEND by hand",
        read_send,
        (SEND, hot.encode_send(1, 1, 1), hot.encode_send(200, 1 << 20, 100, 1 << 21), hot.encode_send(1, 1 << 40, 1)),
    ),
    Target("ACK by hand", read_ack, (ACK, _LONG_ACK)),
    Target("MESSAGE by hand", read_message_row, _MESSAGES),
    Target("batch", read_batch, (BATCH, BATCH * 2, _TWICE, _OUT_LATE)),
    Target("message id", read_message_id, _IDS),
)
