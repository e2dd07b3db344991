# SPDX-License-Identifier: Apache-2.0
"""The compact set of entry ids with which a bookie says what it holds of a ledger.

    64 header: 4 version 0 | 4 groups | zeros
    per group: 8 start of the first run | 8 start of the last run | 4 run length | 4 period

A group is equally long runs at equal distances. We write one run per group, as BookKeeper itself does; we read any.
Decides.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final

from magnetar.errors import BadCommand, UnsupportedVersion

HEADER_BYTES: Final = 64
_VERSION: Final = 0
_HEADER: Final = Struct(">II")
_GROUP: Final = Struct(">qqii")


def encode(entry_ids: Iterable[int]) -> bytes:
    """The set of rising entry ids."""
    runs: list[list[int]] = []
    for entry_id in entry_ids:
        if runs and entry_id == runs[-1][0] + runs[-1][1]:
            runs[-1][1] += 1
        else:
            runs.append([entry_id, 1])
    groups = [_GROUP.pack(start, start, length, 0) for start, length in runs]
    return b"".join((_HEADER.pack(_VERSION, len(groups)).ljust(HEADER_BYTES, b"\x00"), *groups))


def decode(data: bytes, entries_max: int) -> list[int]:
    """The entry ids, rising. Raises BadCommand where sizes lie or more than entries_max would come out."""
    if len(data) < HEADER_BYTES:
        raise BadCommand(f"A set of entry ids of {len(data)} bytes has no whole header.")
    version, count = _HEADER.unpack_from(data)
    if version > _VERSION:
        raise UnsupportedVersion(f"A set of entry ids has version {version}; {_VERSION} is the latest known here.")
    if count * _GROUP.size > len(data) - HEADER_BYTES:
        raise BadCommand(f"{count} groups of entry ids do not fit into {len(data)} bytes.")
    entry_ids: list[int] = []
    for index in range(count):
        for run in _runs(*_GROUP.unpack_from(data, HEADER_BYTES + index * _GROUP.size)):
            if len(entry_ids) + len(run) > entries_max:
                raise BadCommand(f"A set holds more than {entries_max} entry ids.")
            if entry_ids and run.start <= entry_ids[-1]:
                raise BadCommand("The entry ids of a set do not rise.")
            entry_ids += run
    return entry_ids


def _runs(first: int, last: int, length: int, period: int) -> Iterable[range]:
    if first < 0 or length < 1 or last < first or (last > first and period < length):
        raise BadCommand(f"A group of entry ids from {first} to {last} by {period}, {length} long, is impossible.")
    return (range(start, start + length) for start in range(first, last + 1, period or 1))
