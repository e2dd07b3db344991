# SPDX-License-Identifier: Apache-2.0
"""What the machine itself takes away: how often a process that only looks at the clock was not let run.

A virtual machine's processors stand still when their host has other work. Who measures tenths of a millisecond has to
say how much of that there was.
"""

import multiprocessing
import os
import time
from multiprocessing import Queue
from typing import Final, NamedTuple

PAUSE_S: Final = 0.0005


class Pauses(NamedTuple):
    """Of all processors together, while all were busy."""

    per_second: float
    longest_ms: float


def machine_pauses(seconds: float = 1.0) -> Pauses:
    processors = sorted(os.sched_getaffinity(0))
    results: Queue[list[float]] = Queue()
    watchers = [multiprocessing.Process(target=_watch, args=(each, seconds, results)) for each in processors]
    for watcher in watchers:
        watcher.start()
    found = [pause for _ in watchers for pause in results.get()]
    for watcher in watchers:
        watcher.join()
    return Pauses(len(found) / seconds, max(found, default=0.0) * 1000)


def _watch(processor: int, seconds: float, results: "Queue[list[float]]") -> None:
    os.sched_setaffinity(0, {processor})
    found = []
    last = time.perf_counter()
    until = last + seconds
    while last < until:
        now = time.perf_counter()
        if now - last > PAUSE_S:
            found.append(now - last)
        last = now
    results.put(found)
