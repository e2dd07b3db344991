# SPDX-License-Identifier: Apache-2.0
"""A ledger's record in the metadata store, in the three forms that BookKeeper has written over the years.

    "BookieMetadataFormatVersion\\t" version "\\n", then
    1: lines of text — 2: protobuf as text — 3: protobuf with its size in front

All three come back as one LedgerMetadataFormat; what an older form cannot say is filled in as BookKeeper assumes it.
What the fields mean, and how they may change, is the business of `ledger/record.py`.
Decides.
"""

from typing import Final

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from magnetar.errors import BadCommand, DamagedRecord, UnsupportedVersion
from magnetar.wire import varint
from magnetar.wire.proto.ledger_formats_pb2 import LedgerMetadataFormat
from magnetar.wire.required import missing

TEXT_LINES: Final = 1
TEXT_PROTOBUF: Final = 2
BINARY_PROTOBUF: Final = 3
CURRENT_VERSION: Final = BINARY_PROTOBUF

_VERSION_KEY: Final = b"BookieMetadataFormatVersion\t"
_VERSION_DIGITS_MAX: Final = 10
_CLOSED: Final = "CLOSED"
_IN_RECOVERY_ENTRY_ID: Final = -102
"""The first form has no word for recovery: this last entry id stands for it."""


def encode(record: LedgerMetadataFormat, version: int = CURRENT_VERSION) -> bytes:
    """The stored bytes. The first form drops the digest, the password, the times and custom metadata."""
    header = _VERSION_KEY + str(version).encode() + b"\n"
    if version == BINARY_PROTOBUF:
        data = record.SerializeToString()
        return header + varint.encode(len(data)) + data
    if version == TEXT_PROTOBUF:
        spoken = LedgerMetadataFormat()
        spoken.CopyFrom(record)
        spoken.ClearField("cToken")  # readers of the second form know no such field
        return header + text_format.MessageToString(spoken, as_utf8=False).encode()
    assert version == TEXT_LINES, f"there is no version {version} of ledger metadata"
    return header + _encode_lines(record)


def decode(data: bytes) -> LedgerMetadataFormat:
    """The record, with every required field. Raises DamagedRecord, or UnsupportedVersion for a later form."""
    version, body = _split_header(data)
    if version == BINARY_PROTOBUF:
        record = _decode_binary(body)
    elif version == TEXT_PROTOBUF:
        record = _decode_text(body)
    elif version == TEXT_LINES:
        record = _decode_lines(body)
    else:
        raise UnsupportedVersion(f"Ledger metadata has version {version}; 1 to {CURRENT_VERSION} are known here.")
    if lacking := missing(record):
        raise DamagedRecord(f"Ledger metadata lacks {lacking}.")
    if not record.HasField("ackQuorumSize"):
        record.ackQuorumSize = record.quorumSize
    return record


def version_of(data: bytes) -> int:
    """Which form a record is stored in, so that it can be written back in the same. Raises DamagedRecord."""
    return _split_header(data)[0]


def _split_header(data: bytes) -> tuple[int, bytes]:
    if not data.startswith(_VERSION_KEY):
        raise DamagedRecord(f"Ledger metadata begins with {data[:32]!r}, not with its version.")
    digits, newline, body = data[len(_VERSION_KEY) :].partition(b"\n")
    if not newline or len(digits) > _VERSION_DIGITS_MAX or not digits.isdigit():
        raise DamagedRecord(f"Ledger metadata has {digits[:32]!r} for a version.")
    return int(digits), body


def _decode_binary(body: bytes) -> LedgerMetadataFormat:
    try:
        size, start = varint.decode(body, 0)
        if size > len(body) - start:
            raise DamagedRecord(f"Ledger metadata of {size} bytes ends after {len(body) - start}.")
        return LedgerMetadataFormat.FromString(body[start : start + size])
    except (BadCommand, DecodeError) as error:
        raise DamagedRecord("Ledger metadata cannot be parsed as protobuf.") from error


def _decode_text(body: bytes) -> LedgerMetadataFormat:
    try:
        return text_format.Parse(body.decode(), LedgerMetadataFormat())
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise DamagedRecord(f"Ledger metadata cannot be parsed as text: {error}") from error


def _encode_lines(record: LedgerMetadataFormat) -> bytes:
    lines = [str(record.quorumSize), str(record.ensembleSize), str(record.length)]
    lines += ["\t".join((str(segment.firstEntryId), *segment.ensembleMember)) for segment in record.segment]
    if record.state == LedgerMetadataFormat.IN_RECOVERY:
        lines.append(f"{_IN_RECOVERY_ENTRY_ID}\t{_CLOSED}")
    elif record.state == LedgerMetadataFormat.CLOSED:
        lines.append(f"{record.lastEntryId}\t{_CLOSED}")
    else:
        lines.append("")
    return "\n".join(lines).encode()


def _decode_lines(body: bytes) -> LedgerMetadataFormat:
    try:
        write_quorum, ensemble_size, length, *rest = body.decode().removesuffix("\n").split("\n")
        record = LedgerMetadataFormat(
            quorumSize=int(write_quorum),
            ensembleSize=int(ensemble_size),
            ackQuorumSize=int(write_quorum),
            length=int(length),
            lastEntryId=-1,
            state=LedgerMetadataFormat.OPEN,
        )
        for line in rest:
            first, *bookies = line.split("\t")
            if bookies == [_CLOSED]:
                _close(record, int(first))
                break
            if not bookies:
                raise DamagedRecord(f"Ledger metadata has the line {line!r}, which names no bookie.")
            record.segment.add(firstEntryId=int(first), ensembleMember=bookies)
    except ValueError as error:  # no number, too few lines, no UTF-8, or out of a field's range
        raise DamagedRecord(f"Ledger metadata cannot be parsed as lines: {error}") from error
    return record


def _close(record: LedgerMetadataFormat, last_entry_id: int) -> None:
    if last_entry_id == _IN_RECOVERY_ENTRY_ID:
        record.state = LedgerMetadataFormat.IN_RECOVERY
    else:
        record.state = LedgerMetadataFormat.CLOSED
        record.lastEntryId = last_entry_id
