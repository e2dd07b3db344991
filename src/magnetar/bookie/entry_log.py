# SPDX-License-Identifier: Apache-2.0
"""The entry logs of one ledger directory: big files, written from front to back, read at any place.

Owns the files, their ids and the few that are open. A log is begun by a writer, finished with the map of its ledgers,
and removed only on request. Every read is checked against the record's checksum, place, ledger and entry: bytes that do
not fit are damage, never an absence. Does not know what is still alive in a log.
Carries.
"""

import asyncio
import contextlib
import errno
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final

from magnetar.bookie.entry_log_format import (
    CHECKSUM,
    HEADER_BYTES,
    RECORD_HEADER_BYTES,
    RECORD_OVERHEAD_BYTES,
    BadRange,
    EntryLogScan,
    LoggedEntry,
    LogHeader,
    checksum_seed,
    decode_header,
    decode_map,
    decode_record,
    encode_header,
    encode_map,
    ids_of,
    log_id_of,
    log_name,
)
from magnetar.bookie.entry_steps import EntrySteps
from magnetar.bookie.kept_pages import KeptPages, Stretch
from magnetar.bookie.ledger_index import Place, location_of
from magnetar.bookie.records import log_buffers
from magnetar.config.bookie import BookieSettings
from magnetar.errors import EntryUnknown
from magnetar.runtime.disk import Disk, File

_SCAN_BYTES: Final = 1024 * 1024
# Cutting so much into entries of a kilobyte takes a twentieth of a millisecond of the loop.
_CUT_BYTES: Final = 16 * 1024
# A map is read whole: a million ledgers in one log is beyond what a log of 1 GiB is made for.
_MAP_BYTES_MAX: Final = 64 * 1024 * 1024
# How much larger the steps of a hurried flush are: adds that wait for room cost more than those behind a longer sync.
_HURRIED_STEPS: Final = 8
# And how many pieces it writes in one call: the way to a thread and back costs a busy loop more than a piece does.
_HURRIED_PIECES: Final = 8


class EntryLogWriter:
    """Appends to one log at a time and begins the next when it is full.

    After an OSError nothing appended since the last sync may be relied on: `abandon` leaves the log unfinished, and the
    next append begins another.
    """

    def __init__(self, logs: "EntryLogs", settings: BookieSettings) -> None:
        self._logs = logs
        # A log ends behind the entry that reaches its size, and a place has 32 bits for where an entry begins.
        assert settings.entry_log_bytes_max <= 2**31
        self._log_bytes_max = settings.entry_log_bytes_max
        self._write_bytes = settings.entry_log_write_bytes
        self._unsynced_bytes_max = settings.entry_log_unsynced_bytes_max
        self._unsynced_bytes = 0
        self._kept = KeptPages(settings.entry_log_kept_bytes_max)
        self._file: File | None = None
        self._log_id = 0
        self._seed = 0
        self._offset = 0
        self._bytes_by_ledger: dict[int, int] = {}

    @property
    def log_id(self) -> int | None:
        """The log being written to."""
        return self._log_id if self._file is not None else None

    @property
    def has_unsynced(self) -> bool:
        return self._unsynced_bytes > 0

    async def append(
        self,
        entries: Iterable[list[bytes]],
        rows: bytearray,
        is_hurried: Callable[[], bool] = lambda: False,
    ) -> None:
        """Write packed entries in the order given; their index rows are added to `rows`."""
        steps = EntrySteps(entries)
        while steps.has_more():
            if self._file is None or self._offset >= self._log_bytes_max:
                await self.finish()
                await self._begin()
            assert self._file is not None
            pieces, at_once = (_HURRIED_PIECES, _HURRIED_STEPS) if is_hurried() else (1, 1)
            written = await self._write_some(self._file, steps, rows, pieces)
            self._offset += written
            self._unsynced_bytes += written
            if self._unsynced_bytes >= at_once * self._unsynced_bytes_max:
                await self.sync()

    async def _write_some(self, file: File, steps: EntrySteps, rows: bytearray, pieces: int) -> int:
        """Write what is next, in one call; returns its bytes. Others have their turn while it is made ready."""
        buffers: list[bytes] = []
        end = self._offset
        for piece in range(pieces):
            if piece:
                if end >= self._log_bytes_max or not steps.has_more():
                    break
                await asyncio.sleep(0)
            taken = steps.take(min(self._write_bytes, self._log_bytes_max - end))
            location = location_of(self._log_id, 0)
            made, new_rows = log_buffers(self._seed, end, location, taken, self._bytes_by_ledger)
            rows += new_rows
            buffers += made
            end += sum(map(len, made))
        await file.write(self._offset, buffers, early=pieces > 1)
        return end - self._offset

    async def sync(self) -> None:
        log_id, end = self._log_id, self._offset
        begin, self._unsynced_bytes = end - self._unsynced_bytes, 0
        if self._file is not None:
            await self._file.sync()
            self._kept.note(log_id, begin, end)
            for stretch in self._kept.take_surplus():
                await self._logs.let_go(stretch)

    async def finish(self) -> None:
        """End the present log with its map, durably."""
        file = self._file
        if file is None:
            return
        data = encode_map(self._seed, self._offset, self._bytes_by_ledger)
        await file.write(self._offset, (data,))
        await self.sync()
        map_bytes = len(data) - RECORD_OVERHEAD_BYTES
        await file.write(0, (encode_header(LogHeader(self._log_id, self._offset, map_bytes)),))
        await file.sync()
        await self.abandon()

    async def abandon(self) -> None:
        """Leave the present log as it is, without a map."""
        file, self._file = self._file, None
        self._unsynced_bytes = 0
        if file is not None:
            await file.close()

    async def _begin(self) -> None:
        self._log_id, self._file = await self._logs.create()
        self._seed = checksum_seed(self._log_id)
        self._bytes_by_ledger = {}
        self._offset = HEADER_BYTES


class EntryLogs:
    def __init__(self, disk: Disk, directory: str, settings: BookieSettings, log_ids: list[int]) -> None:
        self._disk = disk
        self._directory = directory
        self._settings = settings
        self._log_ids = dict.fromkeys(log_ids)
        self._next_log_id = max(log_ids, default=-1) + 1
        self._open: OrderedDict[int, File] = OrderedDict()

    @classmethod
    async def open(cls, disk: Disk, directory: str, settings: BookieSettings) -> "EntryLogs":
        """NewerFormat when a later version wrote the newest log: then it may have written others too."""
        found = [log_id for name in await disk.list(directory) if (log_id := log_id_of(name)) is not None]
        if found:
            path = f"{directory}/{log_name(max(found))}"
            file = await disk.open(path)
            try:
                with contextlib.suppress(OSError):
                    decode_header(await file.read(0, HEADER_BYTES), path)
            finally:
                await file.close()
        return cls(disk, directory, settings, sorted(found))

    def writer(self) -> EntryLogWriter:
        return EntryLogWriter(self, self._settings)

    @property
    def next_log_id(self) -> int:
        return self._next_log_id

    def log_ids(self) -> list[int]:
        return sorted(self._log_ids)

    async def create(self) -> tuple[int, File]:
        """A new log with its header; its name is durable."""
        log_id = self._next_log_id
        self._next_log_id += 1
        file = await self._disk.open(self._path(log_id), create=True, truncate=True)
        self._log_ids[log_id] = None
        try:
            await file.write(0, (encode_header(LogHeader(log_id, 0, 0)),))
            await self._disk.sync_directory(self._directory)
        except OSError:
            await file.close()
            raise
        return log_id, file

    async def read(self, ledger_id: int, place: Place) -> bytes:
        """The entry at a place. FileNotFoundError when its log is gone, EntryUnknown when the bytes are not it."""
        record = await self.read_range(place.log_id, place.offset, RECORD_OVERHEAD_BYTES + place.entry_bytes)
        return self.checked(ledger_id, place, record)

    async def read_range(self, log_id: int, offset: int, length: int) -> bytes:
        try:
            file = await self._opened(log_id)
            return await file.read(offset, length)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise EntryUnknown(f"entry log {self._path(log_id)} cannot be read at {offset}: {error}") from error
        finally:
            await self._close_surplus()

    def range_at_hand(self, log_id: int, offset: int, length: int) -> bytes:
        """Those bytes that can be had without waiting; none of a log that is not open or cannot be read."""
        file = self._open.get(log_id)
        if file is None:
            return b""
        self._open.move_to_end(log_id)
        try:
            return file.at_hand(offset, length)
        except OSError:
            return b""

    async def let_go(self, stretch: Stretch) -> None:
        """The kernel need not keep this in memory; a log that is gone has nothing there."""
        with contextlib.suppress(OSError):
            file = await self._opened(stretch.log_id)
            await file.let_go(stretch.begin, stretch.end - stretch.begin)
        await self._close_surplus()

    def checked(self, ledger_id: int, place: Place, record: bytes) -> bytes:
        """The entry in a record's bytes, or EntryUnknown."""
        entry = decode_record(checksum_seed(place.log_id), place.offset, record)
        if entry is None or len(entry) < 16 or ids_of(entry) != (ledger_id, place.entry_id):
            raise EntryUnknown(
                f"entry {ledger_id}:{place.entry_id} is damaged in {self._path(place.log_id)} at {place.offset}"
            )
        return entry

    async def scan(self, log_id: int) -> AsyncIterator[LoggedEntry | BadRange]:
        """Every whole entry of a log, from front to back, and where it is broken."""
        file = await self._disk.open(self._path(log_id))
        try:
            header = decode_header(await file.read(0, HEADER_BYTES))
            size = file.size()
            end = header.map_offset if header is not None and HEADER_BYTES <= header.map_offset <= size else size
            scan = EntryLogScan(log_id, entry_bytes_max=self._settings.entry_bytes_max)
            offset = HEADER_BYTES
            while offset < end:
                data = await file.read(offset, min(_SCAN_BYTES, end - offset))
                if not data:
                    break
                offset += len(data)
                cut_from = scan.offset
                for found in scan.feed(data):
                    yield found
                    if scan.offset - cut_from >= _CUT_BYTES:
                        cut_from = scan.offset
                        await asyncio.sleep(0)
            for found in scan.end():
                yield found
        finally:
            await file.close()

    async def bytes_by_ledger(self, log_id: int) -> dict[int, int]:
        """How much each ledger has in a log: from its map, or by reading it all when there is none to be trusted."""
        found = await self._ledgers_map(log_id)
        if found is not None:
            return found
        counted: dict[int, int] = {}
        async for item in self.scan(log_id):
            if isinstance(item, LoggedEntry):
                counted[item.ledger_id] = counted.get(item.ledger_id, 0) + len(item.entry) + RECORD_OVERHEAD_BYTES
        return counted

    async def size(self, log_id: int) -> int:
        return await self._disk.file_size(self._path(log_id))

    async def remove(self, log_id: int) -> None:
        # First of all nobody opens it any more.
        self._log_ids.pop(log_id, None)
        file = self._open.pop(log_id, None)
        if file is not None:
            await file.close()
        await self._disk.remove(self._path(log_id))

    async def close(self) -> None:
        while self._open:
            _, file = self._open.popitem()
            await file.close()

    def _path(self, log_id: int) -> str:
        return f"{self._directory}/{log_name(log_id)}"

    async def _opened(self, log_id: int) -> File:
        """The file of a log. The caller reads at once: what is closed later waits for reads that have begun."""
        file = self._open.get(log_id)
        if file is not None:
            self._open.move_to_end(log_id)
            return file
        if log_id not in self._log_ids:
            raise FileNotFoundError(errno.ENOENT, "the entry log was removed", self._path(log_id))
        file = await self._disk.open(self._path(log_id))
        other = self._open.get(log_id)
        if other is None and log_id in self._log_ids:
            self._open[log_id] = file
            return file
        # Opened by another read, or removed, meanwhile.
        await file.close()
        return await self._opened(log_id)

    async def _close_surplus(self) -> None:
        while len(self._open) > self._settings.open_entry_logs_max:
            _, oldest = self._open.popitem(last=False)
            await oldest.close()

    async def _ledgers_map(self, log_id: int) -> dict[int, int] | None:
        file = await self._disk.open(self._path(log_id))
        try:
            header = decode_header(await file.read(0, HEADER_BYTES))
            if header is None or header.log_id != log_id or not header.map_offset or header.map_bytes > _MAP_BYTES_MAX:
                return None
            length = RECORD_HEADER_BYTES + header.map_bytes + CHECKSUM.size
            data = await file.read(header.map_offset, length)
        finally:
            await file.close()
        return decode_map(checksum_seed(log_id), header.map_offset, data)
