# SPDX-License-Identifier: Apache-2.0
"""LogEnd: what a managed ledger asks of whatever makes its log grow: an Appender, or a Follower of another log.

Decides.
"""

from collections.abc import Sequence
from typing import Protocol

from magnetar.errors import MagnetarError
from magnetar.ids import Position
from magnetar.runtime.disk import Buffer


class LogEnd(Protocol):
    @property
    def last_confirmed(self) -> Position: ...

    @property
    def pending_bytes(self) -> int: ...

    @property
    def pending_entries(self) -> int: ...

    def append(self, parts: Sequence[Buffer]) -> None: ...

    def append_run(self, entries: Sequence[Sequence[Buffer]]) -> bool: ...

    def check_rollover(self) -> None: ...

    def refuse(self, refusal: MagnetarError, *, instead: bool = False) -> None: ...

    def give_up(self, error: MagnetarError) -> None: ...

    async def drained(self) -> None: ...

    async def settled(self) -> None: ...

    async def end(self, *, terminated: bool) -> None: ...
