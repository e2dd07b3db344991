# SPDX-License-Identifier: Apache-2.0
"""Many records of journal and entry log at once, as `journal_format` and `entry_log_format` write one.

The functions here are the plain ones; at the end the compiled twins take their names, where there are any.
Decides.
"""

from typing import Final

from magnetar.bookie import entry_log_format, journal_format
from magnetar.bookie.journal_format import RecordKind
from magnetar.bookie.ledger_index import ROW, Place
from magnetar.wire import compiled

LARGE_ENTRY_BYTES: Final = 16 * 1024
"""An entry of this size goes to disk as a buffer of its own: copying it into its record costs more than that."""


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


def log_buffers(
    seed: int, offset: int, location: int, entries: list[tuple[int, int, bytes]]
) -> tuple[list[bytes], bytes]:
    """As `log_records`, in one buffer or in several: large entries are not copied into theirs."""
    if len(entries[0][2]) < LARGE_ENTRY_BYTES:
        records, rows = log_records(seed, offset, location, entries)
        return [records], rows
    buffers: list[bytes] = []
    places = bytearray()
    for ledger_id, entry_id, entry in entries:
        buffers += entry_log_format.record_buffers(seed, offset, entry)
        places += ROW.pack(ledger_id, entry_id, location + offset, len(entry))
        offset += len(entry) + entry_log_format.RECORD_OVERHEAD_BYTES
    return buffers, bytes(places)


def log_entries(seed: int, start: int, data: bytes, ledger_id: int, places: list[Place]) -> list[bytes]:
    """The entries at these places of one entry log, whose bytes from this offset on are given, up to the first that is
    not what was written there.
    """
    entries = []
    for place in places:
        begin = place.offset - start
        end = begin + place.entry_bytes + entry_log_format.RECORD_OVERHEAD_BYTES
        entry = entry_log_format.decode_record(seed, place.offset, data[begin:end]) if begin >= 0 else None
        if entry is None or len(entry) < 16 or entry_log_format.ids_of(entry) != (ledger_id, place.entry_id):
            break
        entries.append(entry)
    return entries


PLAIN: Final = (journal_records, log_records, log_entries)

if (_twins := compiled.load()) is not None:
    journal_records = _twins.journal_records
    log_records = _twins.log_records
    log_entries = _twins.log_entries
