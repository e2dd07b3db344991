# SPDX-License-Identifier: Apache-2.0
"""Our client beside the official one, against the same broker in the same run: messages a second, CPU, and memory.

    python -m benchmarks.client [pulsar://127.0.0.1:6650] [--messages N] [--size BYTES] [--rounds N]

Without a URL a standalone of its own is started. Each measurement runs in a process of its own, so that memory and
warm-up are its own, and the two clients take turns, so that a busy machine is as unfair to one as to the other. Both
keep the same number of messages in flight and acknowledge every message that they receive. The CPU of a phase is user
and system time of the client's process alone; the table gives the median round.
"""

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pulsar
import uvloop

from benchmarks.results import Measurement, report
from magnetar import Client, InitialPosition
from tests.processes import StandaloneProcess

IN_FLIGHT = 1_000
PHASES = ("send", "receive")
KINDS = ("unbatched", "batched")


@contextmanager
def phase(name: str, messages: int, found: dict[str, float]) -> Iterator[None]:
    began, cpu = time.perf_counter(), _cpu_s()
    yield
    found[f"{name} rate"] = messages / (time.perf_counter() - began)
    found[f"{name} cpu"] = (_cpu_s() - cpu) / messages * 1e6


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def ours(url: str, topic: str, batched: bool, messages: int, size: int) -> dict[str, float]:
    payload, found = bytes(size), dict[str, float]()
    async with Client(url) as client:
        producer = await client.create_producer(
            topic, batching_enabled=batched, block_if_queue_full=True, max_pending_messages=IN_FLIGHT
        )
        with phase("send", messages, found):
            for _ in range(messages):
                await producer.submit(payload)
            await producer.flush()
        consumer = await client.subscribe(topic, "ours", initial_position=InitialPosition.Earliest)
        with phase("receive", messages, found):
            for _ in range(messages):
                await consumer.acknowledge(await consumer.receive())
    return found


def official(url: str, topic: str, batched: bool, messages: int, size: int) -> dict[str, float]:
    payload, found = bytes(size), dict[str, float]()
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(
        topic, batching_enabled=batched, block_if_queue_full=True, max_pending_messages=IN_FLIGHT
    )
    left = [messages]
    done = threading.Event()

    def on_sent(result: pulsar.Result, message_id: pulsar.MessageId) -> None:
        left[0] -= 1
        if not left[0]:
            done.set()

    with phase("send", messages, found):
        for _ in range(messages):
            producer.send_async(payload, on_sent)
        producer.flush()
        done.wait()
    consumer = client.subscribe(topic, "official", initial_position=pulsar.InitialPosition.Earliest)
    with phase("receive", messages, found):
        for _ in range(messages):
            consumer.acknowledge(consumer.receive())
    client.close()
    return found


def measure(arguments: argparse.Namespace) -> dict[str, float]:
    """In a process of its own."""
    who, kind = arguments.one.split("-")
    topic = f"persistent://public/default/bench-{arguments.one}-{time.time_ns()}"
    given = (arguments.url, topic, kind == "batched", arguments.messages, arguments.size)
    if who == "ours":
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            found = runner.run(ours(*given))
    else:
        found = official(*given)
    found["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found


def compare(arguments: argparse.Namespace) -> list[Measurement]:
    found: dict[str, list[dict[str, float]]] = {f"{who}-{kind}": [] for kind in KINDS for who in ("ours", "official")}
    for _ in range(arguments.rounds):
        for name, rounds in found.items():
            command = [sys.executable, "-m", "benchmarks.client", arguments.url, "--one", name]
            command += ["--messages", str(arguments.messages), "--size", str(arguments.size)]
            answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            rounds.append(json.loads(answer.splitlines()[-1]))

    def middle(name: str, value: str) -> float:
        return statistics.median(each[value] for each in found[name])

    def line(kind: str, what: str, value: str, form: Callable[[float], str], aim: str) -> Measurement:
        mine, theirs = middle(f"ours-{kind}", value), middle(f"official-{kind}", value)
        return Measurement(f"{kind} {what}", f"{form(mine)} / {form(theirs)} = {mine / theirs:.2f}", aim)

    table = []
    for kind in KINDS:
        for name in PHASES:
            table.append(line(kind, f"{name}, messages/s", f"{name} rate", "{:,.0f}".format, ">= 1"))
            table.append(line(kind, f"{name}, CPU µs", f"{name} cpu", "{:.1f}".format, "<= 1"))
        table.append(line(kind, "memory, MB", "memory", "{:.0f}".format, "<= 1"))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", nargs="?")
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--size", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments)))
    elif arguments.url:
        report("client (ours / official)", compare(arguments))
    else:
        with tempfile.TemporaryDirectory() as scratch, StandaloneProcess(Path(scratch) / "data") as standalone:
            arguments.url = standalone.service_url
            report("client (ours / official)", compare(arguments))


if __name__ == "__main__":
    main()
