# SPDX-License-Identifier: Apache-2.0
"""Shedding: Pulsar's strategies on the examples of their documents, and that moving comes to an end."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.broker.ownership.load_data import BrokerLoad
from magnetar.broker.ownership.placement import PlacementFacts, choose_broker
from magnetar.broker.ownership.shedding import ShedderMemory, find_moves
from magnetar.config.balance import BalanceSettings
from magnetar.config.balance_keys import SHEDDERS
from tests.unit.broker.ownership.loads import MIB, broker, brokers, bundle_names


def named(letter: str, count: int, weight: float) -> dict[str, float]:
    return {f"public/{letter}/{number:02}": weight for number in range(count)}


def moves(
    known: dict[str, BrokerLoad], memory: ShedderMemory | None = None, **options: object
) -> list[tuple[str, str]]:
    found = find_moves(known, BalanceSettings(**options), memory or ShedderMemory())  # type: ignore[arg-type]
    return [(move.bundle, move.source) for move in found]


@pytest.mark.feature("F-LB-08")
def test_an_overloaded_broker_gives_the_excess_and_a_margin() -> None:
    """95 % used of 85 %: (95 - 85) + 5 = 15 % of its throughput, the heaviest bundles first."""
    bundles = {**named("x", 1, 10 * MIB), **named("y", 18, 5 * MIB)}
    known = brokers(broker("a", 95, bundles), broker("b", 10, named("z", 1, MIB)))
    found = moves(known, shedding="OverloadShedder")
    assert {source for _, source in found} == {"a:8080"}
    # 15 % of 100 MB.
    assert [bundle for bundle, _ in found] == ["public/x/00", "public/y/00"]
    calm = brokers(broker("a", 85, bundles), broker("b", 10))
    assert moves(calm, shedding="OverloadShedder") == []
    sole = brokers(broker("a", 95, named("x", 1, 100 * MIB)), broker("b", 10))
    assert moves(sole, shedding="OverloadShedder") == []


@pytest.mark.feature("D-05", "F-LB-10")
def test_the_load_of_a_broker_is_its_highest_use_unless_told_otherwise() -> None:
    known = brokers(broker("a", 40, named("a", 1, 100.0), memory=60), broker("b", 20, named("b", 1, 50.0), memory=10))
    highest = ShedderMemory().look(known, BalanceSettings(memory_weight=1.0))
    assert highest == {"a:8080": 60, "b:8080": 20}
    settings = BalanceSettings(
        usage_formula="summed", usage_sum_cpu_weight=0.2, usage_sum_bytes_weight=0.3, usage_sum_messages_weight=0.5
    )
    summed = ShedderMemory().look(known, settings)
    assert summed["a:8080"] == pytest.approx(40 * 0.2 + 100 * 0.3 + 100 * 0.5)
    assert summed["b:8080"] == pytest.approx(20 * 0.2 + 50 * 0.3 + 50 * 0.5)
    assert ShedderMemory().look(brokers(broker("c", 10)), settings) == {"c:8080": pytest.approx(2.0)}


@pytest.mark.feature("F-LB-09")
def test_who_is_above_the_average_gives() -> None:
    """30, 30 and 60 %: the average is 40, the threshold 10, so that the third gives 60 - 40 - 10 + 5 = 15 %."""
    known = brokers(
        broker("a", 30, named("a", 10, 10 * MIB)),
        broker("b", 30, named("b", 10, 10 * MIB)),
        broker("c", 60, named("c", 20, 10 * MIB)),
    )
    found = moves(known, shedding="ThresholdShedder")
    assert [source for _, source in found] == ["c:8080"] * 3
    assert moves(known, shedding="ThresholdShedder", threshold_percent=20) == []
    # Too little traffic is not worth a move.
    assert moves(known, shedding="ThresholdShedder", move_bytes_min=100.0 * MIB) == []


def test_history_smooths_a_peak() -> None:
    memory = ShedderMemory()
    options = {"shedding": "ThresholdShedder", "move_bytes_min": 0.0}
    calm = brokers(broker("a", 30, named("a", 9, MIB)), broker("b", 30, named("b", 9, MIB)))
    assert moves(calm, memory, **options) == []
    peak = brokers(broker("a", 90, named("a", 9, 2 * MIB)), broker("b", 30, named("b", 9, MIB)))
    assert moves(peak, memory, **options) == []
    for _ in range(30):
        found = moves(peak, memory, **options)
    assert found


@pytest.mark.feature("F-PRB-06")
@pytest.mark.parametrize("shedder", ["ThresholdShedder", "TransferShedder"])
def test_an_idle_broker_gets_work_though_nobody_is_overloaded(shedder: str) -> None:
    known = brokers(
        broker("a", 40, named("a", 10, 10 * MIB)), broker("b", 40, named("b", 10, 10 * MIB)), broker("c", 0)
    )
    options = BalanceSettings(shedding=shedder, lower_boundary=True, threshold_percent=15)
    found = find_moves(known, options, ShedderMemory())
    assert found
    assert {move.target for move in found} == {"c:8080"}
    if shedder == "ThresholdShedder":
        off = BalanceSettings(shedding=shedder, threshold_percent=15, lower_boundary=False)
        assert find_moves(known, off, ShedderMemory()) == []


@pytest.mark.feature("B-05")
def test_uniform_looks_at_rates_and_throughput() -> None:
    known = brokers(broker("a", 0, named("a", 10, 10 * MIB)), broker("b", 0, named("b", 2, 10 * MIB)))
    found = moves(known, shedding="UniformLoadShedder")
    # A fifth of the difference of 80 MB, in messages: 16384 of 81920.
    assert [source for _, source in found] == ["a:8080", "a:8080"]
    even = brokers(broker("a", 0, named("a", 10, 10 * MIB)), broker("b", 0, named("b", 9, 10 * MIB)))
    assert moves(even, shedding="UniformLoadShedder") == []


@pytest.mark.feature("B-05")
def test_the_average_shedder_waits_for_several_looks() -> None:
    known = brokers(broker("a", 60, named("a", 10, 10 * MIB)), broker("b", 30, named("b", 2, 10 * MIB)))
    memory = ShedderMemory()
    options = BalanceSettings(shedding="AvgShedder")
    looks = [find_moves(known, options, memory) for _ in range(8)]
    assert [bool(found) for found in looks] == [False] * 7 + [True]
    assert {move.target for move in looks[-1]} == {"b:8080"}
    far = brokers(broker("a", 90, named("a", 10, 10 * MIB)), broker("b", 30, named("b", 2, 10 * MIB)))
    memory = ShedderMemory()
    assert [bool(find_moves(far, options, memory)) for _ in range(2)] == [False, True]


def test_fixed_bundles_and_the_limit_are_heeded() -> None:
    known = brokers(broker("a", 95, named("a", 10, 10 * MIB)), broker("b", 5))
    options = BalanceSettings(shedding="OverloadShedder")
    free = find_moves(known, options, ShedderMemory())
    assert len(free) == 2
    assert len(find_moves(known, options, ShedderMemory(), moves_max=1)) == 1
    fixed = [move.bundle for move in free]
    again = find_moves(known, options, ShedderMemory(), fixed=fixed)
    assert not {move.bundle for move in again} & set(fixed)


@pytest.mark.feature("F-LB-06")
@pytest.mark.parametrize("shedder", SHEDDERS)
def test_a_bundle_does_not_swing_between_equals(shedder: str) -> None:
    """Two brokers are alike but for one bundle: what is measured differs by a hair from look to look."""
    options = BalanceSettings(shedding=shedder, history_share=0.0, average_low_hits=1, average_high_hits=1)
    names = bundle_names(5)
    for hair in (-1.0, 1.0):
        swinging = {names[0]: 40.0 * MIB, names[1]: 50.0 * MIB + hair, names[2]: 20.0}
        other = {names[3]: 50.0 * MIB - hair, names[4]: 20.0}
        known = brokers(broker("a", 95, swinging), broker("b", 50, other))
        assert names[0] not in [move.bundle for move in find_moves(known, options, ShedderMemory())]


@pytest.mark.feature("F-LB-06")
@given(
    st.sampled_from(SHEDDERS),
    st.booleans(),
    st.lists(st.lists(st.integers(0, 200), max_size=12), min_size=2, max_size=5),
)
@settings(max_examples=150, deadline=None)
def test_moving_comes_to_an_end_and_empties_nobody(shedder: str, evenly: bool, weights: list[list[int]]) -> None:
    """A cluster that carries out every move settles, whatever the loads: nothing goes back and forth for ever."""
    names = iter(bundle_names(100))
    owned = [{next(names): weight * float(MIB) for weight in each} for each in weights]
    total = max(1.0, sum(sum(each.values()) for each in owned))
    options = BalanceSettings(shedding=shedder, history_share=0.0, average_low_hits=1, average_high_hits=1)
    memory = ShedderMemory()
    for _ in range(200):
        known = brokers(*(broker(f"b{i}", 100 * sum(each.values()) / total, each) for i, each in enumerate(owned)))
        found = find_moves(known, options, memory)
        for move in found:
            source = owned[list(known).index(move.source)]
            assert len(source) > 1
            target = move.target or choose_broker(
                "public/default",
                move.bundle,
                PlacementFacts(
                    {name: load for name, load in known.items() if name in move.takers},
                    bundles={name: list(load.bundles) for name, load in known.items()},
                ),
                BalanceSettings(placement="LeastLongTermMessageRate", evenly=evenly),
            )
            assert target is not None
            owned[list(known).index(target)][move.bundle] = source.pop(move.bundle)
        if not found:
            return
    raise AssertionError("still moving after 200 looks")
