# SPDX-License-Identifier: Apache-2.0
"""Our client beside the official one, against the same broker in the same run: messages a second, and memory.

    python -m benchmarks.client pulsar://127.0.0.1:6650 [--messages N] [--size BYTES]

Each measurement runs in a process of its own, so that memory and warm-up are its own. Both clients keep the same number
of messages in flight, and both acknowledge every message that they receive.
"""

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import threading
import time

import pulsar
import uvloop

from magnetar import Client, InitialPosition

IN_FLIGHT = 1_000


async def ours(url: str, topic: str, batched: bool, messages: int, size: int) -> dict[str, float]:
    payload = bytes(size)
    async with Client(url) as client:
        producer = await client.create_producer(
            topic, batching_enabled=batched, block_if_queue_full=True, max_pending_messages=IN_FLIGHT
        )
        consumer = await client.subscribe(topic, "ours", initial_position=InitialPosition.Earliest)
        began = time.perf_counter()
        for _ in range(messages):
            await producer.submit(payload)
        await producer.flush()
        sent_s = time.perf_counter() - began
        began = time.perf_counter()
        for _ in range(messages):
            await consumer.acknowledge(await consumer.receive())
        return {"send": messages / sent_s, "receive": messages / (time.perf_counter() - began)}


def official(url: str, topic: str, batched: bool, messages: int, size: int) -> dict[str, float]:
    payload = bytes(size)
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(
        topic, batching_enabled=batched, block_if_queue_full=True, max_pending_messages=IN_FLIGHT
    )
    consumer = client.subscribe(topic, "official", initial_position=pulsar.InitialPosition.Earliest)
    left = [messages]
    done = threading.Event()

    def on_sent(result: pulsar.Result, message_id: pulsar.MessageId) -> None:
        left[0] -= 1
        if not left[0]:
            done.set()

    began = time.perf_counter()
    for _ in range(messages):
        producer.send_async(payload, on_sent)
    producer.flush()
    done.wait()
    sent_s = time.perf_counter() - began
    began = time.perf_counter()
    for _ in range(messages):
        consumer.acknowledge(consumer.receive())
    rates = {"send": messages / sent_s, "receive": messages / (time.perf_counter() - began)}
    client.close()
    return rates


def measure(arguments: argparse.Namespace) -> dict[str, float]:
    """In a process of its own."""
    topic = f"persistent://public/default/bench-{arguments.one}-{time.time_ns()}"
    batched = arguments.one.endswith("batched") and not arguments.one.endswith("unbatched")
    given = (arguments.url, topic, batched, arguments.messages, arguments.size)
    if arguments.one.startswith("ours"):
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            rates = runner.run(ours(*given))
    else:
        rates = official(*given)
    rates["memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--size", type=int, default=1_000)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments)))
        return
    print(f"{'':22}{'send/s':>10}{'receive/s':>12}{'memory MB':>12}")
    for name in ("ours-unbatched", "official-unbatched", "ours-batched", "official-batched"):
        command = [sys.executable, "-m", "benchmarks.client", arguments.url, "--one", name]
        command += ["--messages", str(arguments.messages), "--size", str(arguments.size)]
        answer = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1])
        print(f"{name:22}{answer['send']:>10,.0f}{answer['receive']:>12,.0f}{answer['memory_mb']:>12,.0f}")


if __name__ == "__main__":
    main()
