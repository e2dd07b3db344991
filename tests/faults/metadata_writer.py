# SPDX-License-Identifier: Apache-2.0
"""A process to be killed: counts in an embedded store on the real disk and prints each answer that it got.

    python -m tests.faults.metadata_writer DIRECTORY

Prints `found N M` (what was recovered), then `done K N` for every answered write of counter K. Many writes are under
way at once, and the log is small, so that a kill also meets snapshots.
"""

import asyncio
import sys

from magnetar.config.metadata import MetadataSettings
from magnetar.metadata.embedded import EmbeddedStore
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.real_disk import RealDisk

COUNTERS = 8


async def count(store: EmbeddedStore, counter: int, start: int) -> None:
    number = start
    while True:
        number += 1
        await store.put(f"/counter-{counter}", b"%d" % number + b" " * 100)
        sys.stdout.write(f"done {counter} {number}\n")
        sys.stdout.flush()


async def main(directory: str) -> None:
    disk = RealDisk(directory)
    settings = MetadataSettings(log_bytes_max=20_000, mark_delay_ms=10)
    store = await EmbeddedStore.open(disk, "metadata", clock=SystemClock(), settings=settings)
    starts = []
    for counter in range(COUNTERS):
        record = await store.get(f"/counter-{counter}")
        starts.append(0 if record is None else int(record.value))
    sys.stdout.write(f"found {' '.join(map(str, starts))}\n")
    sys.stdout.flush()
    await store.put("/alive", b"", ephemeral=True, expected_version=-1)
    async with asyncio.TaskGroup() as group:
        for counter, start in enumerate(starts):
            group.create_task(count(store, counter, start))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
