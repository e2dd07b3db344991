# SPDX-License-Identifier: Apache-2.0
"""Every call to the disk, every strike: the journal of the self-test survives them all, a careless one does not."""

from tests.simulation.scenarios.journal import publish_and_check
from tests.simulation.world.sweep import Strike, sweep
from tests.simulation.world.world import World


async def short_journal(world: World) -> None:
    world.nemesis.forbid(*list(world.nemesis.kinds))
    await publish_and_check(world, 0.5)


def test_a_journal_survives_a_fault_at_every_call() -> None:
    struck = []
    for call, strike, verdict in sweep(short_journal, "store-0"):
        assert not verdict.violations, f"{strike.value} at {call}: {verdict.violations[0]}"
        assert verdict.faults[strike.value] >= 1, "the fault did not strike: the story is not the same"
        struck.append(strike)
    assert len(struck) > 100
    assert set(struck) == set(Strike)


def test_acknowledging_before_the_sync_is_found_by_a_sweep() -> None:
    planted = frozenset({"ack-before-sync"})
    swept = sweep(short_journal, "store-0", strikes=(Strike.POWER_LOSS,), planted=planted)
    assert any("I1" in violation.promise for _, _, verdict in swept for violation in verdict.violations)
