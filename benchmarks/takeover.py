# SPDX-License-Identifier: Apache-2.0
"""How long another client needs to take over a ledger whose writer is gone: short and long ones, idle and busy writers.

Recovery fences, reads on from what is known to be confirmed and writes back what it finds there. What was confirmed
before is neither read nor written: the time must not grow with the ledger, only with what was in flight.
"""

import asyncio
import statistics
import time
from pathlib import Path

import uvloop

from benchmarks.figures import Figure, Scale
from magnetar.config.ledger import LedgerSettings
from magnetar.ledger.ledgers import Ledgers
from tests.cluster import Cluster
from tests.faults.ledger_side import PASSWORD, Told, created, ledgers_of

BODY = bytes(1024)
ROUNDS = 5
IN_FLIGHT = 2_000
SETTINGS = LedgerSettings()


async def _abandoned(ledgers: Ledgers, entries: int, *, in_flight: int) -> int:
    """A ledger of so many confirmed entries that nobody closes; the last of them were in flight together."""
    told = Told()
    writer = await created(ledgers, told)
    for entry_id in range(entries):
        if entry_id == entries - in_flight or entry_id % IN_FLIGHT == 0:
            await told.until(entry_id - 1)
        writer.append([BODY])
    await told.until(entries - 1)
    assert told.error is None, told.error
    return writer.ledger_id


async def _taken_over_ms(cluster: Cluster, entries: int, in_flight: int) -> float:
    async with ledgers_of(cluster, SETTINGS) as writers:
        ledger_id = await _abandoned(writers, entries, in_flight=in_flight)
    async with ledgers_of(cluster, SETTINGS) as others:
        # The connections are there already, as a broker's are.
        await others.open(await _abandoned(others, 1, in_flight=1), password=PASSWORD)
        began = time.perf_counter()
        reader = await others.open(ledger_id, password=PASSWORD)
        took_ms = (time.perf_counter() - began) * 1000
        assert reader.last_entry == entries - 1
        return took_ms


def take_over(directory: Path, scale: Scale) -> list[Figure]:
    found = []
    long = scale.of(2_000, 20_000, 200_000)
    settings = f"3 bookies, 3/3/2, entries of 1 KiB; median of {ROUNDS}"
    with Cluster(directory, broker=False) as cluster, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for entries, in_flight in ((100, 1), (long, 1), (long, 1_000)):
            taken = [runner.run(_taken_over_ms(cluster, entries, in_flight)) for _ in range(ROUNDS)]
            name = f"taking over {entries:,} entries, {in_flight:,} of them in flight"
            found.append(Figure(name, statistics.median(taken), "ms", "less", "", settings, ("F-REC-14",)))
    ratio = found[1].value / found[0].value
    found.append(Figure("  long against short", ratio, "times", "less", "≤ 2", f"{long:,} : 100 entries, idle"))
    return found
