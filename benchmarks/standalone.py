# SPDX-License-Identifier: Apache-2.0
"""A standalone as it comes: how soon it serves, what it takes when idle, how many unbatched messages it stores.

Real process, real disk, every receipt after fsync. The load runs beside it on the same machine.
"""

import argparse
import tempfile
import time
from pathlib import Path

import psutil

from benchmarks.raw_publish import Publisher, publish
from benchmarks.results import Measurement, report
from tests.processes import StandaloneProcess

IDLE_S = 5.0


def first_receipt_s(directory: Path) -> float:
    """From the start of the process to the first acknowledged publish, environment present."""
    standalone = StandaloneProcess(directory)
    directory.mkdir(parents=True)
    started = time.perf_counter()
    with standalone:
        publisher = Publisher(("127.0.0.1", standalone.port), "persistent://public/default/first", 0, 1, 100)
        publisher.socket.setblocking(True)
        publisher.send(1)
        while publisher.received < 1:
            publisher.receive()
        return time.perf_counter() - started


def idle(standalone: StandaloneProcess) -> tuple[float, float]:
    """Resident megabytes and percent of a core, of a process that has nothing to do."""
    process = psutil.Process(standalone.pid)
    process.cpu_percent()
    time.sleep(IDLE_S)
    return process.memory_info().rss / 2**20, process.cpu_percent()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--connections", type=int, default=2)
    parser.add_argument("--window", type=int, default=2_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        starts = sorted(first_receipt_s(Path(scratch) / f"start-{number}") for number in range(3))
        with StandaloneProcess(Path(scratch) / "run") as standalone:
            megabytes, percent = idle(standalone)
            measurements = [
                Measurement("start to first receipt", f"{starts[1]:.2f} s", "< 1 s"),
                Measurement("resident when idle", f"{megabytes:.0f} MB", "< 120 MB"),
                Measurement("CPU when idle", f"{percent:.1f} % of a core", "< 1 %"),
            ]
            for size, aim in ((1024, "> 60,000/s"), (100, "")):
                outcome = publish(
                    standalone.service_url,
                    size=size,
                    count=arguments.count,
                    connections=arguments.connections,
                    window=arguments.window,
                    topic=f"persistent://public/default/unbatched-{size}",
                )
                latencies = sorted(outcome.latencies_ms)
                measurements += [
                    Measurement(f"unbatched {size} B", f"{outcome.rate:,.0f} messages/s", aim, ("F-DISP-19",)),
                    Measurement(f"  p50 with {arguments.window} in flight", f"{latencies[len(latencies) // 2]:.1f} ms"),
                    Measurement("  p99", f"{latencies[len(latencies) * 99 // 100]:.1f} ms"),
                ]
            after = psutil.Process(standalone.pid).memory_info().rss / 2**20
            measurements.append(Measurement("resident after the load", f"{after:.0f} MB"))
    report("standalone", measurements)


if __name__ == "__main__":
    main()
