# SPDX-License-Identifier: Apache-2.0
"""`magnetar inspect journal|entrylog|index FILE`: what is in a file of a bookie, damage included. Reads only.

Assembles.
"""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

from magnetar.bookie.entry_log_format import (
    HEADER_BYTES,
    BadRange,
    EntryLogScan,
    LoggedEntry,
    decode_header,
    log_id_of,
)
from magnetar.bookie.journal_format import (
    FILE_HEADER_BYTES,
    Break,
    JournalRecord,
    JournalScan,
    RecordKind,
    decode_file_header,
)
from magnetar.bookie.ledger_state import decode_state
from magnetar.bookie.rocks_index import RocksLedgerIndex
from magnetar.config.bookie import BookieSettings
from magnetar.errors import Damaged
from magnetar.runtime.blocking_calls import BlockingCalls
from magnetar.runtime.disk import File
from magnetar.runtime.real_disk import RealDisk

# Every RocksDB database has it.
INDEX_FILE: Final = "CURRENT"

Say = Callable[[str], None]
_READ_BYTES: Final = 1024 * 1024
_PLACES: Final = 1_000
# A record holds an entry and a few bytes more.
_MARGIN_BYTES: Final = 64 * 1024


async def inspect_journal(path: str, say: Say) -> None:
    """Every record with its place, kind and ids, and every stretch that is none."""
    disk = RealDisk(str(Path(path).parent))
    try:
        file = await disk.open(Path(path).name)
        header = decode_file_header(await file.read(0, FILE_HEADER_BYTES))
        if header is None:
            raise Damaged(f"{path} does not begin as a journal does")
        say(f"journal {header.file_id}, first position {header.first_position}, new session: {header.session_start}")
        limit = BookieSettings().entry_bytes_max + _MARGIN_BYTES
        scan = JournalScan(header, offset=FILE_HEADER_BYTES, payload_bytes_max=limit)
        async for data in _pieces(file, FILE_HEADER_BYTES):
            for found in scan.feed(data):
                say(_record_line(found))
        for found in scan.end():
            say(_record_line(found))
    finally:
        await disk.close()


def _record_line(record: JournalRecord | Break) -> str:
    if isinstance(record, Break):
        return f"no record at byte {record.offset}: damaged, cut off, or never written; what is whole after it follows"
    payload = record.payload
    name = RecordKind(record.kind).name if record.kind in list(RecordKind) else f"kind {record.kind}"
    ledger_id, entry_id = (int.from_bytes(payload[at : at + 8], "big", signed=True) for at in (0, 8))
    if record.kind == RecordKind.ENTRY:
        return f"{record.position:>12}  {name:<14} ledger {ledger_id} entry {entry_id}, {len(payload)} bytes"
    about = f"ledger {ledger_id}" if len(payload) >= 8 else ""
    return f"{record.position:>12}  {name:<14} {about}"


async def inspect_entry_log(path: str, say: Say) -> None:
    """Every entry with its place, and every stretch that is none. A copy may have any name: the header knows."""
    disk = RealDisk(str(Path(path).parent))
    try:
        file = await disk.open(Path(path).name)
        header = decode_header(await file.read(0, HEADER_BYTES), path)
        log_id = header.log_id if header is not None else log_id_of(Path(path).name)
        if log_id is None:
            raise Damaged(f"{path} does not begin as an entry log does, and its name (NUMBER.log) does not say which")
        if header is None:
            say("no header: damaged, cut off, or never written")
        end = header.map_offset if header is not None and header.map_offset else None
        say(f"entry log {log_id}, {'not finished' if end is None else f'map at {end}'}")
        scan = EntryLogScan(log_id, entry_bytes_max=BookieSettings().entry_bytes_max)
        async for data in _pieces(file, HEADER_BYTES, end):
            for found in scan.feed(data):
                say(_entry_line(found))
        for found in scan.end():
            say(_entry_line(found))
    finally:
        await disk.close()


def _entry_line(found: LoggedEntry | BadRange) -> str:
    if isinstance(found, BadRange):
        return f"no entry at byte {found.start}: damaged, cut off, or never written; what is whole after it follows"
    return f"{found.offset:>12}  ledger {found.ledger_id} entry {found.entry_id}, {len(found.entry)} bytes"


async def inspect_index(path: str, say: Say) -> None:
    """Every ledger with its state, and where its entries lie. The bookie must not run: it holds the index."""
    disk = RealDisk(path)
    try:
        if not await disk.exists(INDEX_FILE):
            raise Damaged(f"{path} is no index: it has no file {INDEX_FILE}")
    finally:
        await disk.close()
    calls = BlockingCalls(1, name="index")
    try:
        index = await RocksLedgerIndex.open(path, calls)
        try:
            for ledger_id in await index.ledger_ids():
                data = await index.ledger(ledger_id)
                state = decode_state(ledger_id, data) if data is not None else None
                fenced = " fenced" if state is not None and state.fenced else ""
                limbo = " in limbo" if state is not None and state.limbo else ""
                say(f"ledger {ledger_id}{fenced}{limbo}")
                first = 0
                while places := await index.places(ledger_id, first, _PLACES):
                    for place in places:
                        say(f"    entry {place.entry_id} in log {place.log_id} at {place.offset}")
                    first = places[-1].entry_id + 1
        finally:
            await index.close()
    finally:
        await calls.close()


async def _pieces(file: File, start: int, end: int | None = None) -> AsyncIterator[bytes]:
    while end is None or start < end:
        data = await file.read(start, _READ_BYTES if end is None else min(_READ_BYTES, end - start))
        if not data:
            return
        start += len(data)
        yield data
