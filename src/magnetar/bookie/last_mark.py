# SPDX-License-Identifier: Apache-2.0
"""The last mark: up to where a journal is not needed any more (docs/formats/last_mark.md).

Owns the mark's bytes and the rule that it never goes back. A mark that cannot be read is no mark: replay then starts
with the oldest journal.
Decides.
"""

from struct import Struct
from typing import Final, NamedTuple

from google_crc32c import value

from magnetar.errors import NewerFormat

MARK_FILE_NAME: Final = "lastMark"
MARK_BYTES: Final = 48

_MAGIC: Final = b"MAGNETLM"
_VERSION: Final = 1
_FIELDS: Final = Struct(">8sIQQQQ")
_CHECKSUM: Final = Struct(">I")


class LastMark(NamedTuple):
    file_id: int
    offset: int
    position: int
    # The index carries the number of the last checkpoint it took part in: an older index has lost something.
    checkpoint: int


def encode_mark(mark: LastMark) -> bytes:
    fields = _FIELDS.pack(_MAGIC, _VERSION, *mark)
    return fields + _CHECKSUM.pack(value(fields))


def decode_mark(data: bytes, where: str = "a last mark") -> LastMark | None:
    """None when the bytes are not a whole mark; NewerFormat when a later version wrote them."""
    if len(data) != MARK_BYTES:
        return None
    fields = data[: _FIELDS.size]
    magic, version, *numbers = _FIELDS.unpack(fields)
    if magic != _MAGIC or _CHECKSUM.unpack_from(data, _FIELDS.size)[0] != value(fields):
        return None
    if version > _VERSION:
        raise NewerFormat.of(where, version, _VERSION)
    return LastMark(*numbers)


def may_follow(previous: LastMark | None, mark: LastMark) -> bool:
    """Whether a mark may replace the one on disk."""
    return previous is None or (mark.position >= previous.position and mark.file_id >= previous.file_id)
