# SPDX-License-Identifier: Apache-2.0
"""The embedded metadata store in virtual time: slow and stalling disks, crashes during syncs and snapshots."""

import asyncio
from random import Random

import pytest

from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.runtime.simulated_faults import DiskFaults, Latency
from tests.simulation.world.loop import SimLoop
from tests.simulation.world.schedule import Policy, Schedule
from tests.unit.metadata.embedded_rig import Life, Operation, Twin, contents, opened

SEEDS = range(40)


def _batches(random: Random) -> list[list[Operation]]:
    return [
        [
            (random.choice(("put", "put", "delete")), random.choice("abcd"), random.randbytes(random.randrange(150)))
            for _ in range(random.randrange(10))
        ]
        for _ in range(random.randrange(1, 30))
    ]


@pytest.mark.feature("F-MD-01")
@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_was_answered_survives_a_crash_of_a_slow_disk(seed: int) -> None:
    random = Random(seed)

    async def check() -> None:
        faults = DiskFaults(
            read_latency=Latency(0.1, 0.5),
            write_latency=Latency(0.1, 2.0),
            sync_latency=Latency(0.5, 5.0),
            name_latency=Latency(0.1, 1.0),
            slow_sync_chance=random.choice((0.0, 0.1)),
        )
        disk, twin = SimulatedDisk(Random(seed), faults=faults), Twin()
        for _ in range(random.randrange(2, 6)):
            life = Life(disk, twin, crash_after=random.randrange(200), power_loss=random.random() < 0.7)
            await life.run(_batches(random))
        store = await opened(disk)
        twin.on_recovered(await contents(store))
        await store.close()

    policy = list(Policy)[seed % len(Policy)]
    with asyncio.Runner(loop_factory=lambda: SimLoop(Schedule(policy, Random(seed)))) as runner:
        runner.run(check())
