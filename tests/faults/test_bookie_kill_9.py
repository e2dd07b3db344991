# SPDX-License-Identifier: Apache-2.0
"""A bookie's storage on the real disk with RocksDB, killed with signal 9 again and again under load."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from struct import Struct

import pytest

from magnetar.bookie.rocks_index import RocksLedgerIndex
from magnetar.bookie.storage import BookieStorage
from magnetar.config.bookie import BookieSettings
from magnetar.runtime.blocking_calls import BlockingCalls
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.real_disk import RealDisk

ROUNDS = 3
SETTINGS = BookieSettings(write_cache_bytes_max=256 * 1024, journal_file_bytes_max=512 * 1024, journal_backups_max=0)
_METADATA = Struct(">qqqq")


def entry_of(ledger_id: int, entry_id: int) -> bytes:
    return _METADATA.pack(ledger_id, entry_id, entry_id - 1, 0) + bytes([entry_id % 251]) * (entry_id % 900)


async def _opened(root: str, calls: BlockingCalls) -> BookieStorage:
    return await BookieStorage.open(
        RealDisk(root),
        SETTINGS,
        bookie="b1",
        clock=SystemClock(),
        index_factory=lambda directory: RocksLedgerIndex.open(f"{root}/{directory}", calls),
        on_failed=lambda error: sys.exit(str(error)),
    )


class _Printer:
    """Says what was acknowledged, on a line that is whole before the next add."""

    def __init__(self) -> None:
        self.acked = -1
        self.told = asyncio.Event()

    def on_added(self, bookie: str, first: int, last: int, code: int) -> None:
        assert code == 0
        self.acked = last
        self.told.set()
        sys.stdout.write(f"{last}\n")
        sys.stdout.flush()


async def _write_until_killed(root: str, ledger_id: int) -> None:
    storage = await _opened(root, BlockingCalls(2, name="index"))
    printer = _Printer()
    entry_id = 0
    while True:
        for _ in range(50):
            storage.add(ledger_id, entry_id, entry_of(ledger_id, entry_id), b"key", printer)
            entry_id += 1
        await asyncio.sleep(0)
        while printer.acked < entry_id - 200:
            printer.told.clear()
            await printer.told.wait()


async def _verify(root: str, acked: dict[int, int]) -> None:
    calls = BlockingCalls(2, name="index")
    storage = await _opened(root, calls)
    assert storage.damage == ()
    for ledger_id, last in acked.items():
        for entry_id in range(last + 1):
            assert await storage.read(ledger_id, entry_id) == entry_of(ledger_id, entry_id)
    assert await storage.housekeeping.check_consistency() == []
    await storage.close()
    await calls.close()


@pytest.mark.feature("F-BKS-03", "F-BKS-17")
def test_every_acknowledged_entry_is_there_after_kill_9(tmp_path: Path) -> None:
    acked: dict[int, int] = {}
    for ledger_id in range(ROUNDS):
        writer = subprocess.Popen(
            [sys.executable, __file__, str(tmp_path), str(ledger_id)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        for line in writer.stdout:
            acked[ledger_id] = int(line)
            if acked[ledger_id] > 1_000 + 700 * ledger_id:
                break
        writer.send_signal(signal.SIGKILL)
        lines = writer.stdout.read().splitlines()
        acked[ledger_id] = max([acked[ledger_id], *map(int, lines)])
        writer.stdout.close()
        writer.wait()
        asyncio.run(_verify(str(tmp_path), acked))
    assert len(acked) == ROUNDS


if __name__ == "__main__":
    asyncio.run(_write_until_killed(sys.argv[1], int(sys.argv[2])))
