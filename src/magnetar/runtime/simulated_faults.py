# SPDX-License-Identifier: Apache-2.0
"""What can go wrong on a simulated disk, how often, and how long things take.

All off and instant by default: then a simulated disk is a disk in memory. Fields may be changed while it runs.
Decides.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import NamedTuple


class Call(Enum):
    READ = "read"
    WRITE = "write"
    SYNC = "sync"
    NAME = "name"
    SYNC_DIRECTORY = "sync-directory"


class DiskCall(NamedTuple):
    """One call as the disk sees it; numbers rise from 0 over the disk's whole life, restarts included."""

    number: int
    call: Call
    path: str


class Latency(NamedTuple):
    """A fixed part, and a tail with an exponential distribution."""

    least_ms: float = 0.0
    tail_ms: float = 0.0

    def draw_s(self, random: Random) -> float:
        tail_ms = random.expovariate(1 / self.tail_ms) if self.tail_ms else 0.0
        return (self.least_ms + tail_ms) / 1000


INSTANT = Latency()
SLOW = Latency(500.0, 1000.0)


@dataclass(slots=True)
class DiskFaults:
    read_latency: Latency = INSTANT
    write_latency: Latency = INSTANT
    sync_latency: Latency = INSTANT
    name_latency: Latency = INSTANT
    slow_sync_chance: float = 0.0
    slow_sync: Latency = SLOW
    read_error_chance: float = 0.0
    write_error_chance: float = 0.0
    sync_error_chance: float = 0.0
    short_write_chance: float = 0.0
    lost_write_chance: float = 0.0
    misdirected_write_chance: float = 0.0
    # These calls never return.
    hanging: frozenset[Call] = field(default_factory=frozenset)
    # Sees every call before it takes effect; an OSError that it raises is the call's outcome. For sweeps over the n-th
    # call: raise there, or crash the node there.
    on_call: Callable[[DiskCall], None] | None = None

    def latency(self, call: Call) -> Latency:
        if call is Call.READ:
            return self.read_latency
        if call is Call.WRITE:
            return self.write_latency
        return self.name_latency if call is Call.NAME else self.sync_latency

    def may_fail(self, call: Call) -> bool:
        return self.on_call is not None or call in self.hanging or self.error_chance(call) > 0

    def error_chance(self, call: Call) -> float:
        if call is Call.READ:
            return self.read_error_chance
        if call is Call.WRITE:
            return self.write_error_chance
        return 0.0 if call is Call.NAME else self.sync_error_chance
