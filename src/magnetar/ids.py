# SPDX-License-Identifier: Apache-2.0
"""Positions and message ids: where something lies, and how clients write that down.

Owns the order of ids, their text form, and the byte form that every official client stores and reads: the protocol's
MessageIdData message. It is encoded by hand because this module lies below `wire`; a test holds it equal to the
generated one. Never knows whether there is a message at a place.
Decides.
"""

from typing import Final, NamedTuple

from magnetar.errors import BadMessageId

# An id with the acknowledgement set of a large batch; anything longer is no id.
ENCODED_BYTES_MAX: Final = 64 * 1024

_VARINT_BYTES_MAX: Final = 10
_UINT64: Final = 2**64
_INT64_END: Final = 2**63
_INT32_END: Final = 2**31

_VARINT: Final = 0
_FIXED64: Final = 1
_LENGTH: Final = 2
_FIXED32: Final = 5


class Position(NamedTuple):
    """A place in a managed ledger. Entry -1 is the place before a ledger's first entry."""

    ledger_id: int
    entry_id: int


EARLIEST: Final = Position(-1, -1)
LATEST: Final = Position(2**63 - 1, 2**63 - 1)


class MessageId:
    """Where one message lies: a position, the partition (-1: none) and the place in a batch (-1: not in a batch).

    `batch_size` (0: unknown) and `first_chunk` (of a message that was sent in chunks; this id is its last chunk's)
    travel along but are no part of equality and order. Immutable by agreement.
    """

    __slots__ = ("batch_index", "batch_size", "entry_id", "first_chunk", "ledger_id", "partition")

    def __init__(
        self,
        ledger_id: int,
        entry_id: int,
        partition: int = -1,
        batch_index: int = -1,
        batch_size: int = 0,
        first_chunk: "MessageId | None" = None,
    ) -> None:
        self.ledger_id = ledger_id
        self.entry_id = entry_id
        self.partition = partition
        self.batch_index = batch_index
        self.batch_size = batch_size
        self.first_chunk = first_chunk

    @property
    def position(self) -> Position:
        return Position(self.ledger_id, self.entry_id)

    def encode(self) -> bytes:
        """The bytes that official clients call the serialised message id."""
        encoded = bytearray()
        _put(encoded, 1, self.ledger_id)
        _put(encoded, 2, self.entry_id)
        if self.partition >= 0:
            _put(encoded, 3, self.partition)
        if self.batch_index >= 0:
            _put(encoded, 4, self.batch_index)
        if self.batch_size > 0:
            _put(encoded, 6, self.batch_size)
        if self.first_chunk is not None:
            chunk = self.first_chunk.encode()
            encoded.append(7 << 3 | _LENGTH)
            _put_varint(encoded, len(chunk))
            encoded += chunk
        return bytes(encoded)

    @staticmethod
    def decode(data: bytes | bytearray | memoryview) -> "MessageId":
        """Read what `encode` or an official client wrote. Fields of later versions are skipped."""
        if len(data) > ENCODED_BYTES_MAX:
            raise BadMessageId(f"{len(data)} bytes are too many for a message id")
        return _decode(memoryview(data), may_have_chunk=True)

    @staticmethod
    def parse(text: str) -> "MessageId":
        """Read `ledger:entry`, optionally followed by `:partition` and `:batch-index`."""
        try:
            numbers = [int(part) for part in text.split(":")] if len(text) <= 100 else []
        except ValueError:
            numbers = []
        if not 2 <= len(numbers) <= 4:
            raise BadMessageId(f"message id {text[:100]!r} should be ledger:entry, :partition and :batch may follow")
        wide, narrow = numbers[:2], numbers[2:]
        if not all(-1 <= n < _INT64_END for n in wide) or not all(-1 <= n < _INT32_END for n in narrow):
            raise BadMessageId(f"message id {text!r} has a number below -1 or too large")
        partition, batch_index = (*narrow, -1, -1)[:2]
        return MessageId(wide[0], wide[1], partition, batch_index)

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}:{self.partition}:{self.batch_index}"

    def __repr__(self) -> str:
        return f"MessageId({self})"

    def _key(self) -> tuple[int, int, int, int]:
        return (self.ledger_id, self.entry_id, self.partition, self.batch_index)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MessageId) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __lt__(self, other: "MessageId") -> bool:
        return self._key() < other._key()

    def __le__(self, other: "MessageId") -> bool:
        return self._key() <= other._key()

    def __gt__(self, other: "MessageId") -> bool:
        return self._key() > other._key()

    def __ge__(self, other: "MessageId") -> bool:
        return self._key() >= other._key()


EARLIEST_MESSAGE: Final = MessageId(*EARLIEST)
LATEST_MESSAGE: Final = MessageId(*LATEST)


def _put(encoded: bytearray, field: int, value: int) -> None:
    encoded.append(field << 3)
    _put_varint(encoded, value if value >= 0 else value + _UINT64)


def _put_varint(encoded: bytearray, value: int) -> None:
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)


def _varint(data: memoryview, offset: int) -> tuple[int, int]:
    """The number at offset, and the offset after it."""
    value = 0
    for shift in range(0, 7 * _VARINT_BYTES_MAX, 7):
        if offset >= len(data):
            raise BadMessageId("message id ends in the middle of a number")
        byte = data[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value % _UINT64, offset
    raise BadMessageId("message id contains a number of more than ten bytes")


def _decode(data: memoryview, *, may_have_chunk: bool) -> MessageId:
    ledger_id: int | None = None
    entry_id: int | None = None
    partition = batch_index = -1
    batch_size = 0
    first_chunk = None
    offset = 0
    while offset < len(data):
        tag, offset = _varint(data, offset)
        start = offset
        offset = _end_of_field(data, tag, start)
        match tag:
            case 8:
                ledger_id = _int64(data, start)
            case 16:
                entry_id = _int64(data, start)
            case 24:
                partition = _int32(data, start)
            case 32:
                batch_index = _int32(data, start)
            case 48:
                batch_size = _int32(data, start)
            case 58:
                if not may_have_chunk:
                    raise BadMessageId("message id of a first chunk names a first chunk itself")
                _, start = _varint(data, start)
                first_chunk = _decode(data[start:offset], may_have_chunk=False)
    if ledger_id is None or entry_id is None:
        raise BadMessageId("message id lacks its ledger or its entry")
    return MessageId(ledger_id, entry_id, partition, batch_index, batch_size, first_chunk)


def _end_of_field(data: memoryview, tag: int, start: int) -> int:
    if not 0 < tag >> 3 < 2**29:
        raise BadMessageId(f"message id contains the impossible field {tag >> 3}")
    kind = tag & 7
    if kind == _VARINT:
        return _varint(data, start)[1]
    if kind == _LENGTH:
        length, start = _varint(data, start)
        end = start + length
    elif kind in (_FIXED64, _FIXED32):
        end = start + (8 if kind == _FIXED64 else 4)
    else:
        raise BadMessageId(f"message id contains a field of unknown kind {kind}")
    if end > len(data):
        raise BadMessageId("message id ends in the middle of a field")
    return end


def _int64(data: memoryview, start: int) -> int:
    value = _varint(data, start)[0]
    return value if value < _INT64_END else value - _UINT64


def _int32(data: memoryview, start: int) -> int:
    value = _varint(data, start)[0] % 2**32
    return value if value < _INT32_END else value - 2**32
