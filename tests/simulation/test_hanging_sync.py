# SPDX-License-Identifier: Apache-2.0
"""One of four bookies has a disk whose syncs do not return: it is replaced, it ends, and nobody else feels it."""

import asyncio
from dataclasses import replace

from magnetar.runtime.simulated_faults import Call
from magnetar.wire.bookkeeper.digest import DigestType
from tests.simulation.world.node import Node
from tests.simulation.world.storage_cluster import SMALL_BOOKIE, StorageCluster, simulated
from tests.simulation.world.world import World
from tests.unit.ledger.cluster import PASSWORD, Confirmations, bodies

ENTRIES = 60
HUNG_AT = 20
PATIENCE_S = 120.0


def test_a_bookie_whose_sync_never_returns_is_replaced_and_ends() -> None:
    """F18: every entry is confirmed, on bookies that the record names; the one that hangs leaves the list."""
    outcomes: list[str] = []

    async def story(world: World) -> None:
        cluster = StorageCluster(world, 4, bookie_settings=replace(SMALL_BOOKIE, journal_stall_max_ms=6_000))
        written = asyncio.Event()

        async def write(node: Node) -> None:
            ledgers = await cluster.client(node)
            listener = Confirmations()
            writer = await ledgers.create(
                ensemble_size=3,
                write_quorum=3,
                ack_quorum=2,
                digest=DigestType.CRC32C,
                password=PASSWORD,
                custom_metadata={},
                listener=listener,
            )
            victim = writer.known.record.last_segment.ensemble[0]
            name = victim.partition(":")[0]
            for number in range(ENTRIES):
                if number == HUNG_AT:
                    world.nodes[name].disk.kernel.faults.hanging = frozenset({Call.SYNC})
                writer.append([b"%d" % number])
                await asyncio.sleep(0.1)
            await listener.until_confirmed(ENTRIES - 1)
            assert victim not in writer.known.record.last_segment.ensemble
            outcomes.append("replaced")
            await writer.close()
            reader = await ledgers.open(writer.ledger_id, password=PASSWORD)
            assert await bodies(reader) == [b"%d" % number for number in range(ENTRIES)]
            async with asyncio.timeout(PATIENCE_S):
                while world.nodes[name].is_running():  # noqa: ASYNC110 - another process ends
                    await asyncio.sleep(0.1)
            outcomes.append("ended")
            assert [node.name for node in cluster.nodes if not node.is_running()] == [name]
            written.set()

        with simulated(cluster):
            keeping = asyncio.get_running_loop().create_task(cluster.sessions.keep())
            await cluster.start()
            await asyncio.sleep(1)
            world.node("writer").start(write)
            async with asyncio.timeout(2 * PATIENCE_S):
                await written.wait()
            keeping.cancel()

    verdict = World(3).run("hanging sync", story)
    assert not verdict.violations, verdict.violations[0]
    assert outcomes == ["replaced", "ended"]
