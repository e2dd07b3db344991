# SPDX-License-Identifier: Apache-2.0
"""A LedgerIndex on Disk alone: all rows in memory, changes appended to one file, the file rewritten when it has grown.

For simulation and fixtures, where RocksDB's own files and threads would hide faults; a bookie with many millions of
entries wants RocksDB. Never reads from disk after it is open.
Carries.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from struct import Struct
from typing import Final

from google_crc32c import value
from sortedcontainers import SortedDict

from magnetar.bookie.ledger_index import ROW, LedgerIndex, Move, Place, Span
from magnetar.bookie.turns import Turns
from magnetar.errors import Damaged
from magnetar.runtime.disk import Disk, File

_FILE_NAME: Final = "index.plain"
_HEADER: Final = b"MAGNETPI\x00\x01"
_BATCH: Final = Struct(">BII")
_LEDGER: Final = Struct(">qI")
_NOTE: Final = Struct(">HI")
_PLACES: Final = 1
_LEDGERS: Final = 2
_DELETED: Final = 3
_NOTES: Final = 4
_REWRITE_BYTES_MIN: Final = 4 * 1024 * 1024
_FILE_BYTES_MAX: Final = 4 * 1024 * 1024 * 1024


class PlainLedgerIndex(LedgerIndex):
    """Invariant: the file's whole batches, applied in order, give the rows as of the last sync or later."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._path = f"{directory}/{_FILE_NAME}"
        self._ledgers: dict[int, bytes] = {}
        # ledger -> entry -> (location, bytes)
        self._places: dict[int, SortedDict] = {}
        self._notes: dict[str, bytes] = {}
        self._unwritten: list[bytes] = []
        self._file: File | None = None
        self._file_bytes = 0
        self._rewritten_bytes = 0
        # The file changes in one step after another.
        self._turns = Turns()

    @classmethod
    async def open(cls, disk: Disk, directory: str) -> "PlainLedgerIndex":
        """Damaged when the file is not one of ours; a torn last batch was never synced and is dropped.

        The file is written anew: after a sync that failed in a former life, what is read may be remembered only, and no
        later sync of the same file would make it durable.
        """
        index = cls(disk, directory)
        await disk.make_directory(directory)
        if await disk.exists(index._path):
            index._load(await disk.read_file(index._path, bytes_max=_FILE_BYTES_MAX))
        await index._rewrite()
        return index

    async def put_places(self, rows: bytes) -> None:
        self._change(_PLACES, bytes(rows))

    async def move_places(self, moves: Sequence[Move]) -> int:
        rows = []
        for move in moves:
            place = self._places.get(move.ledger_id, {}).get(move.entry_id)
            if place is not None and place[0] == move.source:
                rows.append(ROW.pack(move.ledger_id, move.entry_id, move.target, place[1]))
        if rows:
            self._change(_PLACES, b"".join(rows))
        return len(rows)

    async def places(self, ledger_id: int, first_entry_id: int, count_max: int) -> list[Place]:
        rows = self._places.get(ledger_id)
        if rows is None:
            return []
        found: list[Place] = []
        for entry_id in rows.irange(first_entry_id):
            if len(found) >= count_max:
                break
            found.append(Place(entry_id, *rows[entry_id]))
        return found

    async def locations(self, entries: Sequence[tuple[int, int]]) -> list[int | None]:
        found = (self._places.get(ledger_id, {}).get(entry_id) for ledger_id, entry_id in entries)
        return [None if place is None else place[0] for place in found]

    async def span(self, ledger_id: int, entry_id: int, count_max: int, bytes_max: int) -> Span | None:
        rows = self._places.get(ledger_id)
        if rows is None or entry_id not in rows:
            return None
        span = Span(Place(entry_id, *rows[entry_id]), bytes_max)
        for next_id in islice(rows.irange(entry_id, inclusive=(False, True)), count_max - 1):
            if not span.take(Place(next_id, *rows[next_id])):
                break
        return span

    async def last_entry_id(self, ledger_id: int) -> int | None:
        rows = self._places.get(ledger_id)
        return rows.peekitem(-1)[0] if rows else None

    async def ledgers(self, ledger_ids: Sequence[int]) -> dict[int, bytes]:
        return {ledger_id: self._ledgers[ledger_id] for ledger_id in ledger_ids if ledger_id in self._ledgers}

    async def put_ledgers(self, states: Mapping[int, bytes]) -> None:
        if states:
            self._change(_LEDGERS, b"".join(_LEDGER.pack(key, len(state)) + state for key, state in states.items()))

    async def ledger_ids(self) -> list[int]:
        return sorted(self._ledgers)

    async def delete_ledger(self, ledger_id: int, *, keeping: bytes | None = None) -> None:
        if ledger_id in self._ledgers or ledger_id in self._places:
            self._change(_DELETED, _LEDGER.pack(ledger_id, len(keeping or b"")) + (keeping or b""))

    async def note(self, name: str) -> bytes | None:
        return self._notes.get(name)

    async def put_note(self, name: str, value: bytes) -> None:
        key = name.encode()
        self._change(_NOTES, _NOTE.pack(len(key), len(value)) + key + value)

    async def sync(self) -> None:
        await self._turns.take(self._append_unwritten)

    async def clear(self) -> None:
        self._ledgers.clear()
        self._places.clear()
        self._notes.clear()
        await self._turns.take(self._rewrite)

    async def close(self) -> None:
        await self._turns.take(self._close_file)

    async def _append_unwritten(self) -> None:
        if self._file_bytes > max(_REWRITE_BYTES_MIN, 4 * self._rewritten_bytes):
            await self._rewrite()
            return
        assert self._file is not None
        batches, self._unwritten = self._unwritten, []
        await self._file.write(self._file_bytes, batches)
        self._file_bytes += sum(map(len, batches))
        await self._file.sync()

    async def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            await file.close()

    def _change(self, kind: int, body: bytes) -> None:
        self._apply(kind, body)
        self._unwritten.append(_batch(kind, body))

    def _apply(self, kind: int, body: bytes) -> None:
        if kind == _PLACES:
            for ledger_id, entry_id, location, entry_bytes in ROW.iter_unpack(body):
                rows = self._places.get(ledger_id)
                if rows is None:
                    rows = self._places[ledger_id] = SortedDict()
                rows[entry_id] = (location, entry_bytes)
        elif kind == _LEDGERS:
            start = 0
            while start < len(body):
                ledger_id, length = _LEDGER.unpack_from(body, start)
                start += _LEDGER.size
                self._ledgers[ledger_id] = body[start : start + length]
                start += length
        elif kind == _DELETED:
            ledger_id, _ = _LEDGER.unpack_from(body)
            self._places.pop(ledger_id, None)
            if len(body) > _LEDGER.size:
                self._ledgers[ledger_id] = body[_LEDGER.size :]
            else:
                self._ledgers.pop(ledger_id, None)
        elif kind == _NOTES:
            key_bytes, length = _NOTE.unpack_from(body)
            start = _NOTE.size + key_bytes
            self._notes[body[_NOTE.size : start].decode()] = body[start : start + length]
        else:
            raise Damaged(f"{self._path} holds a change of kind {kind}, which this version does not know")

    def _load(self, data: bytes) -> None:
        if data[: len(_HEADER)] != _HEADER:
            raise Damaged(f"{self._path} is not an index of this version: rebuild it from the entry logs")
        start = len(_HEADER)
        while start + _BATCH.size <= len(data):
            kind, length, checksum = _BATCH.unpack_from(data, start)
            body = data[start + _BATCH.size : start + _BATCH.size + length]
            if not kind or len(body) != length or checksum != value(bytes((kind,)) + body):
                break
            self._apply(kind, body)
            start += _BATCH.size + length

    async def _rewrite(self) -> None:
        data = _HEADER + b"".join(self._snapshot())
        self._unwritten = []
        await self._close_file()
        await self._disk.replace_file(self._path, data)
        self._file = await self._disk.open(self._path)
        self._file_bytes = self._rewritten_bytes = len(data)

    def _snapshot(self) -> Iterator[bytes]:
        for ledger_id, state in self._ledgers.items():
            yield _batch(_LEDGERS, _LEDGER.pack(ledger_id, len(state)) + state)
        for ledger_id, rows in self._places.items():
            yield _batch(_PLACES, b"".join(ROW.pack(ledger_id, entry_id, *place) for entry_id, place in rows.items()))
        for name, note in self._notes.items():
            key = name.encode()
            yield _batch(_NOTES, _NOTE.pack(len(key), len(note)) + key + note)


def _batch(kind: int, body: bytes) -> bytes:
    return _BATCH.pack(kind, len(body), value(bytes((kind,)) + body)) + body
