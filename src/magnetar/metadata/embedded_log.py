# SPDX-License-Identifier: Apache-2.0
"""The embedded store's log of transactions: numbered, checksummed, synced in groups.

Owns the file being written, the numbers of its records and the mark that an idle log gets. Says one number: the
sequence up to which everything is durable. Never reads, never decides what is written.
Carries.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable

from magnetar.metadata.embedded_format import (
    Closed,
    FileHeader,
    FileKind,
    Item,
    encode_header,
    encode_items,
    encode_record,
)
from magnetar.metadata.embedded_recovery import log_path
from magnetar.runtime.disk import Disk, SyncedLog


class EmbeddedLog:
    """Begin with `await start(...)`; `on_synced(sequence)` comes once per group, `on_failed(error)` at most once."""

    def __init__(
        self,
        directory: str,
        header: FileHeader,
        *,
        mark_delay_ms: int,
        on_synced: Callable[[int], None],
        on_failed: Callable[[OSError], None],
    ) -> None:
        self._directory = directory
        self._header = header
        self._mark_delay_ms = mark_delay_ms
        self._on_synced = on_synced
        self._on_failed = on_failed
        self._log: SyncedLog | None = None
        self._awaited: deque[tuple[int, int]] = deque()
        self._marked = True
        self._mark_timer: asyncio.TimerHandle | None = None
        self._failed = False
        self.file_bytes = 0
        self.sequence = header.sequence - 1
        self.synced_sequence = self.sequence

    @property
    def generation(self) -> int:
        """Number of the file that is being written."""
        return self._header.generation

    async def start(self, disk: Disk) -> None:
        """Make the first file; its beginning is on its way when this returns."""
        self._log = await disk.open_synced_log(
            log_path(self._directory, self.generation), on_synced=self._on_position, on_failed=self._on_error
        )
        self._begin_file()

    def queued_bytes(self) -> int:
        """Bytes on their way to the disk."""
        return self._log.queued_bytes() if self._log is not None else 0

    def append(self, items: Iterable[Item]) -> int:
        """Queue one transaction; returns its sequence. OSError when the log has failed."""
        self._marked = False
        return self._append(items)

    def roll(self) -> int:
        """Go on in the next file; returns the last sequence of the files before it."""
        assert self._log is not None, "the log was not started"
        before = self.sequence
        self._header = FileHeader(FileKind.LOG, self.generation + 1, self._header.store_id, before + 1)
        self._log.roll(log_path(self._directory, self.generation))
        self._begin_file()
        return before

    async def close(self) -> None:
        """Write and sync what is queued; an unfailed log ends with a record that says so."""
        assert self._log is not None, "the log was not started"
        if self._failed:
            await self.abandon()
            return
        self._cancel_mark()
        self._marked = True
        self._append((Closed(),))
        await self._log.close()

    async def abandon(self) -> None:
        """Let go of the file as it is: after a failure, nothing more can be promised about it."""
        self._failed = True
        self._cancel_mark()
        if self._log is not None:
            with contextlib.suppress(OSError):
                await self._log.close()

    # --- leaves -------------------------------------------------------------------------------

    def _begin_file(self) -> None:
        assert self._log is not None
        encoded = encode_header(self._header)
        self._log.append((encoded,), len(encoded))
        self.file_bytes = len(encoded)
        self._append(())

    def _append(self, items: Iterable[Item]) -> int:
        assert self._log is not None, "the log was not started"
        self.sequence += 1
        record = encode_record(self._header, self.file_bytes, self.sequence, self.synced_sequence, encode_items(items))
        position = self._log.append((record,), len(record))
        self.file_bytes += len(record)
        self._awaited.append((position, self.sequence))
        return self.sequence

    def _on_position(self, position: int) -> None:
        while self._awaited and self._awaited[0][0] <= position:
            self.synced_sequence = self._awaited.popleft()[1]
        self._on_synced(self.synced_sequence)
        if not self._awaited and not self._marked:
            self._schedule_mark()

    def _on_error(self, error: OSError) -> None:
        self._failed = True
        self._cancel_mark()
        self._on_failed(error)

    def _schedule_mark(self) -> None:
        self._cancel_mark()
        loop = asyncio.get_running_loop()
        self._mark_timer = loop.call_later(self._mark_delay_ms / 1000, self._mark)

    def _mark(self) -> None:
        """An empty record that says how far the log was synced before it."""
        self._mark_timer = None
        if not self._awaited and not self._failed:
            self._marked = True
            with contextlib.suppress(OSError):  # a log that has failed says so by itself
                self._append(())

    def _cancel_mark(self) -> None:
        if self._mark_timer is not None:
            self._mark_timer.cancel()
            self._mark_timer = None
