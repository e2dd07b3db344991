# SPDX-License-Identifier: Apache-2.0
"""The promise of dispatch, checked while it runs: permits and a deliverable entry mean that a send happens soon.

Every interval each pump is asked whether it could send and does not; one that says yes has missed a wake-up, is counted
and woken. A count above zero is a bug to be found, not a state to live with.
Carries.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from magnetar.broker.dispatch.pump import Pump

# Pumps asked before others on the loop have their turn.
_BATCH: Final = 200


async def watch_liveness(pumps: Callable[[], Iterable[Pump]], interval_ms: int) -> None:
    """Runs until it is cancelled."""
    while True:
        await asyncio.sleep(interval_ms / 1000)
        for number, pump in enumerate(pumps(), 1):
            pump.check_liveness()
            if number % _BATCH == 0:
                await asyncio.sleep(0)
