# SPDX-License-Identifier: Apache-2.0
"""A bookie's storage on a bench: small settings, packed entries, a listener that remembers, one process each."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from struct import Struct
from typing import Any

from magnetar.bookie.ledger_index import LedgerIndex
from magnetar.bookie.plain_index import PlainLedgerIndex
from magnetar.bookie.storage import BookieStorage
from magnetar.config.bookie import BookieSettings
from magnetar.errors import StorageFailed
from magnetar.runtime.clock import WallClock
from magnetar.runtime.disk import Disk

BOOKIE = "bookie-1:3181"
KEY = b"k" * 20
OK = 0

_METADATA = Struct(">qqqq")

# Small enough that a few dozen entries meet every limit: both cache halves, rolled journals, rolled entry logs.
SMALL = BookieSettings(
    entry_bytes_max=64 * 1024,
    journal_file_bytes_max=4096,
    journal_preallocate_bytes=2048,
    journal_backups_max=1,
    write_cache_bytes_max=8192,
    held_adds_bytes_max=256 * 1024,
    entry_log_bytes_max=4096,
    entry_log_write_bytes=1024,
    read_cache_bytes_max=4096,
    read_ahead_entries_max=8,
)
ROOMY = replace(SMALL, write_cache_bytes_max=64 * 1024 * 1024, journal_file_bytes_max=1024 * 1024)


class FixedClock(WallClock):
    def now_ms(self) -> int:
        return 1_700_000_000_000


def packed(ledger_id: int, entry_id: int, body: bytes = b"body", *, lac: int | None = None) -> bytes:
    return _METADATA.pack(ledger_id, entry_id, entry_id - 1 if lac is None else lac, 0) + b"dgst" + body


class Answers:
    """A listener: every outcome by entry, and a way to wait for the n-th."""

    def __init__(self) -> None:
        self.codes: dict[int, int] = {}
        self.calls: list[tuple[int, int, int]] = []
        self.count = 0
        self._changed = asyncio.Event()

    def on_added(self, bookie: str, first: int, last: int, code: int) -> None:
        assert bookie == BOOKIE
        assert first <= last
        self.calls.append((first, last, code))
        for entry_id in range(first, last + 1):
            self.codes[entry_id] = code
        self.count += last - first + 1
        self._changed.set()

    async def until(self, count: int) -> None:
        while self.count < count:
            self._changed.clear()
            await self._changed.wait()


Failures = list[StorageFailed]


async def opened(
    disk: Disk, settings: BookieSettings = SMALL, *, failures: Failures | None = None, **kwargs: Any
) -> BookieStorage:
    async def index_in(directory: str) -> LedgerIndex:
        return await PlainLedgerIndex.open(disk, directory)

    return await BookieStorage.open(
        disk,
        settings,
        bookie=BOOKIE,
        clock=FixedClock(),
        index_factory=index_in,
        on_failed=(failures if failures is not None else []).append,
        **kwargs,
    )


@asynccontextmanager
async def bench(disk: Disk, settings: BookieSettings = SMALL, **kwargs: Any) -> AsyncIterator[BookieStorage]:
    storage = await opened(disk, settings, **kwargs)
    try:
        yield storage
    finally:
        await storage.close()


async def add_all(
    storage: BookieStorage, ledger_id: int, entry_ids: range, body: Callable[[int], bytes] = lambda entry_id: b"body"
) -> Answers:
    """Add entries at once and wait until each has its answer."""
    answers = Answers()
    for entry_id in entry_ids:
        storage.add(ledger_id, entry_id, packed(ledger_id, entry_id, body(entry_id)), KEY, answers)
    await answers.until(len(entry_ids))
    return answers


async def code_of_add(storage: BookieStorage, entry: bytes, *, key: bytes = KEY, recovery: bool = False) -> int:
    ledger_id, entry_id, _, _ = _METADATA.unpack_from(entry)
    answers = Answers()
    storage.add(ledger_id, entry_id, entry, key, answers, recovery)
    await answers.until(1)
    return answers.codes[entry_id]


async def turns_until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until it is so."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - what is counted is turns
            await asyncio.sleep(0)


async def turns(count: int) -> None:
    """Let the loop turn: whatever needs no more than that has happened."""
    for _ in range(count):
        await asyncio.sleep(0)


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """One process: a loop of its own that ends with it."""
    return asyncio.run(coroutine)
