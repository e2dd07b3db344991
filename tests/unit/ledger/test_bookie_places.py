# SPDX-License-Identifier: Apache-2.0
"""Racks, groups and free space, from the records and answers that name them to the ensembles that keep to them."""

import asyncio
import json
from collections import Counter
from random import Random

import pytest

from magnetar.config.ledger import PlacementSettings
from magnetar.errors import BookieUnavailable, NotEnoughBookies
from magnetar.ledger.bookie_places import PLACES_PATH, BookiePlaces, decode_places
from magnetar.ledger.bookies import Bookies
from magnetar.ledger.paths import AVAILABLE
from magnetar.ledger.placement import AFFINITY_KEY, Affinity
from magnetar.ledger.quorum import Quorum
from magnetar.ledger.topology_placement import BookiePlace, TopologyPlacement
from magnetar.metadata.memory import MemoryStore, MemoryTree
from magnetar.runtime.tasks import Tasks
from magnetar.wire.bookkeeper.digest import DigestType
from tests.unit.ledger.cluster import PASSWORD, Cluster, Confirmations

RACKS = {
    "group1": {"b1:3181": {"rack": "/r1", "hostname": ""}, "b2:3181": {"rack": "r2"}},
    "group2": {"b3:3181": {"rack": "/eu/r3"}, "b4": {"rack": "/eu/r4"}},
}


@pytest.mark.feature("F-ISO-02")
def test_a_record_says_rack_region_and_group() -> None:
    places = decode_places(json.dumps(RACKS).encode())
    assert places["b1:3181"] == BookiePlace("/r1", "/r1", "group1")
    assert places["b2:3181"] == BookiePlace("/r2", "/r2", "group1")
    assert places["b3:3181"] == BookiePlace("/eu/r3", "/eu", "group2")
    assert decode_places(b"") == {}
    assert decode_places(b'{"g": {"b": {"rack": null}}}') == {"b": BookiePlace(group="g")}
    for bad in (b"[]", b"{", b'{"g": 3}'):
        with pytest.raises(ValueError, match=r"JSON|Expecting"):
            decode_places(bad)


class Town:
    """Bookies that are listed, their places watched."""

    def __init__(self, *bookies: str, settings: PlacementSettings | None = None) -> None:
        self.store = MemoryStore(MemoryTree())
        self.crashes: list[BaseException] = []
        self.tasks = Tasks("test", lambda name, error: self.crashes.append(error))
        self.free: dict[str, int] = {}
        self._names = bookies
        self._settings = settings or PlacementSettings()

    async def open(self) -> BookiePlaces:
        for name in self._names:
            await self.store.put(f"{AVAILABLE}/{name}", b"")
        bookies = await Bookies.open(self.store, self.tasks)
        self.places = await BookiePlaces.open(self.store, bookies, self._settings, self.free_bytes, self.tasks)
        return self.places

    async def free_bytes(self, bookie: str) -> int:
        if bookie not in self.free:
            raise BookieUnavailable("silent")
        return self.free[bookie]

    async def close(self) -> None:
        self.places.close()
        await self.tasks.close()
        assert not self.crashes


@pytest.mark.feature("F-ISO-02")
def test_a_rack_that_is_set_is_known_and_a_bad_record_changes_nothing() -> None:
    async def scenario() -> None:
        town = Town("b1:3181", "b3:3181", "b4:9", "b9:1")
        places = await town.open()
        assert places()["b1:3181"] == BookiePlace()
        await town.store.put(PLACES_PATH, json.dumps(RACKS).encode())
        for _ in range(50):
            await asyncio.sleep(0)
        assert places()["b3:3181"].group == "group2"
        assert places()["b4:9"].rack == "/eu/r4", "a host's rack is that of its bookies"
        assert places()["b9:1"] == BookiePlace()
        await town.store.put(PLACES_PATH, b"no json")
        for _ in range(20):
            await asyncio.sleep(0)
        assert places()["b1:3181"].rack == "/r1"
        await town.close()

    asyncio.run(scenario())


@pytest.mark.feature("F-ISO-03")
def test_a_ledger_keeps_to_its_groups() -> None:
    async def scenario() -> None:
        cluster = Cluster(8)
        groups = {f"b{i}": BookiePlace(group="hot" if i <= 3 else "warm" if i <= 6 else "cold") for i in range(1, 9)}
        placement = TopologyPlacement(lambda: groups, Random(1), lambda: 0.0, PlacementSettings())
        client = cluster.client(placement=placement)
        affinity = {"isolationBookieGroups": "hot", "secondaryIsolationBookieGroups": "warm"}
        custom = {AFFINITY_KEY: json.dumps({"policyClass": "x", "properties": affinity}).encode()}
        for _ in range(20):
            writer = await client.ledgers.create(
                ensemble_size=3,
                write_quorum=2,
                ack_quorum=2,
                digest=DigestType.CRC32C,
                password=PASSWORD,
                custom_metadata=custom,
                listener=Confirmations(),
            )
            ensemble = (await client.ledgers.catalog.load(writer.ledger_id)).record.last_segment.ensemble
            assert set(ensemble) == {"b1", "b2", "b3"}
            await writer.close()
        del groups["b1"]
        replaced = placement.replacements(
            Quorum(3, 2, 2), ["b1", "b2", "b3"], [0], affinity=Affinity(("hot",), ("warm",))
        )
        assert groups[replaced[0]].group == "warm", "the secondary group only when the primary is too small"
        with pytest.raises(NotEnoughBookies):
            placement.ensemble(Quorum(4, 2, 2), affinity=Affinity(("hot",)))
        await client.tasks.close()

    asyncio.run(scenario())


@pytest.mark.feature("F-ISO-05")
def test_every_write_set_has_both_racks_and_what_cannot_is_counted() -> None:
    places = {f"b{i}": BookiePlace(rack=f"/r{i % 2}") for i in range(6)}
    placement = TopologyPlacement(lambda: places, Random(2), lambda: 0.0, PlacementSettings())
    quorum = Quorum(4, 2, 2)
    for _ in range(200):
        ensemble = placement.ensemble(quorum)
        for start in range(4):
            assert len({places[ensemble[member]].rack for member in quorum.write_set(start)}) == 2
    assert (placement.choices, placement.choices_loosened) == (200, 0)
    for lonely in ("b1", "b3", "b5"):
        del places[lonely]
    placement.ensemble(Quorum(3, 2, 2))
    assert placement.choices_loosened == 1, "one rack is left: used, and never in silence"
    strict = TopologyPlacement(lambda: places, Random(2), lambda: 0.0, PlacementSettings(racks_enforced=True))
    with pytest.raises(NotEnoughBookies):
        strict.ensemble(Quorum(3, 2, 2))


@pytest.mark.feature("F-ISO-06")
def test_free_space_weighs_within_a_bound_and_a_new_bookie_is_not_overrun() -> None:
    async def scenario() -> None:
        names = [f"b{i}:1" for i in range(8)]
        town = Town(*names, settings=PlacementSettings(disk_weighted=True, rack_aware=False, weight_max_ratio=2.0))
        # Half of them have twice the space of the others; one is new, and nearly all of it is free.
        town.free = {name: 200 if i % 2 else 100 for i, name in enumerate(names)}
        places = await town.open()
        assert places()["b1:1"].free_bytes == 200
        settings = PlacementSettings(disk_weighted=True, rack_aware=False, weight_max_ratio=2.0)
        placement = TopologyPlacement(places, Random(3), lambda: 0.0, settings)
        chosen = Counter(placement.ensemble(Quorum(1, 1, 1))[0] for _ in range(1000))
        light = sum(chosen[name] for i, name in enumerate(names) if not i % 2)
        heavy = sum(chosen[name] for i, name in enumerate(names) if i % 2)
        assert 1.6 < heavy / light < 2.5, chosen
        town.free["b1:1"] = 1_000_000
        del town.free["b2:1"]
        await places.weigh()
        assert places()["b2:1"].free_bytes == 100, "silent: its last word holds"
        chosen = Counter(placement.ensemble(Quorum(1, 1, 1))[0] for _ in range(1000))
        median = sorted(chosen.values())[len(chosen) // 2]
        assert chosen["b1:1"] < 3.2 * median, "no herd runs to the empty one"
        await town.close()

    asyncio.run(scenario())


@pytest.mark.feature("F-ISO-06")
def test_regions_are_spanned_where_they_are_asked_for() -> None:
    places = {f"b{i}": BookiePlace(rack=f"/z{i % 3}/r{i}", region=f"/z{i % 3}") for i in range(9)}
    settings = PlacementSettings(region_aware=True, regions_per_write_quorum_min=3, racks_per_write_quorum_min=3)
    placement = TopologyPlacement(lambda: places, Random(4), lambda: 0.0, settings)
    quorum = Quorum(3, 3, 2)
    for _ in range(100):
        assert {places[bookie].region for bookie in placement.ensemble(quorum)} == {"/z0", "/z1", "/z2"}
