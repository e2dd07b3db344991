# SPDX-License-Identifier: Apache-2.0
"""Calls that block, and what becomes of one that does not come back."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from magnetar.runtime.blocking_calls import run_apart


def test_a_call_that_does_not_come_back_is_left_behind(loop_run: Callable[[Any], Any]) -> None:
    async def check() -> None:
        done, release = [], threading.Event()
        assert await run_apart(lambda: done.append("quick"), name="quick", limit_s=60)
        assert done == ["quick"]
        assert not await run_apart(lambda: done.append(str(release.wait())), name="stuck", limit_s=0.01)
        (stuck,) = (thread for thread in threading.enumerate() if thread.name == "stuck")
        assert stuck.daemon
        release.set()
        await asyncio.to_thread(stuck.join)
        assert done == ["quick", "True"]

    loop_run(check())
