# SPDX-License-Identifier: Apache-2.0
"""Many records of journal and entry log at once, as `journal_format` and `entry_log_format` write one.

The functions here are the plain ones; at the end the compiled twins take their names, where there are any.
Decides.
"""

from typing import Final

from magnetar.bookie import entry_log_format, journal_format
from magnetar.bookie.journal_format import RecordKind
from magnetar.bookie.ledger_index import ROW
from magnetar.wire import compiled


def journal_records(seed: int, offset: int, synced: int, entries: list[bytes]) -> bytes:
    """The records of these entries, from this offset of a journal file on."""
    records = []
    for entry in entries:
        records.append(journal_format.encode_record(seed, offset, synced, RecordKind.ENTRY, entry))
        offset += len(records[-1])
    return b"".join(records)


def log_records(seed: int, offset: int, location: int, entries: list[tuple[int, int, bytes]]) -> tuple[bytes, bytes]:
    """The records of these entries (ledger, entry id, bytes) from this offset of an entry log on, and their index rows.

    Location is that of the log's first byte.
    """
    records: list[bytes] = []
    rows = bytearray()
    for ledger_id, entry_id, entry in entries:
        records += entry_log_format.encode_record(seed, offset, entry)
        rows += ROW.pack(ledger_id, entry_id, location + offset, len(entry))
        offset += len(entry) + entry_log_format.RECORD_OVERHEAD_BYTES
    return b"".join(records), bytes(rows)


PLAIN: Final = (journal_records, log_records)

if (_twins := compiled.load()) is not None:
    journal_records = _twins.journal_records
    log_records = _twins.log_records
