# SPDX-License-Identifier: Apache-2.0
"""All bookies of one rack are gone at once: with rack-aware placement writes and reads go on."""

from collections.abc import Callable, Mapping
from random import Random

import pytest

from magnetar.config.ledger import PlacementSettings
from magnetar.ledger.topology_placement import BookiePlace, TopologyPlacement
from tests.unit.ledger.cluster import Cluster, bodies

RACKS = ("/north", "/south", "/west")


@pytest.mark.feature("F-HA-11")
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("lost", RACKS)
def test_a_lost_rack_stops_neither_writes_nor_reads(loop_run: Callable[..., None], lost: str, seed: int) -> None:
    async def scenario() -> None:
        cluster = Cluster(6, seed=seed)
        racks = {name: RACKS[number % len(RACKS)] for number, name in enumerate(cluster.bookies)}

        def places() -> Mapping[str, BookiePlace]:
            return {name: BookiePlace(rack=racks[name], region=racks[name]) for name in cluster.writable()}

        placement = TopologyPlacement(places, Random(seed), lambda: 0.0, PlacementSettings())
        client = cluster.client(placement=placement)
        writer, confirmations = await client.create(3, 2, 2)
        for number in range(20):
            writer.append([b"%d" % number])
        await confirmations.until_confirmed(19)
        # Each entry lies in two racks.
        assert all(len({racks[name] for name in cluster.holders(writer.ledger_id, entry)}) == 2 for entry in range(20))
        for name, rack in racks.items():
            if rack == lost:
                cluster.bookies[name].is_up = False
        for number in range(20, 60):
            writer.append([b"%d" % number])
        await confirmations.until_confirmed(59)
        # Another client, that knows nothing of it, takes over and reads everything.
        other = cluster.client("other", placement=placement)
        reader = await other.open(writer.ledger_id)
        assert await bodies(reader) == [b"%d" % number for number in range(60)]
        fresh, more = await other.create(3, 2, 2)
        fresh.append([b"on it goes"])
        await more.until_confirmed(0)
        reader.close()
        await client.die()
        await other.die()
        assert cluster.crashes == []

    loop_run(scenario())
