# SPDX-License-Identifier: Apache-2.0
"""Steps that run to their end even when the client that asked for them is gone.

A session's tasks are cancelled with its connection. A record that is being written then must not be left with an
unknown outcome: such a step belongs to the topic or the broker, and the session merely waits for it.
Carries.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from magnetar.errors import MagnetarError
from magnetar.runtime.tasks import Tasks

Result = TypeVar("Result")


async def sheltered(tasks: Tasks, step: Coroutine[Any, Any, Result], name: str) -> Result:
    """Run a step as a task of this owner and wait for its outcome; cancelling the wait leaves the step running."""
    outcome: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

    async def run() -> None:
        try:
            result = await step
        except MagnetarError as error:
            if not outcome.done():
                outcome.set_exception(error)
                # Whoever waited may have left.
                outcome.exception()
        else:
            if not outcome.done():
                outcome.set_result(result)
        finally:
            outcome.cancel()

    try:
        tasks.start(run(), name)
    except MagnetarError:
        step.close()
        raise
    return await asyncio.shield(outcome)
