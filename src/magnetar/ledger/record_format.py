# SPDX-License-Identifier: Apache-2.0
"""LedgerRecord ⇄ BookKeeper's ledger metadata, third version: a text line, then one delimited protobuf.

Decides.
"""

from typing import Final

from magnetar.errors import Damaged
from magnetar.ledger.quorum import Quorum
from magnetar.ledger.record import LedgerRecord, LedgerState
from magnetar.ledger.segments import Segment
from magnetar.wire.bookkeeper.digest import DigestType
from magnetar.wire.proto import ledger_formats_pb2 as formats

_HEADER: Final = b"BookieMetadataFormatVersion\t3\n"
_STATES: Final = {
    LedgerState.OPEN: formats.LedgerMetadataFormat.OPEN,
    LedgerState.IN_RECOVERY: formats.LedgerMetadataFormat.IN_RECOVERY,
    LedgerState.CLOSED: formats.LedgerMetadataFormat.CLOSED,
}
_STATE_OF: Final = {number: state for state, number in _STATES.items()}


def encode_record(record: LedgerRecord) -> bytes:
    message = formats.LedgerMetadataFormat(
        quorumSize=record.quorum.write_quorum,
        ensembleSize=record.quorum.ensemble_size,
        ackQuorumSize=record.quorum.ack_quorum,
        length=record.length,
        state=_STATES[record.state],
        digestType=formats.LedgerMetadataFormat.DigestType.ValueType(record.digest.value),
        password=record.password,
        ctime=record.created_ms,
        cToken=record.token,
    )
    if record.is_closed:
        message.lastEntryId = record.last_entry
    for segment in record.segments:
        message.segment.add(ensembleMember=segment.ensemble, firstEntryId=segment.first_entry)
    for key, value in sorted((record.custom or {}).items()):
        message.customMetadata.add(key=key, value=value)
    body = message.SerializeToString()
    size, prefix = len(body), bytearray()
    while size > 0x7F:
        prefix.append(size & 0x7F | 0x80)
        size >>= 7
    prefix.append(size)
    return b"".join((_HEADER, prefix, body))


def decode_record(ledger_id: int, value: bytes) -> LedgerRecord:
    if not value.startswith(_HEADER):
        raise Damaged(f"Ledger {ledger_id}: its metadata begins with {value[:32]!r}.")
    size = shift = 0
    at = len(_HEADER)
    while True:
        byte = value[at]
        size |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            break
    message = formats.LedgerMetadataFormat.FromString(value[at : at + size])
    closed = message.state == formats.LedgerMetadataFormat.CLOSED
    return LedgerRecord(
        ledger_id=ledger_id,
        quorum=Quorum(message.ensembleSize, message.quorumSize, message.ackQuorumSize or message.quorumSize),
        segments=tuple(Segment(s.firstEntryId, tuple(s.ensembleMember)) for s in message.segment),
        digest=DigestType(message.digestType),
        password=message.password,
        state=_STATE_OF[message.state],
        last_entry=message.lastEntryId if closed else -1,
        length=message.length,
        created_ms=message.ctime,
        token=message.cToken,
        custom={entry.key: entry.value for entry in message.customMetadata},
    )
