# SPDX-License-Identifier: Apache-2.0
"""Many clients and one bookie that cannot serve all of them: do they leave and come back together?"""

from random import Random
from statistics import pvariance

import pytest

from magnetar.config.ledger import PlacementSettings
from magnetar.ledger.quarantine import Quarantine

CLIENTS = 50
# So many the bookie can serve; with more it fails requests of all of them.
SERVED_MAX = 35
STEP_MS = 10_000.0
STEPS = 2_000


def users_over_time(ratio: float) -> list[int]:
    """How many clients use the bookie at each step."""
    random = Random(11)
    settings = PlacementSettings(quarantine=True, quarantine_ratio=ratio, quarantine_errors_max=2)
    clients = [Quarantine(settings, random.random) for _ in range(CLIENTS)]
    seen = []
    for step in range(STEPS):
        now_ms = step * STEP_MS
        using = [client for client in clients if "b" not in client.bookies(now_ms)]
        seen.append(len(using))
        if len(using) > SERVED_MAX:
            for client in using:
                client.on_failed("b", now_ms)
    return seen


@pytest.mark.feature("F-PRB-09")
def test_with_a_ratio_clients_do_not_leave_and_come_back_together() -> None:
    together, apart = users_over_time(1.0), users_over_time(0.3)
    assert min(together) == 0
    assert max(together) == CLIENTS
    assert min(apart) > 0
    assert pvariance(apart) < pvariance(together)
