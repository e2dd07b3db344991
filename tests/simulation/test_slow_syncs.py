# SPDX-License-Identifier: Apache-2.0
"""One of four bookies has a disk whose syncs take many seconds: who writes feels nothing, the ledger leaves it once."""

import asyncio
from collections.abc import Callable

import pytest

from magnetar.config.ledger import ChannelSettings, LedgerSettings
from magnetar.runtime.simulated_faults import Latency
from magnetar.wire.bookkeeper.digest import DigestType
from tests.simulation.world.node import Node
from tests.simulation.world.storage_cluster import StorageCluster, simulated
from tests.simulation.world.world import World
from tests.unit.ledger.cluster import PASSWORD, Confirmations, bodies

STEADY_S = 120.0
PAUSE_S = 0.1
SLOW_AT = 50
ENTRIES = int(STEADY_S / PAUSE_S)
# A body of a hundred bytes, its header and its checksum.
PACKED_BYTES = 136
# Syncs of the others take a millisecond and a half; nobody waits for the slow one.
LATENCY_P99_S = 0.1


class Timed(Confirmations):
    """How long each entry waited for its confirmation, in virtual time."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__()
        self._now = now
        self.appended_at: list[float] = []
        self.waited_s: list[float] = []

    def on_confirmed(self, writer: object, entry_id: int) -> None:
        self.waited_s += [self._now() - moment for moment in self.appended_at[len(self.waited_s) : entry_id + 1]]
        super().on_confirmed(writer, entry_id)  # type: ignore[arg-type]


class SteadyLoad:
    """Two minutes of adds to one ledger on three of four bookies; `strike` is given the one that is to suffer."""

    def __init__(self, world: World, strike: Callable[[Node], None]) -> None:
        self.world = world
        self._strike = strike
        # The deadlines of real life: a bookie that has answered nothing for half a minute is given up.
        self.cluster = StorageCluster(world, 4, ledger_settings=LedgerSettings(), channel_settings=ChannelSettings())
        self.ensembles: list[tuple[str, ...]] = []
        self.pending_most = 0
        self.waited_s: list[float] = []
        self.slow = ""
        self._written = asyncio.Event()

    async def run(self) -> None:
        with simulated(self.cluster):
            keeping = asyncio.get_running_loop().create_task(self.cluster.sessions.keep())
            await self.cluster.start()
            await asyncio.sleep(1)
            self.world.node("writer").start(self._write)
            async with asyncio.timeout(3 * STEADY_S):
                await self._written.wait()
            keeping.cancel()

    async def _write(self, node: Node) -> None:
        ledgers = await self.cluster.client(node)
        listener = Timed(asyncio.get_running_loop().time)
        writer = await ledgers.create(
            ensemble_size=3,
            write_quorum=3,
            ack_quorum=2,
            digest=DigestType.CRC32C,
            password=PASSWORD,
            custom_metadata={},
            listener=listener,
        )
        self.slow = writer.known.record.last_segment.ensemble[0]
        for number in range(ENTRIES):
            if number == SLOW_AT:
                self._strike(self.world.nodes[self.slow.partition(":")[0]])
            listener.appended_at.append(asyncio.get_running_loop().time())
            writer.append([b"%0100d" % number])
            self.pending_most = max(self.pending_most, writer.pending_bytes)
            await asyncio.sleep(PAUSE_S)
        await listener.until_confirmed(ENTRIES - 1)
        self.ensembles = [segment.ensemble for segment in writer.known.record.segments]
        self.waited_s = sorted(listener.waited_s)
        await writer.close()
        reader = await ledgers.open(writer.ledger_id, password=PASSWORD)
        assert await bodies(reader) == [b"%0100d" % number for number in range(ENTRIES)]
        self._written.set()

    def check(self) -> None:
        assert len(self.ensembles) == 2, "the ensemble changes once"
        assert self.slow in self.ensembles[0]
        assert self.slow not in self.ensembles[1]
        assert len(self.waited_s) == ENTRIES
        assert self.waited_s[ENTRIES * 99 // 100] < LATENCY_P99_S
        assert self.pending_most <= 2 * PACKED_BYTES, "no entry waits for the slow one"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_bookie_whose_syncs_take_many_seconds_is_replaced_once_and_delays_nobody(seed: int) -> None:
    """F17: two minutes of steady adds; the bookie stays slow and listed, and the ledger does not come back to it."""
    loads: list[SteadyLoad] = []

    def slow(bookie: Node) -> None:
        bookie.disk.kernel.faults.sync_latency = Latency(5_000.0, 8_000.0)

    async def story(world: World) -> None:
        loads.append(SteadyLoad(world, slow))
        await loads[0].run()

    verdict = World(seed).run("slow syncs", story)
    assert not verdict.violations, verdict.violations[0]
    loads[0].check()
