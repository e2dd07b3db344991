# SPDX-License-Identifier: Apache-2.0
"""Lists of a namespace's topics: made when there is room for them, in slices, and held in memory only while sent.

Carries.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from fastapi import Response
from starlette.types import Receive, Scope, Send

from magnetar.admin.answers import answered
from magnetar.admin.parts import AdminParts
from magnetar.admin.slices import sliced
from magnetar.names import NamespaceName, TopicName

_NAMES_PER_SLICE: Final = 200


class TopicListAnswer(Response):
    """The names that `read` gives and `chosen` lets through. Nothing is read before it is this answer's turn."""

    def __init__(
        self,
        parts: AdminParts,
        namespace: NamespaceName,
        read: Callable[[], Awaitable[Sequence[TopicName]]],
        chosen: Callable[[TopicName], bool] | None = None,
    ) -> None:
        super().__init__()
        self._budget = parts.broker.topics.list_budget
        self._namespace = namespace
        self._read = read
        self._chosen = chosen

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._budget.holding(self._namespace) as hold:
            names = [
                str(name)
                async for name in sliced(await self._read(), _NAMES_PER_SLICE)
                if self._chosen is None or self._chosen(name)
            ]
            hold.made(names)
            await answered(names)(scope, receive, send)
