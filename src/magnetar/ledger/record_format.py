# SPDX-License-Identifier: Apache-2.0
"""LedgerRecord ⇄ BookKeeper's ledger metadata.

A record is written back in the form it was read in, with the fields that we do not know (R15), so that clients of every
age can share a ledger. The bytes of the three forms are in `wire/bookkeeper/ledger_metadata.py`.
Decides.
"""

from typing import Final

from magnetar.errors import DamagedRecord
from magnetar.ledger.quorum import Quorum
from magnetar.ledger.record import LedgerRecord, LedgerState
from magnetar.ledger.segments import Segment
from magnetar.wire.bookkeeper import ledger_metadata
from magnetar.wire.bookkeeper.digest import DigestType
from magnetar.wire.proto.ledger_formats_pb2 import LedgerMetadataFormat

_STATES: Final = {
    LedgerState.OPEN: LedgerMetadataFormat.OPEN,
    LedgerState.IN_RECOVERY: LedgerMetadataFormat.IN_RECOVERY,
    LedgerState.CLOSED: LedgerMetadataFormat.CLOSED,
}
_STATE_OF: Final = {number: state for state, number in _STATES.items()}


def encode_record(record: LedgerRecord) -> bytes:
    message = LedgerMetadataFormat.FromString(record.origin)
    message.quorumSize = record.quorum.write_quorum
    message.ensembleSize = record.quorum.ensemble_size
    message.ackQuorumSize = record.quorum.ack_quorum
    message.length = record.length
    message.state = _STATES[record.state]
    message.digestType = LedgerMetadataFormat.DigestType.ValueType(record.digest.value)
    message.password = record.password
    message.ctime = record.created_ms
    message.cToken = record.token
    if record.is_closed:
        message.lastEntryId = record.last_entry
    del message.segment[:]
    for segment in record.segments:
        message.segment.add(ensembleMember=segment.ensemble, firstEntryId=segment.first_entry)
    del message.customMetadata[:]
    for key, value in sorted((record.custom or {}).items()):
        message.customMetadata.add(key=key, value=value)
    return ledger_metadata.encode(message, record.form)


def decode_record(ledger_id: int, value: bytes) -> LedgerRecord:
    """Raises DamagedRecord for what cannot be a ledger's record, UnsupportedVersion for a later form."""
    message = ledger_metadata.decode(value)
    closed = message.state == LedgerMetadataFormat.CLOSED
    record = LedgerRecord(
        ledger_id=ledger_id,
        quorum=Quorum(message.ensembleSize, message.quorumSize, message.ackQuorumSize),
        segments=tuple(Segment(s.firstEntryId, tuple(s.ensembleMember)) for s in message.segment),
        # The first form names no digest; CRC32 was the only one then.
        digest=DigestType(message.digestType),
        password=message.password,
        state=_STATE_OF[message.state],
        last_entry=message.lastEntryId if closed else -1,
        length=message.length,
        created_ms=message.ctime,
        token=message.cToken,
        custom={entry.key: entry.value for entry in message.customMetadata},
        form=ledger_metadata.version_of(value),
        origin=message.SerializeToString(),
    )
    try:
        record.check()
    except AssertionError as error:
        raise DamagedRecord(f"Ledger {ledger_id}: its metadata is impossible: {error}.") from error
    return record
