# SPDX-License-Identifier: Apache-2.0
"""The file that carries metadata from one store to another: lines of JSON, each with its checksum, the whole with one.

Written down in docs/formats/metadata_export.md. Versions of records and their times are told for people; a store gives
its own to what is imported.
Decides.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import google_crc32c

from magnetar.errors import DamagedRecord

FORMAT: Final = "magnetar-metadata"
VERSION: Final = 1
# A record of one MiB in base64, its path and the rest.
LINE_BYTES_MAX: Final = 2 * 1024 * 1024


class ExportedRecord(NamedTuple):
    path: str
    value: bytes
    version: int = 0
    modified_ms: int = 0


class Sequence(NamedTuple):
    """The next number of sequential names below a parent is at least this."""

    parent: str
    following: int


class Summary(NamedTuple):
    """The last line: how much there was, and the checksum of all lines before it."""

    records: int
    sequences: int
    checksum: int


def head(exported_ms: int) -> bytes:
    return _line({"format": FORMAT, "version": VERSION, "exportedMs": exported_ms})


def check_head(line: bytes, where: str) -> None:
    found = _object(line, where)
    if found.get("format") != FORMAT:
        raise DamagedRecord(f"{where} is not an export of metadata")
    if found.get("version") != VERSION:
        raise DamagedRecord(
            f"{where} has version {found.get('version')!r}, this version of Magnetar reads {VERSION}: "
            "import it with the version that wrote it, or a newer one"
        )


def encode(item: ExportedRecord | Sequence | Summary) -> bytes:
    if isinstance(item, Sequence):
        checksum = _checksum(item.parent, str(item.following).encode())
        return _line({"sequence": item.parent, "following": item.following, "crc32c": f"{checksum:08x}"})
    if isinstance(item, Summary):
        return _line({"records": item.records, "sequences": item.sequences, "crc32c": f"{item.checksum:08x}"})
    return _line(
        {
            "path": item.path,
            "value": base64.b64encode(item.value).decode(),
            "version": item.version,
            "modifiedMs": item.modified_ms,
            "crc32c": f"{_checksum(item.path, item.value):08x}",
        }
    )


def decode(line: bytes, where: str) -> ExportedRecord | Sequence | Summary:
    """One line after the first. DamagedRecord when it is not what was written."""
    found = _object(line, where)
    try:
        if "path" in found:
            value = base64.b64decode(found["value"], validate=True)
            record = ExportedRecord(found["path"], value, int(found["version"]), int(found["modifiedMs"]))
            _compare(found, _checksum(record.path, record.value), where)
            return record
        if "sequence" in found:
            sequence = Sequence(found["sequence"], int(found["following"]))
            _compare(found, _checksum(sequence.parent, str(sequence.following).encode()), where)
            return sequence
        return Summary(int(found["records"]), int(found["sequences"]), int(found["crc32c"], 16))
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise DamagedRecord(f"{where} is damaged: {error!r}") from error


def extended(checksum: int, line: bytes) -> int:
    """The checksum of everything so far and this line."""
    return int(google_crc32c.extend(checksum, line))


def _checksum(text: str, value: bytes) -> int:
    return int(google_crc32c.value(text.encode() + b"\0" + value))


def _compare(found: Mapping[str, Any], checksum: int, where: str) -> None:
    if int(found["crc32c"], 16) != checksum:
        raise DamagedRecord(f"{where} is damaged: its checksum is not that of its bytes")


def _object(line: bytes, where: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DamagedRecord(f"{where} is damaged: it is not JSON") from error
    if not isinstance(found, dict):
        raise DamagedRecord(f"{where} is damaged: it is not a JSON object")
    return found


def _line(found: dict[str, Any]) -> bytes:
    return json.dumps(found, separators=(",", ":")).encode() + b"\n"
