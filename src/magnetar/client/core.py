# SPDX-License-Identifier: Apache-2.0
"""What all parts of one client share: settings, connections, look-up, clock, chance, tasks and numbers.

Made by `Client`; a part keeps it and never changes it. Also the check that the process is still the one that made it:
sockets and the loop do not survive a fork, so the child is told so at once instead of waiting for ever.
Assembles.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from random import Random
from typing import TypeVar

from magnetar.client.backoff import Backoff
from magnetar.client.lookup import Lookup
from magnetar.client.pool import Pool
from magnetar.client.room import Room
from magnetar.config.client import ClientSettings
from magnetar.errors import AlreadyClosed, MagnetarError
from magnetar.names import TopicName
from magnetar.runtime.clock import WallClock
from magnetar.runtime.forks import FORKS
from magnetar.runtime.tasks import Tasks

Result = TypeVar("Result")


class Core:
    def __init__(
        self,
        settings: ClientSettings,
        pool: Pool,
        lookup: Lookup,
        clock: WallClock,
        random: Random,
        tasks: Tasks,
    ) -> None:
        self.settings = settings
        self.pool = pool
        self.lookup = lookup
        self.clock = clock
        self.random = random
        self.tasks = tasks
        self.loop = asyncio.get_running_loop()
        self.memory = Room(settings.memory_limit_bytes)
        self.producer_ids = count()
        self.consumer_ids = count()
        self.watcher_ids = count()
        self._forks = FORKS.count

    def check_process(self) -> None:
        """Raises AlreadyClosed in a forked child."""
        if FORKS.count != self._forks:
            raise AlreadyClosed("This client belongs to the parent process: make a new Client after a fork")

    def backoff(self) -> Backoff:
        return Backoff(self.settings.initial_backoff_ms, self.settings.backoff_ms_max, self.random)

    async def partitions_of(self, topic: TopicName) -> int:
        """How many partitions, asked again while that can help and the operation time-out allows."""
        return await self.retried(lambda: self.lookup.partitions(topic))

    async def retried(self, ask: Callable[[], Awaitable[Result]]) -> Result:
        """Ask until there is an answer, an error that no retry helps against, or the time is up."""
        backoff = self.backoff()
        until = self.loop.time() + self.settings.operation_timeout_seconds
        while True:
            try:
                return await ask()
            except MagnetarError as error:
                delay_s = backoff.next_s()
                if not error.retryable or self.loop.time() + delay_s >= until:
                    raise
            await asyncio.sleep(delay_s)
