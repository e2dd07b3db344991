# SPDX-License-Identifier: Apache-2.0
"""Many records of journal and entry log at once, as `journal_format` and `entry_log_format` write one.

The functions here are the plain ones; at the end the compiled twins take their names, where there are any.
Decides.
"""

from struct import Struct
from typing import Final

from magnetar.bookie import entry_log_format, journal_format
from magnetar.bookie.journal_format import RecordKind
from magnetar.bookie.ledger_index import ROW
from magnetar.wire import compiled

_IDS: Final = Struct(">qq")
_RECORD_BYTES_MIN: Final = entry_log_format.RECORD_OVERHEAD_BYTES + _IDS.size

LARGE_ENTRY_BYTES: Final = 16 * 1024
"""An entry of this size goes to disk as a buffer of its own: copying it into its record costs more than that."""


def journal_records(seed: int, offset: int, synced: int, entries: list[bytes]) -> bytes:
    """The records of these entries, from this offset of a journal file on."""
    records = []
    for entry in entries:
        records.append(journal_format.encode_record(seed, offset, synced, RecordKind.ENTRY, entry))
        offset += len(records[-1])
    return b"".join(records)


def entries_within(entries: list[bytes], start: int, bytes_max: int) -> tuple[int, int]:
    """Where the entries from start on have reached so many bytes as records of an entry log, and how many they have."""
    size = 0
    while start < len(entries) and size < bytes_max:
        size += len(entries[start]) + entry_log_format.RECORD_OVERHEAD_BYTES
        start += 1
    return start, size


def log_records(
    seed: int, offset: int, location: int, entries: list[bytes], sizes: dict[int, int]
) -> tuple[bytes, bytes]:
    """The records of these packed entries from this offset of an entry log on, and their index rows.

    Location is that of the log's first byte; the bytes of each ledger are added to its size.
    """
    records: list[bytes] = []
    rows = bytearray()
    for entry in entries:
        records += entry_log_format.encode_record(seed, offset, entry)
        offset += _note_record(offset, location, entry, rows, sizes)
    return b"".join(records), bytes(rows)


def log_buffers(
    seed: int, offset: int, location: int, entries: list[bytes], sizes: dict[int, int]
) -> tuple[list[bytes], bytes]:
    """As `log_records`, in one buffer or in several: large entries are not copied into theirs."""
    if len(entries[0]) < LARGE_ENTRY_BYTES:
        records, rows = log_records(seed, offset, location, entries, sizes)
        return [records], rows
    buffers: list[bytes] = []
    places = bytearray()
    for entry in entries:
        buffers += entry_log_format.record_buffers(seed, offset, entry)
        offset += _note_record(offset, location, entry, places, sizes)
    return buffers, bytes(places)


def _note_record(offset: int, location: int, entry: bytes, rows: bytearray, sizes: dict[int, int]) -> int:
    """Add an entry's index row and its record's bytes, which are returned."""
    ledger_id, entry_id = entry_log_format.ids_of(entry)
    rows += ROW.pack(ledger_id, entry_id, location + offset, len(entry))
    length = len(entry) + entry_log_format.RECORD_OVERHEAD_BYTES
    sizes[ledger_id] = sizes.get(ledger_id, 0) + length
    return length


def log_run(
    seed: int, start: int, data: bytes, ledger_id: int, first: int, count_max: int
) -> tuple[list[int], list[int]]:
    """Where a ledger's entries begin and end in these bytes of an entry log, which have this offset in it: the first,
    and those that follow it without a gap, so many in all, up to a record that is not what was written there.

    Records of others, and older copies, are passed over by their length, unchecked: a wrong one leads to where no
    record begins.
    """
    begins: list[int] = []
    ends: list[int] = []
    at, size, wanted = 0, len(data), (ledger_id, first)
    while at + _RECORD_BYTES_MIN <= size:
        magic, own_offset, length = entry_log_format.RECORD_HEADER.unpack_from(data, at)
        end = at + length + entry_log_format.RECORD_OVERHEAD_BYTES
        if magic != entry_log_format.ENTRY_MAGIC or own_offset != start + at or length < _IDS.size or end > size:
            break
        if _IDS.unpack_from(data, at + entry_log_format.RECORD_HEADER_BYTES) == wanted:
            if entry_log_format.decode_record(seed, own_offset, data[at:end]) is None:
                break
            begins.append(at + entry_log_format.RECORD_HEADER_BYTES)
            ends.append(begins[-1] + length)
            if len(begins) >= count_max:
                break
            wanted = (ledger_id, wanted[1] + 1)
        elif not begins:
            break
        at = end
    return begins, ends


PLAIN: Final = (journal_records, log_records, log_run, entries_within)

if (_twins := compiled.load()) is not None:
    journal_records = _twins.journal_records
    log_records = _twins.log_records
    log_run = _twins.log_run
    entries_within = _twins.entries_within
