# SPDX-License-Identifier: Apache-2.0
"""Publish latency while a query reads history from the same standalone: unthrottled, and with `readBytesPerSecond`.

    python -m benchmarks.spark_throttle [--seconds N] [--messages N] [--rate BYTES] [--turns N]

The query starts over and over until publishing is done. Spark's JVM and its workers stand for other machines, so they
have what the broker leaves of the cores. Turns of each kind follow one another, and medians are told: beside what
`python -m benchmarks.spark` measured.
"""

import argparse
import contextlib
import os
import tempfile
import threading
from pathlib import Path
from statistics import median

import psutil
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from benchmarks.figures import LESS, Figure, percentile
from benchmarks.latency import at_rate
from benchmarks.results import Run, Side
from benchmarks.servers import Magnetar, MagnetarServer, machine_words
from benchmarks.spark import PulsarReads, fill
from magnetar import spark as magnetar_spark

TOPIC = "history"
SIZE = 1024
PUBLISH_RATE = 500
CANCEL_INTERVAL_S = 0.5
SECONDS = 10
TURNS = 3
"""With fewer, or for a shorter time, a p99 is that of a moment: no more than quick scale."""


class Query(threading.Thread):
    """Reads all of a topic, again and again, between `start` and `end`."""

    def __init__(self, reads: PulsarReads, **options: str) -> None:
        super().__init__(daemon=True)
        self._reads = reads
        self._options = options
        self._is_over = threading.Event()
        self._failure: Py4JJavaError | None = None

    def run(self) -> None:
        while not self._is_over.is_set():
            try:
                self._reads.consume(self._reads.batch(TOPIC, columns="value", **self._options))
            except Py4JJavaError as error:
                if not self._is_over.is_set():
                    self._failure = error
                    return

    def end(self) -> None:
        """Whatever it does: a read that is planned just now has no job yet that could be cancelled."""
        self._is_over.set()
        while self.is_alive():
            self._reads.spark.sparkContext.cancelAllJobs()
            self.join(CANCEL_INTERVAL_S)
        if self._failure is not None:
            raise self._failure


def let_others_go_first(server: MagnetarServer) -> None:
    """Spark's processes, every thread of them: what they start later inherits it."""
    ours = {server.pid, *(child.pid for child in psutil.Process(server.pid).children(recursive=True))}
    for process in psutil.Process().children(recursive=True):
        if process.pid not in ours:
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                for thread in process.threads():
                    os.setpriority(os.PRIO_PROCESS, thread.id, 19)


def p99_beside(server: MagnetarServer, seconds: float, query: Query | None) -> float:
    let_others_go_first(server)
    if query is not None:
        query.start()
    taken = at_rate(server, rate=PUBLISH_RATE, seconds=seconds).publish_ms
    if query is not None:
        query.end()
    return percentile(taken, 99)


def session() -> SparkSession:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    made = magnetar_spark.session(
        "throttle",
        master="local[2]",
        spark_ui_enabled="false",
        spark_driver_bindAddress="127.0.0.1",
        spark_python_authenticate_socketTimeout="120s",
    )
    made.sparkContext.setLogLevel("OFF")
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--rate", type=int, default=2 << 20, help="bytes a second of each of the query's two tasks")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        server = MagnetarServer(Path(scratch) / "run")
        with server:
            spark = session()
            fill(server.service_url, f"persistent://public/default/{TOPIC}", arguments.messages, SIZE)
            reads = PulsarReads(spark, Path(scratch), server)
            reads.consume(reads.batch(TOPIC, columns="value"))
            turns: list[tuple[float, float, float]] = []
            for _ in range(arguments.turns):
                alone = p99_beside(server, arguments.seconds, None)
                free = p99_beside(server, arguments.seconds, Query(reads))
                limited = Query(reads, readBytesPerSecond=str(arguments.rate))
                turns.append((alone, free, p99_beside(server, arguments.seconds, limited)))
            spark.stop()
    run = Run("spark", machine_words(), scale_words(arguments), [Side("magnetar", Magnetar().words())])
    run.keep_earlier()
    run.add("spark", {"magnetar": figures(turns, arguments)}, os.getloadavg()[0], "throttle", arguments.turns)
    run.write()
    run.show()


def scale_words(arguments: argparse.Namespace) -> str:
    is_quick = arguments.seconds < SECONDS or arguments.turns < TURNS
    return f"{'quick, ' if is_quick else ''}{arguments.messages:,} messages, local[2]"


def figures(turns: list[tuple[float, float, float]], arguments: argparse.Namespace) -> list[Figure]:
    """Of each turn the p99 with no query, beside one that reads as it likes, and beside one that is limited."""
    alone, free, limited = zip(*turns, strict=True)
    settings = f"{PUBLISH_RATE}/s of 1 KiB for {arguments.seconds:g} s; median of {arguments.turns} turns"
    beside = f"{settings}; the query reads {arguments.messages:,} messages again and again"
    throttled = f"{beside}, {arguments.rate:,} bytes/s a task"
    times = median(limited) / median(alone)
    return [
        Figure("publish p99, no query", median(alone), "ms", LESS, settings=settings, rounds=alone),
        Figure("publish p99 beside a query", median(free), "ms", LESS, settings=beside, rounds=free),
        Figure("publish p99 beside a limited query", median(limited), "ms", LESS, settings=throttled, rounds=limited),
        Figure("publish p99 beside a limited query, times", times, "times", LESS, "≤ 2", throttled, ("F-SQL-05",)),
    ]


if __name__ == "__main__":
    main()
