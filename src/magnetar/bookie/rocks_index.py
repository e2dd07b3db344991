# SPDX-License-Identifier: Apache-2.0
"""A LedgerIndex in RocksDB: what production runs on.

Owns one database and the layout of its keys. RocksDB blocks, so every call goes to the threads that are passed in.
Changes are in RocksDB's log at once and durable after `sync`. RocksDB checks its own blocks: what it cannot read is
Damaged, and the index is rebuilt from the entry logs.
Carries.
"""

from collections.abc import Mapping, Sequence
from itertools import chain, islice, starmap
from struct import Struct
from typing import Any, Final

from rocksdict import BlockBasedOptions, Cache, DBCompressionType, Options, Rdict, ReadOptions, WriteBatch

from magnetar.bookie.entry_log_format import RECORD_OVERHEAD_BYTES
from magnetar.bookie.ledger_index import ROW, ROW_KEY_BYTES, LedgerIndex, Move, Place, Span
from magnetar.bookie.turns import Turns
from magnetar.config.bookie import BookieSettings
from magnetar.errors import Damaged
from magnetar.runtime.blocking_calls import BlockingCalls

_PLACE: Final = b"e"
_LEDGER: Final = b"l"
_NOTE: Final = b"n"
_IDS: Final = Struct(">qq")
_ID: Final = Struct(">q")
# A row as its key and its value.
_ROW_PARTS: Final = Struct(f"{ROW_KEY_BYTES}s{ROW.size - ROW_KEY_BYTES}s")
_VALUE: Final = Struct(">QI")
# Of a place's key and value, one after the other: the entry's id and what a Place says of it.
_PLACE_ROW: Final = Struct(">9xqQI")
_ENTRY_ID_MAX: Final = 2**63 - 1
# RocksDB's binding keeps the interpreter to itself while it writes: everything else stands still for one batch.
_ROWS_PER_BATCH: Final = 256
# A thread that looks for places has the interpreter meanwhile: so many at once cost a fiftieth of a millisecond.
_ROWS_PER_LOOK: Final = 64
# One is written out while another fills; who finds all of them full waits, and everything else with him.
_WRITE_BUFFERS: Final = 3


class RocksLedgerIndex(LedgerIndex):
    def __init__(self, path: str, calls: BlockingCalls, settings: BookieSettings) -> None:
        self._path = path
        self._calls = calls
        self._write_buffer_bytes = settings.index_write_buffer_bytes
        self._cache_bytes = settings.index_cache_bytes
        # Changes come one after another, so that a move's check and its write are one step; reads need no turn.
        self._turns = Turns()
        self._database: Any = None

    @classmethod
    async def open(cls, path: str, calls: BlockingCalls, settings: BookieSettings | None = None) -> "RocksLedgerIndex":
        """The database in a directory of the real file system; Damaged when RocksDB cannot open it."""
        index = cls(path, calls, settings or BookieSettings())
        await index._run(index._open)
        return index

    async def put_places(self, rows: bytes) -> None:
        await self._change(self._put_places, rows)

    async def move_places(self, moves: Sequence[Move]) -> int:
        moved: int = await self._change(self._move_places, moves)
        return moved

    async def places(self, ledger_id: int, first_entry_id: int, count_max: int) -> list[Place]:
        found: list[Place] = await self._run(self._places, ledger_id, first_entry_id, count_max)
        return found

    async def locations(self, entries: Sequence[tuple[int, int]]) -> list[int | None]:
        found: list[int | None] = await self._run(self._locations, entries)
        return found

    async def span(self, ledger_id: int, entry_id: int, count_max: int, bytes_max: int) -> Span | None:
        found: Span | None = await self._run(self._span, ledger_id, entry_id, count_max, bytes_max)
        return found

    async def last_entry_id(self, ledger_id: int) -> int | None:
        found: int | None = await self._run(self._last_entry_id, ledger_id)
        return found

    async def ledgers(self, ledger_ids: Sequence[int]) -> dict[int, bytes]:
        found: dict[int, bytes] = await self._run(self._ledgers, ledger_ids)
        return found

    async def put_ledgers(self, states: Mapping[int, bytes]) -> None:
        if states:
            await self._change(self._put_ledgers, states)

    async def ledger_ids(self) -> list[int]:
        ids: list[int] = await self._run(self._ledger_ids)
        return ids

    async def delete_ledger(self, ledger_id: int, *, keeping: bytes | None = None) -> None:
        await self._change(self._delete_ledger, ledger_id, keeping)

    async def note(self, name: str) -> bytes | None:
        value: bytes | None = await self._run(self._read, _NOTE + name.encode())
        return value

    async def put_note(self, name: str, value: bytes) -> None:
        await self._change(self._write, _NOTE + name.encode(), value)

    async def sync(self) -> None:
        await self._change(self._sync)

    async def clear(self) -> None:
        await self._change(self._clear)

    async def close(self) -> None:
        await self._change(self._close)

    # --- on a thread ------------------------------------------------------------------------

    def _open(self) -> None:
        blocks = BlockBasedOptions()
        blocks.set_block_cache(Cache(self._cache_bytes))
        blocks.set_bloom_filter(10, False)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_block_based_table_factory(blocks)
        options.set_write_buffer_size(self._write_buffer_bytes)
        options.set_max_write_buffer_number(_WRITE_BUFFERS)
        options.set_compression_type(DBCompressionType.lz4())
        options.set_max_background_jobs(2)
        options.set_keep_log_file_num(2)
        options.set_max_log_file_size(1024 * 1024)
        self._database = Rdict(self._path, options)

    def _put_places(self, rows: bytes) -> None:
        step = ROW.size * _ROWS_PER_BATCH
        for start in range(0, len(rows), step):
            batch = WriteBatch(raw_mode=True)
            put = batch.put
            for key, place in _ROW_PARTS.iter_unpack(rows[start : start + step]):
                put(_PLACE + key, place)
            self._database.write(batch)

    def _move_places(self, moves: Sequence[Move]) -> int:
        moved = 0
        for start in range(0, len(moves), _ROWS_PER_BATCH):
            batch = WriteBatch(raw_mode=True)
            for move in moves[start : start + _ROWS_PER_BATCH]:
                key = _PLACE + _IDS.pack(move.ledger_id, move.entry_id)
                value = self._database.get(key)
                if value is not None and _VALUE.unpack(value)[0] == move.source:
                    batch.put(key, _VALUE.pack(move.target, _VALUE.unpack(value)[1]))
                    moved += 1
            self._database.write(batch)
        return moved

    def _bounds(self, ledger_id: int) -> ReadOptions:
        bounds = ReadOptions()
        bounds.set_iterate_upper_bound(_PLACE + _ID.pack(ledger_id) + b"\xff" * 9)
        return bounds

    def _rows_from(self, ledger_id: int, entry_id: int) -> tuple[Any, ReadOptions]:
        """An iterator over a ledger's places, and its bounds, which must live as long: it only points to them."""
        bounds = self._bounds(ledger_id)
        rows = self._database.iter(bounds)
        rows.seek(_PLACE + _IDS.pack(ledger_id, entry_id))
        return rows, bounds

    def _span(self, ledger_id: int, entry_id: int, count_max: int, bytes_max: int) -> Span | None:
        # By itself: rows that come in a row end the same way when there are no more and when one cannot be read. What
        # is behind this one is a favour to later reads, and only that.
        first = self._place(ledger_id, entry_id)
        if first is None:
            return None
        span = Span(first, bytes_max)
        # If what follows is alike, and lies in a row, then its last place says so of all.
        behind = min(count_max, bytes_max // (first.entry_bytes + RECORD_OVERHEAD_BYTES)) - 1
        while behind > _ROWS_PER_LOOK:
            last = self._place(ledger_id, entry_id + behind)
            if last is not None and span.take(last):
                break
            behind //= 2
        if span.last is first:
            self._stretch(span, ledger_id, min(count_max - 1, _ROWS_PER_LOOK))
        return span

    def _stretch(self, span: Span, ledger_id: int, count_max: int) -> None:
        bounds = self._bounds(ledger_id)
        rows = self._database.items(from_key=_PLACE + _IDS.pack(ledger_id, span.first.entry_id + 1), read_opt=bounds)
        some = b"".join(chain.from_iterable(islice(rows, count_max)))
        for place in starmap(Place, _PLACE_ROW.iter_unpack(some)):
            if not span.take(place):
                break

    def _place(self, ledger_id: int, entry_id: int) -> Place | None:
        value = self._database.get(_PLACE + _IDS.pack(ledger_id, entry_id))
        return None if value is None else Place(entry_id, *_VALUE.unpack(value))

    def _places(self, ledger_id: int, first_entry_id: int, count_max: int) -> list[Place]:
        found: list[Place] = []
        rows, _bounds = self._rows_from(ledger_id, first_entry_id)
        while len(found) < count_max and rows.valid():
            _, entry_id = _IDS.unpack_from(rows.key(), len(_PLACE))
            found.append(Place(entry_id, *_VALUE.unpack(rows.value())))
            rows.next()
        rows.status()
        return found

    def _locations(self, entries: Sequence[tuple[int, int]]) -> list[int | None]:
        # By their keys: an iterator that seeks among a deleted ledger's rows passes over all that are left of it.
        found: list[int | None] = []
        for start in range(0, len(entries), _ROWS_PER_LOOK):
            keys = [_PLACE + _IDS.pack(*ids) for ids in entries[start : start + _ROWS_PER_LOOK]]
            found += [None if value is None else _VALUE.unpack(value)[0] for value in self._database[keys]]
        return found

    def _last_entry_id(self, ledger_id: int) -> int | None:
        rows = self._database.iter()
        rows.seek_for_prev(_PLACE + _IDS.pack(ledger_id, _ENTRY_ID_MAX))
        rows.status()
        if not rows.valid() or not rows.key().startswith(_PLACE + _ID.pack(ledger_id)):
            return None
        entry_id: int = _IDS.unpack_from(rows.key(), len(_PLACE))[1]
        return entry_id

    def _ledgers(self, ledger_ids: Sequence[int]) -> dict[int, bytes]:
        found = {}
        for ledger_id in ledger_ids:
            state = self._database.get(_LEDGER + _ID.pack(ledger_id))
            if state is not None:
                found[ledger_id] = state
        return found

    def _put_ledgers(self, states: Mapping[int, bytes]) -> None:
        rows = iter(states.items())
        while some := tuple(islice(rows, _ROWS_PER_BATCH)):
            batch = WriteBatch(raw_mode=True)
            for ledger_id, state in some:
                batch.put(_LEDGER + _ID.pack(ledger_id), state)
            self._database.write(batch)

    def _ledger_ids(self) -> list[int]:
        bounds = ReadOptions()
        bounds.set_iterate_upper_bound(bytes((_LEDGER[0] + 1,)))
        rows = self._database.iter(bounds)
        rows.seek(_LEDGER)
        ids: list[int] = []
        while rows.valid():
            ids.append(_ID.unpack_from(rows.key(), len(_LEDGER))[0])
            rows.next()
        rows.status()
        return ids

    def _delete_ledger(self, ledger_id: int, keeping: bytes | None) -> None:
        prefix = _PLACE + _ID.pack(ledger_id)
        batch = WriteBatch(raw_mode=True)
        batch.delete_range(prefix, prefix + b"\xff" * 9)
        if keeping is None:
            batch.delete(_LEDGER + _ID.pack(ledger_id))
        else:
            batch.put(_LEDGER + _ID.pack(ledger_id), keeping)
        self._database.write(batch)

    def _read(self, key: bytes) -> bytes | None:
        value: bytes | None = self._database.get(key)
        return value

    def _write(self, key: bytes, value: bytes) -> None:
        self._database.put(key, value)

    def _sync(self) -> None:
        self._database.flush_wal(True)

    def _clear(self) -> None:
        self._database.close()
        Rdict.destroy(self._path)
        self._open()
        self._sync()

    def _close(self) -> None:
        self._database.close()

    # --- leaves -----------------------------------------------------------------------------

    async def _change(self, call: Any, *args: Any) -> Any:
        return await self._turns.take(lambda: self._run(call, *args))

    async def _run(self, call: Any, *args: Any) -> Any:
        try:
            return await self._calls.run(call, *args)
        except Exception as error:
            # rocksdict raises plain Exception, whatever went wrong.
            if isinstance(error, OSError):
                raise
            if type(error) is Exception:
                raise Damaged(f"the index in {self._path} cannot be used: {error}") from error
            raise
