# SPDX-License-Identifier: Apache-2.0
"""Placement: who may have a bundle, and who gets it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.broker.ownership.isolation import IsolationPolicy, allowed_brokers, decode_policies
from magnetar.broker.ownership.placement import PlacementFacts, choose_broker
from magnetar.config.balance import BalanceSettings
from magnetar.config.balance_keys import PLACERS
from tests.unit.broker.ownership.loads import broker, brokers, bundle_names

NAMESPACE = "public/default"
THREE = brokers(broker("a"), broker("b"), broker("c"))


def place(facts: PlacementFacts, options: BalanceSettings | None = None, namespace: str = NAMESPACE) -> str | None:
    return choose_broker(namespace, f"{namespace}/0x00000000_0xffffffff", facts, options or BalanceSettings())


@pytest.mark.feature("F-LB-05")
@given(st.sampled_from(PLACERS), st.integers(1, 6), st.integers(1, 30))
@settings(max_examples=100)
def test_bundles_placed_one_after_another_are_spread(placer: str, count: int, bundles: int) -> None:
    known = brokers(*(broker(f"b{number}") for number in range(count)))
    placed: dict[str, list[str]] = {name: [] for name in known}
    for turn, bundle in enumerate(bundle_names(bundles)):
        facts = PlacementFacts(known, bundles=placed, turn=turn)
        chosen = choose_broker(NAMESPACE, bundle, facts, BalanceSettings(placement=placer))
        assert chosen in known
        placed[chosen].append(bundle)
    sizes = [len(each) for each in placed.values()]
    assert max(sizes) - min(sizes) <= 1


def test_the_least_loaded_is_taken() -> None:
    known = brokers(broker("a", bundles={"x/y/1": 9000.0}), broker("b", bundles={"x/y/2": 100.0}))
    assert place(PlacementFacts(known)) == "b:8080"
    # What is known over a long time weighs more than the last report.
    assert place(PlacementFacts(known, long_term={"a:8080": 1.0, "b:8080": 5.0})) == "a:8080"
    used = brokers(broker("a", 20), broker("b", 60))
    assert place(PlacementFacts(used), BalanceSettings(placement="LeastResourceUsageWithWeight")) == "a:8080"


@pytest.mark.feature("F-LB-10")
def test_a_resource_without_weight_is_left_out() -> None:
    known = brokers(broker("a", cpu=80, memory=1), broker("b", cpu=1, memory=50))
    by_all = BalanceSettings(placement="LeastResourceUsageWithWeight")
    assert place(PlacementFacts(known), by_all) == "b:8080"
    by_memory = BalanceSettings(placement="LeastResourceUsageWithWeight", cpu_weight=0.0)
    assert place(PlacementFacts(known), by_memory) == "a:8080"


def test_overloaded_and_full_brokers_are_passed_over_while_there_are_others() -> None:
    known = brokers(broker("a", cpu=90), broker("b", cpu=50))
    assert place(PlacementFacts(known)) == "b:8080"
    assert place(PlacementFacts(brokers(broker("a", cpu=90), broker("b", cpu=99)))) is not None
    full = brokers(broker("a", bundles={"x/y/1": 1.0}, topics=50_000), broker("b", bundles={"x/y/2": 9.0}))
    assert place(PlacementFacts(full)) == "b:8080"


def test_nobody_is_chosen_when_there_is_nobody() -> None:
    assert place(PlacementFacts({})) is None


# --- isolation --------------------------------------------------------------------------------------


POLICY = IsolationPolicy("p", ("public/secret.*",), ("a",), ("b:8080",), 1, 80.0)


@pytest.mark.feature("F-ISO-01")
def test_isolation_pins_a_namespace_and_keeps_the_others_away() -> None:
    assert allowed_brokers("public/secret-1", [POLICY], THREE) == ["a:8080"]
    assert allowed_brokers("public/other", [POLICY], THREE) == ["b:8080", "c:8080"]
    without = {name: load for name, load in THREE.items() if name != "a:8080"}
    assert allowed_brokers("public/secret-1", [POLICY], without) == ["b:8080"]
    busy = brokers(broker("a", cpu=85), broker("b"), broker("c"))
    assert allowed_brokers("public/secret-1", [POLICY], busy) == ["a:8080", "b:8080"]
    only_c = {"c:8080": THREE["c:8080"]}
    assert place(PlacementFacts(only_c, [POLICY]), namespace="public/secret-1") is None


def test_policies_are_read_as_pulsar_writes_them() -> None:
    record = {
        "p": {
            "namespaces": ["public/secret.*"],
            "primary": ["a"],
            "secondary": ["b:8080"],
            "auto_failover_policy": {
                "policy_type": "min_available",
                "parameters": {"min_limit": "1", "usage_threshold": "80"},
            },
        },
        "broken": None,
    }
    assert decode_policies(record) == [POLICY]
    assert decode_policies(None) == []
    # A pattern that is none matches nothing.
    assert not IsolationPolicy("x", ("(",), ("(",)).covers("public/default")


# --- anti-affinity ----------------------------------------------------------------------------------


@pytest.mark.feature("F-ISO-04")
def test_a_group_is_spread_over_brokers_and_domains() -> None:
    group = frozenset({"public/one", "public/two"})
    bundles = {"a:8080": bundle_names(1, "public/one"), "b:8080": [], "c:8080": bundle_names(4)}
    assert place(PlacementFacts(THREE, group=group, bundles=bundles)) == "b:8080"
    domains = {"a:8080": "rack-1", "b:8080": "rack-1", "c:8080": "rack-2"}
    facts = PlacementFacts(THREE, group=group, bundles=bundles, domains=domains)
    assert place(facts, BalanceSettings(failure_domains=True)) == "c:8080"
