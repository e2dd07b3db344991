# SPDX-License-Identifier: Apache-2.0
"""The switch that an operator turns for a rolling upgrade: nobody sets bookies aside meanwhile."""

import asyncio
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from magnetar.config.ledger import PlacementSettings
from magnetar.ledger.health_switch import HealthSwitch, is_health_checked, set_health_checked
from magnetar.ledger.quorum import Quorum
from magnetar.ledger.topology_placement import BookiePlace, TopologyPlacement
from magnetar.metadata.memory import MemoryStore, MemoryTree
from magnetar.runtime.tasks import Tasks

BOOKIES = [f"b{number}" for number in range(8)]
QUORUM = Quorum(2, 2, 2)


@pytest.mark.feature("F-PRB-10")
def test_every_client_follows_the_switch(loop_run: Callable[..., None]) -> None:
    async def scenario() -> None:
        tree, crashes = MemoryTree(), list[BaseException]()
        operator, client = MemoryStore(tree), MemoryStore(tree)
        tasks = Tasks("client", lambda _, error: crashes.append(error))
        switch = await HealthSwitch.open(client, tasks)
        for is_on in (False, False, True, True):
            await set_health_checked(operator, is_on)
            assert await is_health_checked(operator) == is_on
            async with asyncio.timeout(10):
                while switch.is_on != is_on:  # noqa: ASYNC110 - nobody is told
                    await asyncio.sleep(0)
        switch.close()
        await tasks.close()
        await client.close()
        await operator.close()
        assert crashes == []

    loop_run(scenario())


def rolled(is_checked: bool) -> Counter[str]:
    """How often each bookie is chosen after all but the last were restarted in turn, seen by one client."""
    places = {name: BookiePlace() for name in BOOKIES}
    switch = {"on": is_checked}
    placement = TopologyPlacement(lambda: places, Random(5), lambda: 0.0, PlacementSettings(), lambda: switch["on"])
    for name in BOOKIES[:-2]:
        for _ in range(PlacementSettings().quarantine_errors_max + 1):
            placement.on_bookie_failed(name)
    switch["on"] = True
    return Counter(bookie for _ in range(4_000) for bookie in placement.ensemble(QUORUM))


@pytest.mark.feature("F-PRB-10")
def test_a_rolling_upgrade_does_not_concentrate_traffic() -> None:
    # Without the switch all new ledgers come together on the two bookies that were not restarted yet.
    assert set(rolled(is_checked=True)) == {"b6", "b7"}
    spread = rolled(is_checked=False)
    assert set(spread) == set(BOOKIES)
    assert max(spread.values()) < 1.2 * min(spread.values())
