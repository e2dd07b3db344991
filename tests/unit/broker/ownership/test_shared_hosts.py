# SPDX-License-Identifier: Apache-2.0
"""A broker whose machine does other work too: what sheds by the average still evens out what is ours."""

from collections.abc import Mapping

import pytest

from magnetar.broker.ownership.shedding import ShedderMemory, find_moves
from magnetar.config.balance import BalanceSettings
from tests.unit.broker.ownership.loads import MIB, broker, brokers

# Percent of each machine's processor that somebody else uses.
BACKGROUND = {"a:8080": 60.0, "b:8080": 0.0, "c:8080": 0.0}
PERCENT_PER_MIB = 1.0
BUNDLE = 2.0 * MIB
ROUNDS = 50


def usage(name: str, bundles: Mapping[str, float]) -> float:
    return BACKGROUND[name] + sum(bundles.values()) / MIB * PERCENT_PER_MIB


def settled(shedding: str) -> dict[str, float]:
    """MiB a second of messaging at each broker once nothing moves any more; the least used gets what moves."""
    held = {
        name: {f"public/{name[0]}/{number:02}": BUNDLE for number in range(count)} for name, count in STARTS.items()
    }
    memory = ShedderMemory()
    options = BalanceSettings(shedding=shedding)
    for _ in range(ROUNDS):
        known = brokers(*(broker(name[0], usage(name, bundles), bundles) for name, bundles in held.items()))
        found = find_moves(known, options, memory)
        if not found:
            break
        for move in found:
            target = min(held, key=lambda name: (usage(name, held[name]), name))
            held[target][move.bundle] = held[move.source].pop(move.bundle)
    else:
        raise AssertionError(f"{shedding} moves for ever")
    return {name: sum(bundles.values()) / MIB for name, bundles in held.items()}


STARTS = {"a:8080": 5, "b:8080": 35, "c:8080": 1}


@pytest.mark.feature("F-PRB-11")
def test_what_else_a_machine_does_keeps_nothing_from_being_balanced() -> None:
    # Nobody is overloaded: by that measure the traffic stays where it is.
    assert settled("OverloadShedder") == {"a:8080": 10.0, "b:8080": 70.0, "c:8080": 2.0}
    evened = settled("ThresholdShedder")
    assert sum(evened.values()) == 82.0
    # The two that do nothing else share it, within the threshold; the busy one is given no more.
    assert abs(evened["b:8080"] - evened["c:8080"]) <= BalanceSettings().threshold_percent / PERCENT_PER_MIB
    assert evened["a:8080"] <= 10.0
