# SPDX-License-Identifier: Apache-2.0
"""A short life to be recorded, and the look at what a power loss left of it.

    python -m tests.faults.power_loss_program bookie|plain-bookie|metadata DIRECTORY [again]

A bookie's storage with RocksDB, the same with the plain index, or an embedded metadata store, on the real disk, with
every limit small. A bookie's life has ledgers that are deleted, entry logs that go with them, and others that are
compacted. Each line that is printed is a promise: `acked LEDGER ENTRY`, `fenced LEDGER`, `put KEY NUMBER`; `deleting
LEDGER` takes back what was promised of one, and `gone LEDGER` promises that it never comes back. With `again` it is
another start on what a life, or a power loss, has left, up to an orderly end.
"""

import asyncio
import re
import sys
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from functools import partial
from struct import Struct

from magnetar.bookie.ledger_index import LedgerIndex
from magnetar.bookie.ledger_questions import LedgerQuestions
from magnetar.bookie.plain_index import PlainLedgerIndex
from magnetar.bookie.rocks_index import RocksLedgerIndex
from magnetar.bookie.storage import BookieStorage
from magnetar.config.bookie import BookieSettings
from magnetar.config.metadata import MetadataSettings
from magnetar.errors import NoSuchEntry, NoSuchLedger
from magnetar.metadata.embedded import EmbeddedStore
from magnetar.runtime.blocking_calls import BlockingCalls
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.real_disk import RealDisk
from magnetar.wire.bookkeeper.codes import ReturnCode

_KEY = b"key"
_ROUNDS = 12
# Every fourth entry is of a ledger that is deleted in the middle of the life: most of it leaves logs for compaction.
_DELETED = (2, 4)
_FENCED = 3
# How much of a log may be alive for it to be compacted.
_COMPACTED_SHARE = 0.9
_BATCH = 6
_SMALL = BookieSettings(
    journal_file_bytes_max=8192,
    journal_preallocate_bytes=4096,
    journal_backups_max=0,
    write_cache_bytes_max=8192,
    entry_log_bytes_max=8192,
    entry_log_write_bytes=1024,
    flush_interval_ms=60_000,
    major_compaction_share=_COMPACTED_SHARE,
    compaction_bytes_per_second_max=1 << 40,
)
_SMALL_METADATA = MetadataSettings(log_bytes_max=4_000, mark_delay_ms=1)
_COUNTERS = 4
_INDEX_LOST = re.compile(
    r"ledgers/current/index cannot be used|ledgers/current/index/index\.plain |the index in ledgers/current was lost"
)
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


class _Existing:
    """Which ledgers the metadata knows of."""

    def __init__(self, gone: Iterable[int] = ()) -> None:
        self.gone = set(gone)

    def questions(self) -> LedgerQuestions:
        return LedgerQuestions(self._all, self._exists)

    async def _all(self) -> list[int]:
        return [ledger_id for ledger_id in range(10) if ledger_id not in self.gone]

    async def _exists(self, ledger_id: int) -> bool:
        return ledger_id not in self.gone


async def open_bookie(root: str, calls: BlockingCalls, existing: _Existing, *, is_plain: bool = False) -> BookieStorage:
    disk = RealDisk(root)

    async def index_in(directory: str) -> LedgerIndex:
        if is_plain:
            return await PlainLedgerIndex.open(disk, directory)
        return await RocksLedgerIndex.open(f"{root}/{directory}", calls)

    return await BookieStorage.open(
        disk,
        _SMALL,
        bookie="b1",
        clock=SystemClock(),
        index_factory=index_in,
        on_failed=lambda error: sys.exit(str(error)),
        questions=existing.questions(),
    )


async def live_as_bookie(root: str, *, is_plain: bool = False) -> None:
    calls, existing = BlockingCalls(2, name="index"), _Existing()
    storage = await open_bookie(root, calls, existing, is_plain=is_plain)
    for number in range(_ROUNDS):
        written = [1, 2, 4] if number < _ROUNDS // 2 else [1, 5]
        for ledger_id in written:
            listener = _Answers(ledger_id)
            for entry_id in range(number * _BATCH, (number + 1) * _BATCH):
                storage.add(ledger_id, entry_id, entry_of(ledger_id, entry_id), _KEY, listener)
            await listener.until(_BATCH)
        if number % 4 == 3:
            await storage.checkpoint()
        if number == _ROUNDS // 2:
            await storage.fence(_FENCED, _KEY)
            say(f"fenced {_FENCED}")
        if number == _ROUNDS * 2 // 3:
            await _delete(storage, existing)
    await storage.close()
    await calls.close()


async def _delete(storage: BookieStorage, existing: _Existing) -> None:
    """Two ledgers go, their logs with them, and what is left in others is copied to new ones."""
    for ledger_id in _DELETED:
        say(f"deleting {ledger_id}")
        existing.gone.add(ledger_id)
    await storage.checkpoint()
    await storage.housekeeping.collect(major=True)
    assert storage.housekeeping.ledgers_deleted == len(_DELETED)
    assert storage.housekeeping.bytes_compacted, "nothing was compacted"
    for ledger_id in _DELETED:
        say(f"gone {ledger_id}")


async def start_bookie_again(root: str, *, is_plain: bool = False) -> None:
    calls = BlockingCalls(2, name="index")
    storage = await open_bookie(root, calls, _Existing(), is_plain=is_plain)
    await storage.close()
    await calls.close()


async def start_metadata_again(root: str) -> None:
    store = await EmbeddedStore.open(RealDisk(root), "metadata", clock=SystemClock(), settings=_SMALL_METADATA)
    await store.close()


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
    deleting: list[int] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)

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
                case ["deleting", ledger_id]:
                    promises.deleting.append(int(ledger_id))
                case ["gone", ledger_id]:
                    promises.gone.append(int(ledger_id))
                case other:
                    raise AssertionError(other)
        promises.acked = [each for each in promises.acked if each[0] not in promises.deleting]
        return promises


async def check_bookie(root: str, promises: Promises, *, is_plain: bool = False) -> bool:
    """It starts, misses nothing that it promised, gives nothing else, and goes on; returns whether without doubts.

    RocksDB names its new manifest before the name of that file is synced, and does not read one whose last record is
    torn. Where names of one directory may be lost out of order, or a few bytes in part, that costs an index: it is
    rebuilt from the entry logs, and the bookie doubts, but denies nothing.
    """
    calls = BlockingCalls(2, name="index")
    storage = await open_bookie(root, calls, _Existing(promises.deleting), is_plain=is_plain)
    try:
        assert all(_INDEX_LOST.search(sentence) for sentence in storage.damage), storage.damage
        await _check_acked(storage, promises)
        for ledger_id in promises.fenced:
            refused = _Answers(ledger_id, is_spoken=False)
            storage.add(ledger_id, 0, entry_of(ledger_id, 0), _KEY, refused)
            await refused.until(1)
            assert refused.codes == [ReturnCode.FENCED]
        if storage.damage:
            return False
        for ledger_id in promises.gone:
            await _check_absent(storage, ledger_id, 0)
        for ledger_id in sorted({ledger_id for ledger_id, _ in promises.acked}):
            for entry_id in await storage.entry_ids(ledger_id):
                assert await storage.read(ledger_id, entry_id) == entry_of(ledger_id, entry_id)
            await _check_absent(storage, ledger_id, _ROUNDS * _BATCH)
        assert await storage.housekeeping.check_consistency() == []
        # What was under way when the power failed is begun again, and takes nothing along.
        await storage.housekeeping.collect(major=True)
        await _check_acked(storage, promises)
        return True
    finally:
        await storage.close()
        await calls.close()


async def _check_acked(storage: BookieStorage, promises: Promises) -> None:
    for ledger_id, entry_id in promises.acked:
        assert await storage.read(ledger_id, entry_id) == entry_of(ledger_id, entry_id), (ledger_id, entry_id)


async def _check_absent(storage: BookieStorage, ledger_id: int, entry_id: int) -> None:
    try:
        await storage.read(ledger_id, entry_id)
    except (NoSuchEntry, NoSuchLedger):
        return
    raise AssertionError(f"entry {entry_id} of ledger {ledger_id}, which nobody wrote or which was deleted")


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


Life = Callable[[str], Coroutine[None, None, None]]
Check = Callable[[str, Promises], Coroutine[None, None, bool]]

LIVES: dict[str, Life] = {
    "bookie": live_as_bookie,
    "plain-bookie": partial(live_as_bookie, is_plain=True),
    "metadata": live_as_metadata,
}
STARTS: dict[str, Life] = {
    "bookie": start_bookie_again,
    "plain-bookie": partial(start_bookie_again, is_plain=True),
    "metadata": start_metadata_again,
}
CHECKS: dict[str, Check] = {
    "bookie": check_bookie,
    "plain-bookie": partial(check_bookie, is_plain=True),
    "metadata": check_metadata,
}

if __name__ == "__main__":
    asyncio.run((STARTS if "again" in sys.argv[3:] else LIVES)[sys.argv[1]](sys.argv[2]))
