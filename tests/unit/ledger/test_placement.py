# SPDX-License-Identifier: Apache-2.0
"""Choosing bookies: distinct, by rack, region, group and weight, in bounded time (F74)."""

import json
from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.config.ledger import PlacementSettings
from magnetar.errors import NotEnoughBookies
from magnetar.ledger.placement import AFFINITY_KEY, ANYWHERE, Affinity, RandomPlacement, affinity_of
from magnetar.ledger.quarantine import Quarantine
from magnetar.ledger.quorum import Quorum
from magnetar.ledger.topology_placement import BookiePlace, TopologyPlacement


def placement(
    places: dict[str, BookiePlace], *, seed: int = 0, settings: PlacementSettings | None = None
) -> TopologyPlacement:
    return TopologyPlacement(lambda: places, Random(seed), lambda: 0.0, settings or PlacementSettings())


def racks(places: dict[str, BookiePlace], quorum: Quorum, ensemble: tuple[str, ...]) -> list[int]:
    """Racks that each write set touches."""
    return [
        len({places[ensemble[member]].rack for member in quorum.write_set(start)})
        for start in range(quorum.ensemble_size)
    ]


QUORUMS = st.integers(1, 5).flatmap(
    lambda size: st.integers(1, size).map(lambda write: Quorum(size, write, max(1, write - 1)))
)


@settings(max_examples=120, deadline=None)
@given(
    layout=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=12),
    quorum=QUORUMS,
    excluded=st.sets(st.integers(0, 11), max_size=4),
    rack_min=st.integers(1, 4),
    enforced=st.booleans(),
    region_aware=st.booleans(),
    weighted=st.booleans(),
    seed=st.integers(0, 5),
)
def test_choices_are_distinct_and_span_what_they_must_or_are_refused(
    layout: list[tuple[int, int]],
    quorum: Quorum,
    excluded: set[int],
    rack_min: int,
    enforced: bool,
    region_aware: bool,
    weighted: bool,
    seed: int,
) -> None:
    places = {
        f"b{i}": BookiePlace(f"/region{region}/rack{rack}", f"/region{region}", free_bytes=i * 100)
        for i, (rack, region) in enumerate(layout)
    }
    rules = PlacementSettings(
        racks_per_write_quorum_min=rack_min,
        racks_enforced=enforced,
        region_aware=region_aware,
        disk_weighted=weighted,
    )
    unwanted = {f"b{i}" for i in excluded}
    available = [bookie for bookie in places if bookie not in unwanted]
    chooser = placement(places, seed=seed, settings=rules)
    try:
        ensemble = chooser.ensemble(quorum, excluded=unwanted)
    except NotEnoughBookies:
        assert enforced or len(available) < quorum.ensemble_size
        return
    assert len(set(ensemble)) == quorum.ensemble_size
    assert not unwanted & set(ensemble)
    if enforced:
        assert min(racks(places, quorum, ensemble)) >= min(rack_min, quorum.write_quorum)
    try:
        found = chooser.replacements(quorum, ensemble, [0], excluded=unwanted)
    except NotEnoughBookies:
        return
    assert list(found) == [0]
    assert found[0] not in ensemble
    assert found[0] not in unwanted


def test_a_write_set_spans_two_racks_where_there_are_two() -> None:
    places = {f"b{i}": BookiePlace(rack=f"/r{i % 2}") for i in range(6)}
    for seed in range(200):
        ensemble = placement(places, seed=seed).ensemble(Quorum(3, 2, 2))
        # Three members on two racks: one pair of neighbours must share a rack, so one rack less is the best there is.
        assert len(set(ensemble)) == 3
    for seed in range(200):
        ensemble = placement(places, seed=seed).ensemble(Quorum(4, 2, 2))
        assert racks(places, Quorum(4, 2, 2), ensemble) == [2, 2, 2, 2]


def test_a_rule_that_cannot_be_met_is_refused_when_enforced() -> None:
    places = {f"b{i}": BookiePlace(rack="/one") for i in range(6)}
    assert len(placement(places).ensemble(Quorum(3, 3, 2))) == 3
    with pytest.raises(NotEnoughBookies):
        placement(places, settings=PlacementSettings(racks_enforced=True)).ensemble(Quorum(3, 3, 2))


def test_a_replacement_keeps_the_spread() -> None:
    places = {"a": BookiePlace("/r1"), "b": BookiePlace("/r2"), "c": BookiePlace("/r1"), "d": BookiePlace("/r2")}
    for seed in range(20):
        assert placement(places, seed=seed).replacements(Quorum(2, 2, 2), ("a", "b"), [1]) == {1: "d"}


def test_regions_are_kept_before_racks() -> None:
    places = {f"{region}{i}": BookiePlace(f"/{region}/{i}", f"/{region}") for region in "xyz" for i in range(3)}
    rules = PlacementSettings(region_aware=True, regions_per_write_quorum_min=3)
    for seed in range(50):
        ensemble = placement(places, seed=seed, settings=rules).ensemble(Quorum(3, 3, 2))
        assert len({places[bookie].region for bookie in ensemble}) == 3


def test_affinity_prefers_the_primary_groups() -> None:
    places = {f"b{i}": BookiePlace(group=["hot", "cold", "other"][i % 3]) for i in range(9)}
    chooser = placement(places)
    for _ in range(20):
        chosen = chooser.ensemble(Quorum(3, 2, 2), affinity=Affinity(("hot",), ("cold",)))
        assert {places[bookie].group for bookie in chosen} == {"hot"}
        chosen = chooser.ensemble(Quorum(5, 2, 2), affinity=Affinity(("hot",), ("cold",)))
        assert {places[bookie].group for bookie in chosen} == {"hot", "cold"}
    with pytest.raises(NotEnoughBookies):
        chooser.ensemble(Quorum(4, 2, 2), affinity=Affinity(("hot",)))


def test_affinity_is_read_from_a_ledgers_custom_metadata() -> None:
    written = {
        "policyClass": "IsolatedBookieEnsemblePlacementPolicy",
        "properties": {"isolationBookieGroups": "a, b", "secondaryIsolationBookieGroups": "c"},
    }
    assert affinity_of({AFFINITY_KEY: json.dumps(written).encode()}) == Affinity(("a", "b"), ("c",))
    assert affinity_of({}) == ANYWHERE
    assert affinity_of({AFFINITY_KEY: b"not json"}) == ANYWHERE
    assert affinity_of({AFFINITY_KEY: b"[1]"}) == ANYWHERE


def test_heavier_bookies_are_chosen_more_often_but_not_always() -> None:
    places = {f"b{i}": BookiePlace(free_bytes=100 if i else 100_000) for i in range(5)}
    chooser = placement(places, settings=PlacementSettings(disk_weighted=True, weight_max_ratio=2.0))
    chosen = Counter(chooser.ensemble(Quorum(1, 1, 1))[0] for _ in range(3_000))
    # Weight is capped at twice the median: 2 of 6 shares.
    assert 800 < chosen["b0"] < 1_200


@pytest.mark.feature("F-BKC-24")
def test_a_bookie_that_fails_too_often_is_set_aside_for_a_while() -> None:
    now = 0.0
    places = {f"b{i}": BookiePlace() for i in range(4)}
    chooser = TopologyPlacement(lambda: places, Random(1), lambda: now, PlacementSettings())
    for _ in range(6):
        chooser.on_bookie_failed("b0")
    assert all("b0" not in chooser.ensemble(Quorum(3, 3, 2)) for _ in range(50))
    # No other is left: better a suspect than none.
    assert "b0" in chooser.ensemble(Quorum(4, 3, 2))
    now = 1_800_000.0
    assert any("b0" in chooser.ensemble(Quorum(3, 3, 2)) for _ in range(50))


def test_failures_far_apart_do_not_count_together() -> None:
    quarantine = Quarantine(PlacementSettings(), lambda: 0.0)
    for minute in range(20):
        quarantine.on_failed("b", minute * 60_000.0)
    assert quarantine.bookies(20 * 60_000.0) == []


@pytest.mark.feature("F-BKC-25")
def test_about_a_share_of_clients_sets_a_bookie_aside() -> None:
    random = Random(7)
    aside = 0
    for _ in range(1_000):
        quarantine = Quarantine(PlacementSettings(quarantine_ratio=0.5), random.random)
        for _ in range(6):
            quarantine.on_failed("b", 0.0)
        aside += bool(quarantine.bookies(0.0))
    assert 430 < aside < 570


def test_the_random_choice_spreads_evenly() -> None:
    chooser = RandomPlacement(lambda: ["a", "b", "c", "d"], Random(3))
    chosen = Counter(bookie for _ in range(4_000) for bookie in chooser.ensemble(Quorum(2, 2, 2)))
    assert all(1_850 < count < 2_150 for count in chosen.values())
    with pytest.raises(NotEnoughBookies):
        chooser.replacements(Quorum(3, 3, 2), ("a", "b", "c"), [0, 1])
