# SPDX-License-Identifier: Apache-2.0
"""Several records of a transaction's log in one entry, as Apache Pulsar writes them (docs/formats/transactions.md).

An entry that does not begin with the mark of a batch is one record. Never knows what a record means.
Decides.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from magnetar.errors import BadCommand, DamagedRecord
from magnetar.wire import varint

# Magic 0x0e01; a record of its own begins with 08.
_MAGIC: Final = b"\x0e\x01"
_VERSION: Final = b"\x00\x01"
# Field 1 of both of Pulsar's messages for a batch, which differ in nothing else.
_RECORD: Final = b"\x0a"


class BatchLimits(NamedTuple):
    """When a batch is written: so many records, so many bytes, or so long after its first record."""

    records_max: int
    bytes_max: int
    delay_ms: int


def entry_of(records: Sequence[bytes]) -> bytes:
    """One entry of these records; one alone is written as it is."""
    if len(records) == 1:
        return records[0]
    return _MAGIC + _VERSION + b"".join(_RECORD + varint.encode(len(record)) + record for record in records)


def records_in(entry: bytes) -> list[bytes]:
    """The records of an entry, in their order. DamagedRecord when it is a batch that cannot be read."""
    if entry[:2] != _MAGIC:
        return [entry]
    if entry[2:4] != _VERSION:
        raise DamagedRecord(f"A batch of a transaction log has version {entry[2:4].hex()}, which is not known")
    records: list[bytes] = []
    position = 4
    while position < len(entry):
        if entry[position : position + 1] != _RECORD:
            raise DamagedRecord(f"A batch of a transaction log has no record at byte {position}")
        try:
            size, position = varint.decode(entry, position + 1)
        except BadCommand as error:
            raise DamagedRecord(f"A batch of a transaction log cannot be read: {error}") from error
        if size > len(entry) - position:
            raise DamagedRecord(f"A batch of a transaction log ends inside of a record of {size} bytes")
        records.append(entry[position : position + size])
        position += size
    return records
