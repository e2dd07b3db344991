# SPDX-License-Identifier: Apache-2.0
"""Publish latency while a bookie compacts its entry logs, and how fast it copies beside its limit.

Two topics lie in the same logs; one is deleted, so that half of each log is dead and the other half has to move.
"""

import time
from contextlib import closing
from pathlib import Path
from typing import Final

from benchmarks import topics
from benchmarks.figures import LESS, Figure, Scale, percentile
from benchmarks.latency import at_rate
from benchmarks.raw_frames import Shape
from benchmarks.raw_publish import publish
from benchmarks.servers import MagnetarServer, freshly_scraped, scraped, until_settled

RATE: Final = 1_000
LIMIT_BYTES: Final = 5_000_000
# A log holds what several flushes write, so that both topics are in each.
KEYS: Final = {
    "logSizeLimit": str(64 * 1024 * 1024),
    "gcWaitTime": "1000",
    "minorCompactionInterval": "1",
    "minorCompactionThreshold": "0.8",
    "majorCompactionInterval": "0",
    "isThrottleByBytes": "true",
    "compactionRateByBytes": str(LIMIT_BYTES),
}
COPIED: Final = "bookie_COMPACTED_BYTES"
BEGINNING_LIMIT_S: Final = 60.0


def compaction(directory: Path, scale: Scale) -> list[Figure]:
    seconds = scale.of(2, 8, 20)
    with MagnetarServer(directory, KEYS) as server:
        kept, deleted = topics.fresh("kept"), topics.fresh("deleted")
        publish(server.service_url, Shape(1024), count=scale.of(200_000, 400_000, 800_000), topics=[kept, deleted])
        at_rate(server, rate=RATE, seconds=1)
        until_settled(server.pid)
        alone = percentile(at_rate(server, rate=RATE, seconds=seconds).publish_ms, 99)
        with closing(topics.Admin(server.web_url)) as admin:
            admin.call("DELETE", f"{topics.path_of(deleted)}?force=true")
        _until_compacting(server.web_url)
        before, began = freshly_scraped(server.web_url)[COPIED], time.perf_counter()
        beside = percentile(at_rate(server, rate=RATE, seconds=seconds).publish_ms, 99)
        copied, took_s = scraped(server.web_url)[COPIED] - before, time.perf_counter() - began
    settings = (
        f"{RATE:,}/s of 1 KiB, {seconds} s; {copied / 1e6:.0f} MB were copied meanwhile, of logs that are half dead"
    )
    tags = ("F-GC-07",)
    return [
        Figure("publish p99, without compaction", alone, "ms", LESS, settings=settings),
        Figure("publish p99, beside compaction", beside, "ms", LESS, settings=settings),
        Figure("publish p99, times with compaction", beside / alone, "times", LESS, "≤ 2", settings, tags),
        Figure(
            "compaction's bytes a second against their limit",
            copied / took_s / LIMIT_BYTES,
            "times",
            LESS,
            "≤ 1",
            f"compactionRateByBytes={LIMIT_BYTES}; {settings}",
            tags,
        ),
    ]


def _until_compacting(web_url: str) -> None:
    until = time.monotonic() + BEGINNING_LIMIT_S
    while freshly_scraped(web_url)[COPIED] <= 0:
        if time.monotonic() > until:
            raise TimeoutError(f"no entry log was compacted within {BEGINNING_LIMIT_S:.0f} s")
