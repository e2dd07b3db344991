# SPDX-License-Identifier: Apache-2.0
"""Reading a journal back at start: every record that may be nowhere else, in order, and whether one is missing.

It begins at the last mark, or with the first file of the newest session if that is later or the mark is unreadable: a
session begins only when all that came before it is safe elsewhere.

Owns the difference between a torn tail and rot. At the first broken place it looks on: when no whole record behind it
says that a sync had reached beyond, nothing there was ever acknowledged, and reading ends. Otherwise acknowledged
records are damaged, which is told in `damage`, and what is whole behind them is still given. Never writes.
Carries.
"""

from collections.abc import AsyncIterator
from typing import Final

from magnetar.bookie.journal_format import (
    FILE_HEADER_BYTES,
    Break,
    FileHeader,
    JournalRecord,
    JournalScan,
    decode_file_header,
    file_id_of,
    file_name,
)
from magnetar.bookie.last_mark import LastMark
from magnetar.runtime.disk import Disk, File

_READ_BYTES: Final = 1024 * 1024


class JournalReplay:
    """Use once: iterate `records()` to its end, then ask."""

    def __init__(self, disk: Disk, directory: str, mark: LastMark | None, *, payload_bytes_max: int) -> None:
        self._disk = disk
        self._directory = directory
        self._mark = mark
        self._payload_bytes_max = payload_bytes_max
        self._end_position = mark.position if mark is not None else 0
        self._last_file_id = mark.file_id if mark is not None else 0
        self.found_files = False
        # One sentence for each loss of what may have been acknowledged.
        self.damage: list[str] = []

    def next_file(self) -> FileHeader:
        """The header for the file that continues this journal: its id and position are past all that was seen."""
        return FileHeader(self._last_file_id + 1, self._end_position, session_start=True)

    async def records(self) -> AsyncIterator[JournalRecord]:
        files = await self._files()
        if not files:
            return
        start = self._mark.offset if self._mark is not None and files[0] == self._mark.file_id else FILE_HEADER_BYTES
        walk = self._walk(files, start)
        broken_at: int | None = None
        async for found in walk:
            if isinstance(found, JournalRecord):
                yield found
            else:
                broken_at = found.offset
                break
        if broken_at is None:
            return
        synced = 0
        async for found in walk:
            if isinstance(found, JournalRecord):
                synced = max(synced, found.synced)
        if synced <= broken_at:
            return
        self.damage.append(
            f"the journal in {self._directory} is damaged at position {broken_at}, and was synced up to {synced}"
        )
        async for found in self._walk(files, start):
            if isinstance(found, JournalRecord) and found.position >= broken_at:
                yield found

    async def _files(self) -> list[int]:
        ids = sorted(
            found for name in await self._disk.list(self._directory) if (found := file_id_of(name)) is not None
        )
        if ids:
            self.found_files = True
            self._last_file_id = max(self._last_file_id, ids[-1])
        first = self._mark.file_id if self._mark is not None else 0
        for file_id in reversed(ids):
            if file_id <= first:
                break
            header = await self._header(file_id)
            if header is not None and header.session_start:
                first = file_id
                break
        if self._mark is not None and first == self._mark.file_id and first not in ids:
            self.damage.append(f"journal {file_name(first)} is missing in {self._directory}")
        return [found for found in ids if found >= first]

    async def _header(self, file_id: int) -> FileHeader | None:
        path = f"{self._directory}/{file_name(file_id)}"
        file = await self._disk.open(path)
        try:
            header = decode_file_header(await file.read(0, FILE_HEADER_BYTES), path)
        finally:
            await file.close()
        return header if header is not None and header.file_id == file_id else None

    async def _walk(self, files: list[int], start: int) -> AsyncIterator[JournalRecord | Break]:
        """Records of all the files. A Break's offset is a position here, and files that do not meet are one.

        A file may end in space that was allocated and never written: where the next file begins at that very place,
        nothing is broken.
        """
        expected: int | None = None
        for file_id in files:
            file = await self._disk.open(f"{self._directory}/{file_name(file_id)}")
            try:
                header = decode_file_header(await file.read(0, FILE_HEADER_BYTES))
                if header is None or header.file_id != file_id:
                    position = expected if expected is not None else self._end_position
                    yield Break(position)
                    header = FileHeader(file_id, position, session_start=False)
                elif expected is not None and header.first_position != expected:
                    yield Break(min(expected, header.first_position))
                expected = header.first_position + start
                broken: Break | None = None
                async for found in self._walk_file(file, header, start):
                    if isinstance(found, Break):
                        broken = found
                        continue
                    if broken is not None:
                        yield broken
                        broken = None
                    yield found
                    expected = found.position + found.size
                self._end_position = max(self._end_position, header.first_position + file.size())
            finally:
                await file.close()
            start = FILE_HEADER_BYTES

    async def _walk_file(self, file: File, header: FileHeader, start: int) -> AsyncIterator[JournalRecord | Break]:
        scan = JournalScan(header, offset=start, payload_bytes_max=self._payload_bytes_max)
        offset = start
        while offset < file.size():
            data = await file.read(offset, _READ_BYTES)
            if not data:
                break
            offset += len(data)
            for found in scan.feed(data):
                yield found if isinstance(found, JournalRecord) else Break(header.first_position + found.offset)
        for found in scan.end():
            yield found if isinstance(found, JournalRecord) else Break(header.first_position + found.offset)
