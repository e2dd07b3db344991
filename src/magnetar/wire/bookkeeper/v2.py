# SPDX-License-Identifier: Apache-2.0
"""Version 2 of the bookie protocol: fixed fields, all big-endian. This is what brokers use for entries.

    packet header: 1 version | 1 operation | 2 flags      (a version 0 header is the operation alone, as an int)

    add         header | 20 master key | packed entry
    read        header | 8 ledger | 8 entry | 20 master key, if it fences
    batch read  header | 8 ledger | 8 entry | 8 request | 4 entries max | 8 bytes max | 20 master key, if it fences
    auth        header | AuthMessage                      (the answer likewise)
    answers     header | 4 code | 8 ledger | 8 entry | …
                of a read: packed entry; of a batch read: 8 request, then 4 size | packed entry for each

Encoders give whole packets with their size in front, or for entries all but the entry, which is sent as it is.
Decides.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from google.protobuf.message import DecodeError

from magnetar.errors import BadCommand
from magnetar.wire.bookkeeper.codes import MASTER_KEY_BYTES, PROTOCOL_VERSION, Operation, RequestFlag
from magnetar.wire.proto.bookkeeper_pb2 import AuthMessage
from magnetar.wire.required import missing

_INT: Final = Struct(">I")
_ADD: Final = Struct(f">II{MASTER_KEY_BYTES}s")
_ADD_IDS: Final = Struct(f">I{MASTER_KEY_BYTES}sqq")
_READ: Final = Struct(">Iqq")
_BATCH_READ: Final = Struct(">Iqqqiq")
_ANSWER: Final = Struct(">Iiqq")
_SIZED_ANSWER: Final = Struct(">IIiqq")
_LONG: Final = Struct(">q")

_ADD_FRONT_BYTES: Final = 4 + MASTER_KEY_BYTES
# Plain numbers: members of an enumeration are several times slower to look up and combine.
_OP_ADD, _OP_READ, _OP_AUTH, _OP_BATCH_READ = map(
    int, (Operation.ADD, Operation.READ, Operation.AUTH, Operation.BATCH_READ)
)
_ADD_HEADER: Final = PROTOCOL_VERSION << 24 | _OP_ADD << 16
# For whoever cannot afford a tuple with names per add: header, master key, ledger and entry of a packet of at least
# ADD_BYTES_MIN bytes, which is an add of this version if the header's upper half is ADD_UPPER; its entry begins at
# ADD_ENTRY_AT.
read_add: Final = _ADD_IDS.unpack_from
ADD_BYTES_MIN: Final = _ADD_IDS.size
ADD_UPPER: Final = _ADD_HEADER >> 16
ADD_ENTRY_AT: Final = _ADD_FRONT_BYTES
_FENCE: Final = int(RequestFlag.FENCE)
_LARGE_ENTRY_BYTES: Final = 16 * 1024


class AddRequest(NamedTuple):
    version: int
    flags: int
    master_key: bytes
    ledger_id: int
    entry_id: int
    entry: bytes


class ReadRequest(NamedTuple):
    version: int
    flags: int
    ledger_id: int
    entry_id: int
    master_key: bytes | None


class BatchReadRequest(NamedTuple):
    version: int
    flags: int
    ledger_id: int
    entry_id: int
    request_id: int
    entries_max: int
    bytes_max: int
    master_key: bytes | None


class AuthRequest(NamedTuple):
    version: int
    message: AuthMessage


class AddResponse(NamedTuple):
    code: int
    ledger_id: int
    entry_id: int


class ReadResponse(NamedTuple):
    code: int
    ledger_id: int
    entry_id: int
    entry: bytes


class BatchReadResponse(NamedTuple):
    code: int
    ledger_id: int
    entry_id: int
    request_id: int
    entries: list[bytes]


class AuthResponse(NamedTuple):
    message: AuthMessage


Request: TypeAlias = AddRequest | ReadRequest | BatchReadRequest | AuthRequest
Response: TypeAlias = AddResponse | ReadResponse | BatchReadResponse | AuthResponse


def packet_header(operation: int, flags: int = 0, version: int = PROTOCOL_VERSION) -> int:
    """The first four bytes of a packet, as a number."""
    return operation if version == 0 else version << 24 | operation << 16 | flags


def read_packet_header(packet: bytes) -> tuple[int, int, int]:
    """Version, operation and flags of a packet. Raises BadCommand if there are too few bytes."""
    if len(packet) < _INT.size:
        raise BadCommand(f"A packet of {len(packet)} bytes has no header.")
    header: int = _INT.unpack_from(packet)[0]
    version = header >> 24
    if version == 0:
        return 0, header & 0xFF, 0
    return version, header >> 16 & 0xFF, header & 0xFFFF


# --- requests ---------------------------------------------------------------------------------


def add_front(entry_bytes: int, master_key: bytes, flags: int = 0) -> bytes:
    """All of an add but the packed entry, which follows."""
    return _ADD.pack(_ADD_FRONT_BYTES + entry_bytes, _ADD_HEADER | flags, master_key)


def encode_read(ledger_id: int, entry_id: int, fence_key: bytes | None = None, flags: int = 0) -> bytes:
    """A read; with a master key it fences the ledger first."""
    if fence_key is not None:
        flags |= _FENCE
    packet = _READ.pack(packet_header(_OP_READ, flags), ledger_id, entry_id) + (fence_key or b"")
    return _INT.pack(len(packet)) + packet


def encode_batch_read(ledger_id: int, entry_id: int, request_id: int, entries_max: int, bytes_max: int) -> bytes:
    header = packet_header(_OP_BATCH_READ)
    packet = _BATCH_READ.pack(header, ledger_id, entry_id, request_id, entries_max, bytes_max)
    return _INT.pack(len(packet)) + packet


def encode_auth(message: AuthMessage) -> bytes:
    """A request or an answer: the two look alike."""
    packet = _INT.pack(packet_header(_OP_AUTH)) + message.SerializeToString()
    return _INT.pack(len(packet)) + packet


def decode_request(packet: bytes) -> Request:
    """Raises BadCommand for an unknown operation or too few bytes; `read_packet_header` tells what was meant."""
    if len(packet) >= _ADD_IDS.size:  # adds first: nearly every packet is one
        header, master_key, ledger_id, entry_id = _ADD_IDS.unpack_from(packet)
        if header & ~0xFFFF == _ADD_HEADER:
            entry = packet[_ADD_FRONT_BYTES:]
            return AddRequest(PROTOCOL_VERSION, header & 0xFFFF, master_key, ledger_id, entry_id, entry)
    version, operation, flags = read_packet_header(packet)
    if operation == _OP_ADD:
        if len(packet) < _ADD_IDS.size:
            raise _too_short("An add", packet)
        _, master_key, ledger_id, entry_id = _ADD_IDS.unpack_from(packet)
        return AddRequest(version, flags, master_key, ledger_id, entry_id, packet[_ADD_FRONT_BYTES:])
    if operation == _OP_READ:
        if len(packet) < _READ.size:
            raise _too_short("A read", packet)
        _, ledger_id, entry_id = _READ.unpack_from(packet)
        return ReadRequest(version, flags, ledger_id, entry_id, _fence_key(packet, _READ.size, version, flags))
    if operation == _OP_BATCH_READ:
        if len(packet) < _BATCH_READ.size:
            raise _too_short("A batch read", packet)
        _, ledger_id, entry_id, request_id, entries_max, bytes_max = _BATCH_READ.unpack_from(packet)
        key = _fence_key(packet, _BATCH_READ.size, version, flags)
        return BatchReadRequest(version, flags, ledger_id, entry_id, request_id, entries_max, bytes_max, key)
    if operation == _OP_AUTH:
        return AuthRequest(version, _auth_message(packet))
    raise BadCommand(f"Operation {operation} is none of version 2's.")


# --- answers ----------------------------------------------------------------------------------


def encode_add_response(code: int, ledger_id: int, entry_id: int, version: int = PROTOCOL_VERSION) -> bytes:
    return _SIZED_ANSWER.pack(_ANSWER.size, packet_header(_OP_ADD, 0, version), code, ledger_id, entry_id)


def encode_add_responses(code: int, ledger_id: int, first: int, last: int, version: int = PROTOCOL_VERSION) -> bytes:
    """One answer for each of a run of entries, as one buffer."""
    header = _ADD_HEADER if version == PROTOCOL_VERSION else packet_header(_OP_ADD, 0, version)
    pack, size = _SIZED_ANSWER.pack, _ANSWER.size
    if first == last:
        return pack(size, header, code, ledger_id, first)
    return b"".join([pack(size, header, code, ledger_id, entry_id) for entry_id in range(first, last + 1)])


def read_response_front(
    code: int, ledger_id: int, entry_id: int, entry_bytes: int = 0, version: int = PROTOCOL_VERSION
) -> bytes:
    """All of a read's answer but the packed entry, which follows if there is one."""
    header = packet_header(_OP_READ, 0, version)
    return _SIZED_ANSWER.pack(_ANSWER.size + entry_bytes, header, code, ledger_id, entry_id)


def encode_batch_read_response(
    code: int, ledger_id: int, entry_id: int, request_id: int, entries: Sequence[bytes] = ()
) -> list[bytes]:
    """A batch read's answer as buffers to write one after the other; large entries are among them as they are."""
    size = _ANSWER.size + _LONG.size + sum(map(len, entries)) + _INT.size * len(entries)
    front = _SIZED_ANSWER.pack(size, packet_header(_OP_BATCH_READ), code, ledger_id, entry_id)
    buffers = [front + _LONG.pack(request_id)]
    for entry in entries:
        buffers += (_INT.pack(len(entry)), entry)
    # Handing hundreds of small ones to a socket costs more than copying them.
    return buffers if size >= len(entries) * _LARGE_ENTRY_BYTES else [b"".join(buffers)]


def encode_refusal(packet: bytes, code: int) -> bytes:
    """An answer with this code to a packet that decode_request refuses, with its ids as far as they are there."""
    version, operation, _ = read_packet_header(packet)
    start = _ADD_FRONT_BYTES if operation == _OP_ADD else _INT.size
    ledger_id, entry_id = (
        _LONG.unpack_from(packet, at)[0] if len(packet) >= at + _LONG.size else -1 for at in (start, start + _LONG.size)
    )
    header = packet_header(operation, 0, version)
    return _SIZED_ANSWER.pack(_ANSWER.size, header, code, ledger_id, entry_id)


def decode_response(packet: bytes) -> Response:
    """Raises BadCommand for an unknown operation, too few bytes, or entries that overrun the packet."""
    if len(packet) == _ANSWER.size:  # answers to adds first
        header, code, ledger_id, entry_id = _ANSWER.unpack(packet)
        if header == _ADD_HEADER:
            return AddResponse(code, ledger_id, entry_id)
    _, operation, _ = read_packet_header(packet)
    if operation == _OP_AUTH:
        return AuthResponse(_auth_message(packet))
    if len(packet) < _ANSWER.size:
        raise _too_short("An answer", packet)
    _, code, ledger_id, entry_id = _ANSWER.unpack_from(packet)
    if operation == _OP_ADD:
        return AddResponse(code, ledger_id, entry_id)
    if operation == _OP_READ:
        return ReadResponse(code, ledger_id, entry_id, packet[_ANSWER.size :])
    if operation == _OP_BATCH_READ:
        # A bookie that cannot read a request at all answers it without a request id.
        start = _ANSWER.size + _LONG.size
        request_id = _LONG.unpack_from(packet, _ANSWER.size)[0] if len(packet) >= start else -1
        return BatchReadResponse(code, ledger_id, entry_id, request_id, _entries(packet, start))
    raise BadCommand(f"Operation {operation} is none of version 2's.")


def _entries(packet: bytes, position: int) -> list[bytes]:
    entries: list[bytes] = []
    while position < len(packet):
        begin = position + _INT.size
        position = begin + int.from_bytes(packet[position:begin], "big")
        if begin > len(packet) or position > len(packet):
            raise BadCommand(f"Entry {len(entries)} of a batch read ends beyond its packet of {len(packet)} bytes.")
        entries.append(packet[begin:position])
    return entries


def _fence_key(packet: bytes, start: int, version: int, flags: int) -> bytes | None:
    if version < PROTOCOL_VERSION or not flags & _FENCE:
        return None
    if len(packet) < start + MASTER_KEY_BYTES:
        raise _too_short("A fencing read", packet)
    return packet[start : start + MASTER_KEY_BYTES]


def _auth_message(packet: bytes) -> AuthMessage:
    try:
        message = AuthMessage.FromString(packet[_INT.size :])
    except DecodeError as error:
        raise BadCommand("An authentication message cannot be parsed.") from error
    if lacking := missing(message):
        raise BadCommand(f"An authentication message lacks {lacking}.")
    return message


def _too_short(what: str, packet: bytes) -> BadCommand:
    return BadCommand(f"{what} of {len(packet)} bytes is too short.")
