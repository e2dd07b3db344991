# SPDX-License-Identifier: Apache-2.0
"""Hand-written codecs of the commands that pass once per message or batch: byte for byte what protobuf would write.

Building such a command through protobuf costs several times more than everything else in its path. Encoders return
whole frames, or for MESSAGE all but the stored bytes that follow. `decode_send` reads the usual SEND and declines any
other, which protobuf then reads. Tests hold each of them equal to the generated code for all field values.
Decides.
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, Protocol, TypeAlias

from magnetar.errors import BadCommand
from magnetar.wire import compiled
from magnetar.wire.varint import LAST, MORE, UINT64_MAX, decode, encode

SendFields: TypeAlias = tuple[int, int, int, int]
"""Of a SEND: producer id, sequence id, messages in the entry, highest sequence id (0: none)."""
AckFields: TypeAlias = tuple[int, int | None, list[tuple[int, int]]]
"""Of an ACK of whole entries, each for itself: consumer id, request id (None: no answer), ledger and entry ids."""

Receipt: TypeAlias = tuple[int, int, int, int, int]
"""Of one message: producer id, ledger and entry id, sequence id, highest sequence id (0: none)."""


class Stored(Protocol):
    @property
    def body(self) -> memoryview: ...


class Shape(Protocol):
    @property
    def message_start(self) -> int: ...


Outgoing: TypeAlias = tuple[Stored, tuple[int, int], Shape, int, Sequence[int], int]
"""An entry on its way out: its bytes, ledger and entry id, where the message begins, its messages, the ack set, and how
often it was redelivered."""

PING: Final = bytes.fromhex("00000009 00000005 0812 920100")
PONG: Final = bytes.fromhex("00000009 00000005 0813 9a0100")

# A body of this size is copied behind its header; a larger one costs less as a buffer of its own.
COPIED_BYTES_MAX: Final = 8 * 1024

_HEADER: Final = Struct(">II")
_ACK_FRONT: Final = b"\x08\x0a\x52"
_twins = compiled.load()


class ReceiptEncoder:
    """SEND_RECEIPT frames of one producer. Keeps the parts that do not change within a ledger."""

    __slots__ = ("_fronts", "_ledger_id", "_message_ids", "_producer", "_producer_id")

    def __init__(self, producer_id: int) -> None:
        self._producer_id = producer_id
        self._producer = b"\x08" + encode(producer_id) + b"\x10"
        self._ledger_id: int | None = None
        self._message_ids: dict[int, bytes] = {}
        self._fronts: dict[tuple[int, int, int], bytes] = {}

    def encode(self, ledger_id: int, first_entry_id: int, sequences: list[tuple[int, int]]) -> bytes:
        """Receipts of consecutive entries, as one buffer; each of sequences is (sequence id, highest sequence id).

        A highest sequence id of 0 means that there is none, and is not written.
        """
        if _twins is None:
            return self.encode_plainly(ledger_id, first_entry_id, sequences)
        ids = (self._producer_id, ledger_id & UINT64_MAX, first_entry_id & UINT64_MAX)
        frames: bytes = _twins.frame_receipts(*ids, sequences)
        return frames

    def encode_plainly(self, ledger_id: int, first_entry_id: int, sequences: list[tuple[int, int]]) -> bytes:
        """The same without the compiled twin."""
        if ledger_id != self._ledger_id:
            self._enter(ledger_id)
        fronts, message_ids = self._fronts, self._message_ids
        parts: list[bytes] = []
        append = parts.append
        entry_high = sequence_high = -1
        entry_id = first_entry_id
        entry_tail = sequence_tail = highest_part = b""
        for sequence_id, highest in sequences:
            if entry_id >> 7 != entry_high:
                entry_high = entry_id >> 7
                entry_tail = encode(entry_high) if entry_high else b""
            if sequence_id >> 7 != sequence_high:
                sequence_high = sequence_id >> 7
                sequence_tail = encode(sequence_high) if sequence_high else b""
            entry = MORE[entry_id & 127] + entry_tail if entry_tail else LAST[entry_id]
            sequence = MORE[sequence_id & 127] + sequence_tail if sequence_tail else LAST[sequence_id]
            highest_part = b"\x20" + encode(highest) if highest else b""
            lengths = (len(sequence), len(entry), len(highest_part))
            append(fronts.get(lengths) or self._front(lengths))
            append(sequence)
            append(message_ids[len(entry)])
            append(entry)
            if highest_part:
                append(highest_part)
            entry_id += 1
        return b"".join(parts)

    def _enter(self, ledger_id: int) -> None:
        """The two middles that depend on the ledger: everything between sequence id and entry id, by entry length."""
        self._ledger_id = ledger_id
        self._fronts.clear()
        ledger = b"\x08" + encode(ledger_id) + b"\x10"
        self._message_ids = {size: b"\x1a" + encode(len(ledger) + size) + ledger for size in range(1, 11)}

    def _front(self, lengths: tuple[int, int, int]) -> bytes:
        sequence_size, entry_size, highest_size = lengths
        middle = self._message_ids[entry_size]
        receipt = len(self._producer) + sequence_size + len(middle) + entry_size + highest_size
        command = b"\x08\x07\x3a" + encode(receipt) + self._producer
        size = len(command) - len(self._producer) + receipt
        front = _HEADER.pack(size + 4, size) + command
        self._fronts[lengths] = front
        return front


def encode_receipts(receipts: list[Receipt]) -> bytes:
    """SEND_RECEIPT frames of messages of any producers, as one buffer."""
    parts: list[bytes] = []
    for producer_id, ledger_id, entry_id, sequence_id, highest in receipts:
        message_id = b"\x08" + encode(ledger_id & UINT64_MAX) + b"\x10" + encode(entry_id & UINT64_MAX)
        receipt = b"\x08" + encode(producer_id) + b"\x10" + encode(sequence_id)
        receipt += b"\x1a" + LAST[len(message_id)] + message_id
        if highest:
            receipt += b"\x20" + encode(highest)
        command = b"\x08\x07\x3a" + encode(len(receipt)) + receipt
        parts.append(_HEADER.pack(len(command) + 4, len(command)) + command)
    return b"".join(parts)


class MessageEncoder:
    """The beginnings of MESSAGE frames of one consumer, up to the stored bytes."""

    __slots__ = (
        "_consumer",
        "_entry_high",
        "_entry_tail",
        "_fronts",
        "_ids",
        "_ledger",
        "_ledger_id",
        "_partition",
    )

    def __init__(self, consumer_id: int, partition: int = -1) -> None:
        self._ids = (consumer_id, partition)
        self._consumer = b"\x08" + encode(consumer_id) + b"\x12"
        self._partition = b"" if partition == -1 else b"\x18" + encode(partition)
        self._ledger_id: int | None = None
        self._ledger = b""
        self._fronts: dict[int, bytes] = {}
        self._entry_high = 0
        self._entry_tail = b""

    def frames(
        self, deliveries: Sequence[Outgoing], *, whole: bool, epoch: int | None = None
    ) -> list[bytes | memoryview]:
        """MESSAGE frames: a header for each entry, and the stored bytes as they are; `whole` with what the broker put
        in front of the message.
        """
        if _twins is not None and isinstance(deliveries, list):
            found: list[bytes | memoryview] | None = _twins.frame_messages(
                *self._ids, -1 if epoch is None else epoch, whole, deliveries, COPIED_BYTES_MAX
            )
            if found is not None:
                return found
        return self.frames_plainly(deliveries, whole=whole, epoch=epoch)

    def frames_plainly(
        self, deliveries: Sequence[Outgoing], *, whole: bool, epoch: int | None = None
    ) -> list[bytes | memoryview]:
        """The same without the compiled twin."""
        out: list[bytes | memoryview] = []
        for stored, position, shape, _, ack_set, redelivery_count in deliveries:
            body = stored.body if whole else stored.body[shape.message_start :]
            if redelivery_count or ack_set or epoch is not None:
                out.append(self.repeated_header(*position, len(body), redelivery_count, ack_set, epoch))
            else:
                out.append(self.header(position[0], position[1], len(body)))
            out.append(body)
        return out

    def header(self, ledger_id: int, entry_id: int, body_bytes: int) -> bytes:
        """Sizes and command in front of a stored entry of body_bytes, delivered whole and for the first time."""
        if ledger_id != self._ledger_id:
            self._enter(ledger_id)
        high = entry_id >> 7
        if high != self._entry_high:
            self._entry_high = high
            self._entry_tail = encode(high) if high else b""
        entry = MORE[entry_id & 127] + self._entry_tail if high else LAST[entry_id]
        front = self._fronts.get(len(entry)) or self._front(len(entry))
        size = len(front) + len(entry) + len(self._partition)
        return _HEADER.pack(size + 4 + body_bytes, size) + front + entry + self._partition

    def repeated_header(
        self,
        ledger_id: int,
        entry_id: int,
        body_bytes: int,
        redelivery_count: int,
        ack_set: Sequence[int] = (),
        consumer_epoch: int | None = None,
    ) -> bytes:
        """As header, with what a redelivered, partly acknowledged or epoch-bound entry brings along."""
        if ledger_id != self._ledger_id:
            self._enter(ledger_id)
        message_id = self._ledger + encode(entry_id) + self._partition
        parts = [self._consumer, LAST[len(message_id)], message_id]
        if redelivery_count:
            parts.append(b"\x18" + encode(redelivery_count))
        parts += [b"\x20" + encode(word) for word in ack_set]
        if consumer_epoch is not None:
            parts.append(b"\x28" + encode(consumer_epoch))
        message = b"".join(parts)
        command = b"\x08\x09\x4a" + encode(len(message)) + message
        return _HEADER.pack(len(command) + 4 + body_bytes, len(command)) + command

    def _enter(self, ledger_id: int) -> None:
        self._ledger_id = ledger_id
        self._ledger = b"\x08" + encode(ledger_id) + b"\x10"
        self._fronts.clear()

    def _front(self, entry_size: int) -> bytes:
        """Everything between the frame's sizes and an entry id of this many bytes."""
        message_id = len(self._ledger) + entry_size + len(self._partition)
        message = self._consumer + LAST[message_id] + self._ledger
        front = b"\x08\x09\x4a" + encode(len(message) + entry_size + len(self._partition)) + message
        self._fronts[entry_size] = front
        return front


def decode_send(command: bytes) -> SendFields | None:
    """The fields of a SEND of a message or a batch, or None: then protobuf must read the command.

    None says nothing about validity: transactions, chunks, markers, replication and damaged bytes all come here. The
    usual sizes are read without a loop, which is how protobuf is beaten.
    """
    try:
        if command[:3] != b"\x08\x06\x32" or command[4] != 0x08 or command[3] != len(command) - 4:
            return None
        producer_id = command[5]
        position = 6
        if producer_id > 127:
            producer_id, position = _number(command, 5)
        if command[position] != 0x10:
            return None
        position += 1
        sequence_id = command[position]
        if sequence_id > 127:
            second = command[position + 1]
            third = command[position + 2] if second > 127 else 0
            if third > 127:
                sequence_id, position = _number(command, position)
            else:
                sequence_id += (second << 7) - 128
                if second > 127:
                    sequence_id += (third << 14) - 0x4000
                    position += 1
                position += 2
        else:
            position += 1
        return (producer_id, sequence_id, *_batch_fields(command, position))
    except (IndexError, BadCommand):
        return None


def _batch_fields(command: bytes, position: int) -> tuple[int, int]:
    """How many messages, and the highest sequence id, in the rest of a SEND; BadCommand if there is anything else."""
    messages, highest = 1, 0
    if position < len(command) and command[position] == 0x18:
        messages, position = _number(command, position + 1)
    if position < len(command) and command[position] == 0x30:
        highest, position = _number(command, position + 1)
    if position != len(command) or not 0 < messages < 2**31:
        raise BadCommand("more than a batch has")
    return messages, highest


def decode_ack(command: bytes) -> AckFields | None:
    """The fields of an ACK of whole entries, each for itself, or None: then protobuf must read the command.

    As with `decode_send`, None says nothing about validity.
    """
    if not command.startswith(_ACK_FRONT):
        return None
    if _twins is not None:
        fields: AckFields | None = _twins.read_ack(command)
        return fields
    return decode_ack_plainly(command)


def decode_ack_plainly(command: bytes) -> AckFields | None:
    """The same without the compiled twin."""
    size = len(command)
    positions: list[tuple[int, int]] = []
    request_id: int | None = None
    try:
        length, at = decode(command, 3)
        if not command.startswith(_ACK_FRONT) or length != size - at or command[at] != 0x08:
            return None
        consumer_id, at = decode(command, at + 1)
        if command[at : at + 2] != b"\x10\x00":
            return None
        at += 2
        while at < size and command[at] == 0x1A:
            position = _acked_position(command, at + 2, at + 2 + command[at + 1]) if command[at + 1] < 128 else None
            if position is None:
                return None
            positions.append(position)
            at += 2 + command[at + 1]
        if at < size and command[at] == 0x40:
            request_id, at = decode(command, at + 1)
    except (IndexError, BadCommand):
        return None
    return (consumer_id, request_id, positions) if at == size and positions else None


def _acked_position(command: bytes, at: int, until: int) -> tuple[int, int] | None:
    """A message id of ledger and entry, perhaps with partition and place in a batch, and nothing else."""
    message_id = command[at:until]
    if len(message_id) != until - at or message_id[0] != 0x08:
        return None
    ledger_id, at = decode(message_id, 1)
    if message_id[at] != 0x10:
        return None
    entry_id, at = decode(message_id, at + 1)
    for tag in (b"\x18", b"\x20"):
        if message_id[at : at + 1] == tag:
            _, at = decode(message_id, at + 1)
    is_plain = at == len(message_id) and ledger_id < 2**63 and entry_id < 2**63
    return (ledger_id, entry_id) if is_plain else None


def _number(command: bytes, position: int) -> tuple[int, int]:
    byte = command[position]
    number = byte & 127
    shift = 7
    while byte > 127:
        position += 1
        byte = command[position]
        number |= (byte & 127) << shift
        shift += 7
    if shift > 70:
        raise BadCommand("A variable-length number has more than ten bytes.")
    return number & UINT64_MAX, position + 1


def encode_send(producer_id: int, sequence_id: int, num_messages: int, highest_sequence_id: int = 0) -> bytes:
    """A SEND command without its frame; 1 message and no highest sequence id are the defaults, and not written."""
    send = b"\x08" + encode(producer_id) + b"\x10" + encode(sequence_id)
    if num_messages != 1:
        send += b"\x18" + encode(num_messages)
    if highest_sequence_id:
        send += b"\x30" + encode(highest_sequence_id)
    return b"\x08\x06\x32" + LAST[len(send)] + send


def encode_flow(consumer_id: int, permits: int) -> bytes:
    flow = b"\x08" + encode(consumer_id) + b"\x10" + encode(permits)
    size = 4 + len(flow)
    return _HEADER.pack(size + 4, size) + b"\x08\x0b\x5a" + LAST[len(flow)] + flow


def encode_ack(
    consumer_id: int,
    positions: Iterable[tuple[int, int]],
    *,
    cumulative: bool = False,
    request_id: int | None = None,
) -> bytes:
    """An ACK of whole entries; what names parts of a batch or a transaction goes through protobuf."""
    parts = [b"\x08", encode(consumer_id), b"\x10\x01" if cumulative else b"\x10\x00"]
    append = parts.append
    fronts: dict[int, bytes] = {}
    current = -1
    ledger = b""
    for ledger_id, entry_id in positions:
        if ledger_id != current:
            current = ledger_id
            ledger = b"\x08" + encode(ledger_id) + b"\x10"
            fronts = {}
        entry = encode(entry_id)
        front = fronts.get(len(entry))
        if front is None:
            front = fronts[len(entry)] = b"\x1a" + LAST[len(ledger) + len(entry)] + ledger
        append(front)
        append(entry)
    if request_id is not None:
        parts.append(b"\x40" + encode(request_id))
    ack = b"".join(parts)
    front = b"\x08\x0a\x52" + encode(len(ack))
    size = len(front) + len(ack)
    return _HEADER.pack(size + 4, size) + front + ack


PLAIN: Final = (encode_receipts,)

if _twins is not None:
    encode_receipts = _twins.frame_single_receipts
