# SPDX-License-Identifier: Apache-2.0
"""Bytes between a metadata server and its clients, as written down in docs/formats/remote_metadata.md.

Frames are length-prefixed, and a length is checked before anything is kept. Requests carry a number that their answer
repeats; changes come unasked. Nothing here waits, opens or trusts.
Decides.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from magnetar.errors import (
    BadFrame,
    BadPath,
    BadVersion,
    HasChildren,
    MagnetarError,
    MetadataError,
    NoRecord,
    NotSupported,
    SessionLost,
    StorageFailed,
    TooManyRequests,
    ValueTooLarge,
)
from magnetar.metadata.store import Change, ChangeKind, Record

VERSION: Final = 1
MAGIC: Final = b"MgMd"
NEW_SESSION: Final = 0
NO_EXPECTED_VERSION: Final = -2
CHANGES_PER_FRAME: Final = 500

_LENGTH: Final = struct.Struct(">I")
_HEAD: Final = struct.Struct(">BQ")
_HELLO: Final = struct.Struct(">4sBQQI")
_WELCOME: Final = struct.Struct(">QQI")
_PUT: Final = struct.Struct(">qB")
_RECORD: Final = struct.Struct(">BqBQQ")
_VERSION: Final = struct.Struct(">q")
_COUNT: Final = struct.Struct(">I")
_SHORT: Final = struct.Struct(">H")

_EPHEMERAL: Final = 1
_SEQUENTIAL: Final = 2


class Kind(IntEnum):
    HELLO = 1
    GET = 2
    PUT = 3
    DELETE = 4
    CHILDREN = 5
    WATCH = 6
    UNWATCH = 7
    PING = 8
    GOODBYE = 9
    ANSWER = 64
    REFUSAL = 65
    CHANGES = 66


ERROR_CODES: Final[dict[int, type[MagnetarError]]] = {
    1: MetadataError,
    2: BadVersion,
    3: NoRecord,
    4: HasChildren,
    5: SessionLost,
    6: BadPath,
    7: ValueTooLarge,
    8: TooManyRequests,
    9: StorageFailed,
    10: NotSupported,
}
_CODE_OF: Final = {error: code for code, error in ERROR_CODES.items()}
_CHANGE_KINDS: Final = tuple(ChangeKind)


class Frame(NamedTuple):
    kind: Kind
    number: int
    body: bytes


class Hello(NamedTuple):
    """A client's first words: which session of which store it wants to go on with, or a new one."""

    store_id: int
    session: int
    timeout_ms: int


class Welcome(NamedTuple):
    store_id: int
    session: int
    timeout_ms: int


class Put(NamedTuple):
    path: str
    value: bytes
    expected_version: int | None
    ephemeral: bool
    sequential: bool


class FrameCutter:
    """Cuts a stream of bytes into frames; the same frames for any split. BadFrame for what cannot be one."""

    __slots__ = ("_buffer", "_frame_bytes_max")

    def __init__(self, frame_bytes_max: int) -> None:
        self._buffer = bytearray()
        self._frame_bytes_max = frame_bytes_max

    def cut(self, data: bytes) -> Iterator[Frame]:
        self._buffer += data
        start = 0
        while len(self._buffer) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer, start)
            if not _HEAD.size <= length <= self._frame_bytes_max:
                raise BadFrame(
                    f"a metadata frame of {length} bytes: allowed are {_HEAD.size} to {self._frame_bytes_max}"
                )
            end = start + _LENGTH.size + length
            if len(self._buffer) < end:
                break
            kind, number = _HEAD.unpack_from(self._buffer, start + _LENGTH.size)
            if kind not in Kind._value2member_map_:
                raise BadFrame(f"a metadata frame of unknown kind {kind}")
            yield Frame(Kind(kind), number, bytes(self._buffer[start + _LENGTH.size + _HEAD.size : end]))
            start = end
        del self._buffer[:start]


def encode_frame(kind: Kind, number: int, *parts: bytes) -> bytes:
    length = _HEAD.size + sum(map(len, parts))
    return b"".join((_LENGTH.pack(length), _HEAD.pack(kind, number), *parts))


def encode_hello(hello: Hello) -> bytes:
    return _HELLO.pack(MAGIC, VERSION, *hello)


def decode_hello(body: bytes) -> Hello:
    if len(body) < 5 or body[:4] != MAGIC:
        raise BadFrame("this is not a client of the metadata server: its first words are wrong")
    if body[4] != VERSION:
        raise NotSupported(f"metadata protocol version {body[4]}: this server speaks {VERSION}")
    _, _, store_id, session, timeout_ms = _unpack(_HELLO, body)
    return Hello(store_id, session, timeout_ms)


def encode_welcome(welcome: Welcome) -> bytes:
    return _WELCOME.pack(*welcome)


def decode_welcome(body: bytes) -> Welcome:
    return Welcome(*_unpack(_WELCOME, body))


def encode_path(path: str) -> bytes:
    return path.encode()


def decode_path(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise BadFrame("a metadata path is not UTF-8") from error


def encode_put(put: Put) -> bytes:
    expected = NO_EXPECTED_VERSION if put.expected_version is None else put.expected_version
    flags = (_EPHEMERAL if put.ephemeral else 0) | (_SEQUENTIAL if put.sequential else 0)
    path = put.path.encode()
    return b"".join((_PUT.pack(expected, flags), _SHORT.pack(len(path)), path, put.value))


def decode_put(body: bytes) -> Put:
    expected, flags = _unpack_front(_PUT, body)
    (length,) = _unpack_front(_SHORT, body[_PUT.size :])
    start = _PUT.size + _SHORT.size
    if len(body) < start + length:
        raise BadFrame("a put is shorter than its path says")
    return Put(
        decode_path(body[start : start + length]),
        body[start + length :],
        None if expected == NO_EXPECTED_VERSION else expected,
        bool(flags & _EPHEMERAL),
        bool(flags & _SEQUENTIAL),
    )


def encode_delete(path: str, expected_version: int | None) -> bytes:
    expected = NO_EXPECTED_VERSION if expected_version is None else expected_version
    return _VERSION.pack(expected) + path.encode()


def decode_delete(body: bytes) -> tuple[str, int | None]:
    (expected,) = _unpack_front(_VERSION, body)
    return decode_path(body[_VERSION.size :]), None if expected == NO_EXPECTED_VERSION else expected


def encode_stored(path: str, version: int) -> bytes:
    return _VERSION.pack(version) + path.encode()


def decode_stored(body: bytes) -> tuple[str, int]:
    (version,) = _unpack_front(_VERSION, body)
    return decode_path(body[_VERSION.size :]), version


def encode_record(record: Record | None) -> bytes:
    if record is None:
        return b"\x00"
    fixed = _RECORD.pack(1, record.version, record.ephemeral, record.created_ms, record.modified_ms)
    return fixed + record.value


def decode_record(body: bytes) -> Record | None:
    if body == b"\x00":
        return None
    _, version, ephemeral, created_ms, modified_ms = _unpack_front(_RECORD, body)
    return Record(body[_RECORD.size :], version, bool(ephemeral), created_ms, modified_ms)


def encode_names(names: list[str]) -> bytes:
    # No name holds a NUL (`paths.py`), so it can stand between them.
    return _COUNT.pack(len(names)) + "\x00".join(names).encode()


def decode_names(body: bytes) -> list[str]:
    (count,) = _unpack_front(_COUNT, body)
    names = decode_path(body[_COUNT.size :]).split("\x00") if count else []
    if len(names) != count:
        raise BadFrame(f"a list of {len(names)} names says that it has {count}")
    return names


def encode_changes(changes: list[Change]) -> bytes:
    parts = []
    for change in changes:
        path = change.path.encode()
        parts.append(bytes((_CHANGE_KINDS.index(change.kind),)) + _SHORT.pack(len(path)) + path)
    return b"".join(parts)


def decode_changes(body: bytes) -> list[Change]:
    changes = []
    at = 0
    while at < len(body):
        kind = body[at]
        (length,) = _unpack_front(_SHORT, body[at + 1 : at + 3])
        at += 3 + length
        if kind >= len(_CHANGE_KINDS) or at > len(body):
            raise BadFrame("a list of metadata changes is cut off or holds an unknown kind")
        changes.append(Change(_CHANGE_KINDS[kind], decode_path(body[at - length : at])))
    return changes


def encode_refusal(error: MagnetarError) -> bytes:
    code = next((_CODE_OF[kind] for kind in type(error).__mro__ if kind in _CODE_OF), 1)
    return bytes((code,)) + str(error).encode()


def decode_refusal(body: bytes) -> MagnetarError:
    if not body:
        raise BadFrame("a refusal without a reason")
    return ERROR_CODES.get(body[0], MetadataError)(body[1:].decode(errors="replace"))


def _unpack(form: struct.Struct, body: bytes) -> tuple[int, ...]:
    if len(body) != form.size:
        raise BadFrame(f"a metadata frame has {len(body)} bytes where {form.size} belong")
    return form.unpack(body)


def _unpack_front(form: struct.Struct, body: bytes) -> tuple[int, ...]:
    if len(body) < form.size:
        raise BadFrame(f"a metadata frame has {len(body)} bytes where at least {form.size} belong")
    return form.unpack_from(body)
