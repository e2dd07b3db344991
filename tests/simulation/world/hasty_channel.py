# SPDX-License-Identifier: Apache-2.0
"""A way to a bookie on which fences get lost while adds and recovery reads dawdle: what decides a recovery.

All of it happens by itself, when a connection is cut between two requests or a bookie is slow; here it happens often. A
lost fence is never sent, and its sender learns what a cut would tell it. Adds of one ledger stay in their order.
Carries.
"""

import asyncio
from collections.abc import Callable
from random import Random

from magnetar.errors import BookieUnavailable
from magnetar.ledger.channel import AddListener, BookieChannel, LastConfirmed
from tests.simulation.world.world import World


class HastyChannel(BookieChannel):
    def __init__(self, channel: BookieChannel, world: World, random: Random, chance: float) -> None:
        self.bookie = channel.bookie
        self._channel = channel
        self._world = world
        self._random = random
        self._chance = chance
        # How long the adds of each ledger travel.
        self._delays_s: dict[int, float] = {}

    def add(
        self,
        ledger_id: int,
        entry_id: int,
        entry: bytes,
        master_key: bytes,
        listener: AddListener,
        recovery: bool = False,
    ) -> None:
        if ledger_id not in self._delays_s:
            self._delays_s[ledger_id] = 0.3 * self._random.random() if self._strikes("slow-adds") else 0.0
        loop, add = asyncio.get_running_loop(), self._channel.add
        # A timer even for no delay at all: what is sent later must not overtake.
        loop.call_later(self._delays_s[ledger_id], add, ledger_id, entry_id, entry, master_key, listener, recovery)

    async def read(self, ledger_id: int, entry_id: int, *, fence_key: bytes | None = None) -> bytes:
        if fence_key is not None and self._strikes("slow-recovery-read"):
            await asyncio.sleep(0.2 * self._random.random())
        return await self._channel.read(ledger_id, entry_id, fence_key=fence_key)

    async def read_batch(self, ledger_id: int, first: int, count_max: int, bytes_max: int) -> list[bytes]:
        return await self._channel.read_batch(ledger_id, first, count_max, bytes_max)

    def at_hand(self, ledger_id: int, first: int, count_max: int, bytes_max: int) -> list[bytes]:
        return self._channel.at_hand(ledger_id, first, count_max, bytes_max)

    async def last_confirmed(self, ledger_id: int, *, fence_key: bytes | None = None) -> LastConfirmed:
        if fence_key is not None and self._strikes("fence-lost"):
            raise BookieUnavailable(f"The connection to {self.bookie} is gone.")
        return await self._channel.last_confirmed(ledger_id, fence_key=fence_key)

    async def write_last_confirmed(self, ledger_id: int, entry_id: int, body: bytes, master_key: bytes) -> None:
        await self._channel.write_last_confirmed(ledger_id, entry_id, body, master_key)

    async def entry_ids(self, ledger_id: int) -> list[int]:
        return await self._channel.entry_ids(ledger_id)

    def close(self) -> None:
        self._channel.close()

    def _strikes(self, kind: str) -> bool:
        if self._random.random() >= self._chance:
            return False
        self._world.fault(kind)
        return True


def hasty(
    channels: Callable[[str], BookieChannel], world: World, random: Random, chance: float
) -> Callable[[str], BookieChannel]:
    return lambda bookie: HastyChannel(channels(bookie), world, random, chance)
