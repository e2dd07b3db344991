# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks.admin`: what a scrape and a full list cost those who publish, as a ratio in one run.

One broker with many topics. A client publishes one message at a time; in turns nobody else asks anything, somebody asks
for next to nothing without a pause, and somebody scrapes /metrics, lists all topics and asks for the statistics of all,
without a pause. The askers are processes of their own.
"""

import argparse
import multiprocessing
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import pulsar

from benchmarks.results import Measurement, report
from tests.processes import StandaloneProcess

LITTLE = ("/admin/v2/brokers/ready",)
MUCH = ("/metrics", "/admin/v2/namespaces/public/default/topics", "/admin/v2/broker-stats/topics")


def ask(url: str, paths: tuple[str, ...], answers: Any) -> None:
    with httpx.Client(base_url=url, timeout=120) as client:
        while True:
            for path in paths:
                assert client.get(path).status_code == 200
                answers.value += 1


class Asking:
    """Asks without a pause, in a process of its own, until it is stopped."""

    def __init__(self, url: str, paths: tuple[str, ...]) -> None:
        context = multiprocessing.get_context("spawn")
        self._answers = context.Value("i", 0)
        self._process = context.Process(target=ask, args=(url, paths, self._answers), daemon=True)

    @property
    def answers(self) -> int:
        return int(self._answers.value)

    def __enter__(self) -> "Asking":
        self._process.start()
        while not self.answers:
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def publish(producer: pulsar.Producer, messages: int) -> list[float]:
    took = []
    for _ in range(messages):
        started = time.perf_counter()
        producer.send(b"x" * 1000)
        took.append((time.perf_counter() - started) * 1000)
    return took


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--topics", type=int, default=500)
    arguments.add_argument("--messages", type=int, default=500)
    arguments.add_argument("--rounds", type=int, default=3)
    given = arguments.parse_args()
    with (
        tempfile.TemporaryDirectory() as directory,
        StandaloneProcess(Path(directory), environment={"admin.metrics_kept_ms": "1"}) as standalone,
    ):
        quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        client = pulsar.Client(standalone.service_url, logger=quiet)
        others = [client.create_producer(f"persistent://public/default/bench-{n}") for n in range(given.topics)]
        producer = client.create_producer("persistent://public/default/measured", batching_enabled=False)
        publish(producer, given.messages)
        took: dict[str, list[list[float]]] = {"alone": [], "a little": [], "much": []}
        answers = 0
        for _ in range(given.rounds):
            took["alone"].append(publish(producer, given.messages))
            with Asking(standalone.web_url, LITTLE):
                took["a little"].append(publish(producer, given.messages))
            with Asking(standalone.web_url, MUCH) as asking:
                took["much"].append(publish(producer, given.messages))
                answers += asking.answers
        client.close()
        assert others
    rows = []
    for share in (0.5, 0.99):
        alone, little, much = (statistics.median(percentile(each, share) for each in took[name]) for name in took)
        name = f"p{share * 100:g} of a publish, {given.topics} topics"
        rows.append(Measurement(name, f"{alone:.2f} ms alone, {little:.2f} beside little, {much:.2f} beside much"))
        rows.append(Measurement("", f"much / alone {much / alone:.2f}, much / little {much / little:.2f}"))
    rows.append(Measurement("requests answered meanwhile", str(answers)))
    report("admin beside publishing", rows)


if __name__ == "__main__":
    main()
