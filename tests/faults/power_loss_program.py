# SPDX-License-Identifier: Apache-2.0
"""A short life to be recorded, and the look at what a power loss left of it.

    python -m tests.faults.power_loss_program bookie|metadata DIRECTORY

A bookie's storage with RocksDB, or an embedded metadata store, on the real disk, with every limit small. Each line that
is printed is a promise: `acked LEDGER ENTRY`, `fenced LEDGER`, `put KEY NUMBER`.
"""

import asyncio
import re
import sys
from dataclasses import dataclass, field
from struct import Struct

from magnetar.bookie.rocks_index import RocksLedgerIndex
from magnetar.bookie.storage import BookieStorage
from magnetar.config.bookie import BookieSettings
from magnetar.config.metadata import MetadataSettings
from magnetar.errors import NoSuchEntry
from magnetar.metadata.embedded import EmbeddedStore
from magnetar.runtime.blocking_calls import BlockingCalls
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.real_disk import RealDisk
from magnetar.wire.bookkeeper.codes import ReturnCode

_KEY = b"key"
_ROUNDS = 12
_BATCH = 6
_SMALL = BookieSettings(
    journal_file_bytes_max=8192,
    journal_preallocate_bytes=4096,
    journal_backups_max=0,
    write_cache_bytes_max=8192,
    entry_log_bytes_max=8192,
    entry_log_write_bytes=1024,
    flush_interval_ms=60_000,
)
_SMALL_METADATA = MetadataSettings(log_bytes_max=4_000, mark_delay_ms=1)
_COUNTERS = 4
_INDEX_LOST = re.compile(r"ledgers/current/index cannot be used|the index in ledgers/current was lost")
_METADATA = Struct(">qqqq")


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def entry_of(ledger_id: int, entry_id: int) -> bytes:
    return _METADATA.pack(ledger_id, entry_id, entry_id - 1, 0) + bytes([entry_id % 251]) * (97 * entry_id % 700)


class _Answers:
    def __init__(self, ledger_id: int, *, is_spoken: bool = True) -> None:
        self._ledger_id = ledger_id
        self._is_spoken = is_spoken
        self.codes: list[int] = []
        self.told = asyncio.Event()

    def on_added(self, bookie: str, first: int, last: int, code: int) -> None:
        for entry_id in range(first, last + 1):
            self.codes.append(code)
            if code == 0 and self._is_spoken:
                say(f"acked {self._ledger_id} {entry_id}")
        self.told.set()

    async def until(self, count: int) -> None:
        while len(self.codes) < count:
            self.told.clear()
            await self.told.wait()


async def open_bookie(root: str, calls: BlockingCalls) -> BookieStorage:
    return await BookieStorage.open(
        RealDisk(root),
        _SMALL,
        bookie="b1",
        clock=SystemClock(),
        index_factory=lambda directory: RocksLedgerIndex.open(f"{root}/{directory}", calls),
        on_failed=lambda error: sys.exit(str(error)),
    )


async def live_as_bookie(root: str) -> None:
    calls = BlockingCalls(2, name="index")
    storage = await open_bookie(root, calls)
    answers = {ledger_id: _Answers(ledger_id) for ledger_id in (1, 2)}
    for number in range(_ROUNDS):
        for ledger_id, listener in answers.items():
            for entry_id in range(number * _BATCH, (number + 1) * _BATCH):
                storage.add(ledger_id, entry_id, entry_of(ledger_id, entry_id), _KEY, listener)
        for listener in answers.values():
            await listener.until((number + 1) * _BATCH)
        if number % 4 == 3:
            await storage.checkpoint()
        if number == _ROUNDS // 2:
            await storage.fence(3, _KEY)
            say("fenced 3")
    await storage.close()
    await calls.close()


async def live_as_metadata(root: str) -> None:
    store = await EmbeddedStore.open(RealDisk(root), "metadata", clock=SystemClock(), settings=_SMALL_METADATA)

    async def count(counter: int) -> None:
        for number in range(1, 25):
            await store.put(f"/counter-{counter}", b"%d" % number + b" " * 50)
            say(f"put /counter-{counter} {number}")

    await asyncio.gather(*(count(counter) for counter in range(_COUNTERS)))
    await store.close()


@dataclass(slots=True)
class Promises:
    acked: list[tuple[int, int]] = field(default_factory=list)
    fenced: list[int] = field(default_factory=list)
    puts: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, said: list[bytes]) -> "Promises":
        promises = cls()
        for line in said:
            match line.decode().split():
                case ["acked", ledger_id, entry_id]:
                    promises.acked.append((int(ledger_id), int(entry_id)))
                case ["fenced", ledger_id]:
                    promises.fenced.append(int(ledger_id))
                case ["put", key, number]:
                    promises.puts[key] = max(int(number), promises.puts.get(key, 0))
                case other:
                    raise AssertionError(other)
        return promises


async def check_bookie(root: str, promises: Promises) -> bool:
    """It starts, misses nothing that it promised, gives nothing else, and goes on; returns whether without doubts.

    RocksDB names its new manifest before the name of that file is synced, and does not read one whose last record is
    torn. Where names of one directory may be lost out of order, or a few bytes in part, that costs an index: it is
    rebuilt from the entry logs, and the bookie doubts, but denies nothing.
    """
    calls = BlockingCalls(2, name="index")
    storage = await open_bookie(root, calls)
    try:
        assert all(_INDEX_LOST.search(sentence) for sentence in storage.damage), storage.damage
        for ledger_id, entry_id in promises.acked:
            assert await storage.read(ledger_id, entry_id) == entry_of(ledger_id, entry_id), (ledger_id, entry_id)
        for ledger_id in promises.fenced:
            refused = _Answers(ledger_id, is_spoken=False)
            storage.add(ledger_id, 0, entry_of(ledger_id, 0), _KEY, refused)
            await refused.until(1)
            assert refused.codes == [ReturnCode.FENCED]
        if storage.damage:
            return False
        for ledger_id in sorted({ledger_id for ledger_id, _ in promises.acked}):
            for entry_id in await storage.entry_ids(ledger_id):
                assert await storage.read(ledger_id, entry_id) == entry_of(ledger_id, entry_id)
            try:
                await storage.read(ledger_id, _ROUNDS * _BATCH)
            except NoSuchEntry:
                pass
            else:
                raise AssertionError("an entry that nobody wrote")
        assert await storage.housekeeping.check_consistency() == []
        return True
    finally:
        await storage.close()
        await calls.close()


async def check_metadata(root: str, promises: Promises) -> bool:
    store = await EmbeddedStore.open(RealDisk(root), "metadata", clock=SystemClock(), settings=_SMALL_METADATA)
    try:
        for key, number in promises.puts.items():
            record = await store.get(key)
            assert record is not None, key
            assert int(record.value) >= number, (key, number, record.value)
        await store.put("/again", b"1")
        return True
    finally:
        await store.close()


LIVES = {"bookie": live_as_bookie, "metadata": live_as_metadata}
CHECKS = {"bookie": check_bookie, "metadata": check_metadata}

if __name__ == "__main__":
    asyncio.run(LIVES[sys.argv[1]](sys.argv[2]))
