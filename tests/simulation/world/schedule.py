# SPDX-License-Identifier: Apache-2.0
"""In which order callbacks that are ready together run.

asyncio promises that callbacks run in the order in which they were registered, and code may rely on it. So the plain
callbacks of one process keep their order under every policy; what moves freely is the next step of each task, and one
process against another: the orders that another machine, or a slightly later packet, could have brought about.

FIFO is the order of a real loop. UNIFORM picks among all lanes at random. PRIORITY gives each lane a random rank and
runs the highest first, with a few changes of rank on the way (as in probabilistic concurrency testing): it starves some
lanes for long, which uniform draws hardly ever do.
"""

import asyncio
from collections import deque
from enum import Enum
from random import Random

from tests.simulation.world.process import current_process

Batch = list[asyncio.Handle]

_RANKS_MAX = 10_000
_RANK_CHANGE_CHANCE = 0.002


class Policy(Enum):
    FIFO = "fifo"
    UNIFORM = "uniform"
    PRIORITY = "priority"


class Schedule:
    def __init__(self, policy: Policy, random: Random) -> None:
        self.policy = policy
        self._random = random
        self._ranks: dict[object, float] = {}

    def order(self, batch: Batch) -> Batch:
        if self.policy is Policy.UNIFORM:
            return self._uniform(batch)
        if self.policy is Policy.PRIORITY:
            return self._by_rank(batch)
        return batch

    def _uniform(self, batch: Batch) -> Batch:
        order = [lane_of(handle) for handle in batch]
        lanes: dict[object, deque[asyncio.Handle]] = {}
        for lane, handle in zip(order, batch, strict=True):
            lanes.setdefault(lane, deque()).append(handle)
        self._random.shuffle(order)
        return [lanes[lane].popleft() for lane in order]

    def _by_rank(self, batch: Batch) -> Batch:
        ranks, random = self._ranks, self._random
        if len(ranks) > _RANKS_MAX:
            ranks.clear()
        # Before the batch is ranked, so that no lane gets two ranks in it.
        if random.random() < _RANK_CHANGE_CHANCE * len(batch):
            ranks[lane_of(random.choice(batch))] = random.random()
        ranked = []
        for handle in batch:
            lane = lane_of(handle)
            rank = ranks.get(lane)
            if rank is None:
                rank = ranks[lane] = random.random()
            ranked.append((rank, handle))
        ranked.sort(key=_rank)
        return [handle for _, handle in ranked]


def lane_of(handle: asyncio.Handle) -> object:
    """The task whose next step this is; else the process, whose callbacks keep their order."""
    owner = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]
    if isinstance(owner, asyncio.Task):
        return owner
    return handle._context.get(current_process)  # type: ignore[attr-defined]


def _rank(ranked: tuple[float, asyncio.Handle]) -> float:
    return ranked[0]
