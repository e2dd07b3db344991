# SPDX-License-Identifier: Apache-2.0
"""What RocksDB is told beside the contract that every index keeps: how much it may hold in memory."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from magnetar.bookie.ledger_index import ROW, Place, location_of
from magnetar.bookie.rocks_index import RocksLedgerIndex
from magnetar.config.bookie import BookieSettings
from magnetar.runtime.blocking_calls import BlockingCalls

ENTRIES = 20_000


def sorted_files(directory: Path) -> int:
    return len(list(directory.glob("*.sst")))


@pytest.mark.feature("F-BKS-21")
def test_places_beyond_the_write_buffer_go_to_disk_by_themselves_and_are_read_rightly(tmp_path: Path) -> None:
    async def filled(directory: Path, buffer_bytes: int) -> int:
        calls = BlockingCalls(1, name="index")
        settings = replace(BookieSettings(), index_write_buffer_bytes=buffer_bytes, index_cache_bytes=64 * 1024)
        index = await RocksLedgerIndex.open(str(directory), calls, settings)
        try:
            for first in range(0, ENTRIES, 1_000):
                rows = (ROW.pack(e % 7, e, location_of(1, e * 64), 64) for e in range(first, first + 1_000))
                await index.put_places(b"".join(rows))
            # No sync and no close: whatever lies in a sorted file was put there because the buffer was full.
            for entry_id in (0, 1_234, ENTRIES - 1):
                (place,) = await index.places(entry_id % 7, entry_id, 1)
                assert place == Place(entry_id, location_of(1, entry_id * 64), 64)
            assert len(await index.places(3, 0, ENTRIES)) == len(range(3, ENTRIES, 7))
            return sorted_files(directory)
        finally:
            await index.close()
            await calls.close()

    small, large = tmp_path / "small", tmp_path / "large"
    for directory in (small, large):
        directory.mkdir()
    assert asyncio.run(filled(small, 128 * 1024)) >= 1
    assert asyncio.run(filled(large, 64 * 1024 * 1024)) == 0
