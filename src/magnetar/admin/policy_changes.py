# SPDX-License-Identifier: Apache-2.0
"""A changed policy is answered when the topics that are loaded here follow it, not before.

Carries.
"""

import asyncio
import copy
from collections.abc import Callable, Coroutine
from typing import Any, Final

from magnetar.admin.audit import note_change
from magnetar.admin.parts import AdminParts
from magnetar.names import NamespaceName, TopicName

# A namespace of very many loaded topics is answered before the last of them has changed.
PATIENCE_S: Final = 5.0


async def changed_policies(
    parts: AdminParts, namespace: NamespaceName, topic: TopicName | None, writing: Coroutine[Any, Any, None]
) -> None:
    await writing
    try:
        async with asyncio.timeout(PATIENCE_S):
            await parts.broker.policy_upkeep.apply_now(namespace, topic)
    except TimeoutError:
        return


class NotedChange:
    """A change of a record that remembers how the record was and is; it may be made again when another came first."""

    __slots__ = ("_after", "_before", "_step")

    def __init__(self, step: Callable[[dict[str, Any]], object]) -> None:
        self._step = step
        self._before: dict[str, Any] = {}
        self._after: dict[str, Any] = {}

    def __call__(self, record: dict[str, Any]) -> None:
        self._before = copy.deepcopy(record)
        self._step(record)
        self._after = record

    def tell(self, path: str) -> None:
        """It was made: the audit log shall say so."""
        note_change(path, self._before, self._after)
