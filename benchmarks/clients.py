# SPDX-License-Identifier: Apache-2.0
"""The same short loads through the official Python client and through ours: what an application gets."""

import asyncio
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pulsar
import uvloop

from magnetar import Client, InitialPosition

IN_FLIGHT = 1_000
# What the first sends cost is not counted.
WARM_UP = 50
PAYLOAD = bytes(1024)
Found = TypeVar("Found")


def run(work: Coroutine[Any, Any, Found]) -> Found:
    """Our client's loop is uvloop, as our server's is."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


@contextmanager
def official(url: str) -> Iterator[pulsar.Client]:
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        yield client
    finally:
        client.close()


def official_publish(url: str, topic: str, messages: int, *, batched: bool) -> float:
    """Messages of 1 KiB a second, from the first call to the last receipt."""
    with official(url) as client:
        producer = client.create_producer(
            topic, batching_enabled=batched, block_if_queue_full=True, max_pending_messages=IN_FLIGHT
        )
        producer.send(PAYLOAD)
        began = time.perf_counter()
        for _ in range(messages):
            producer.send_async(PAYLOAD, None)
        producer.flush()
        return messages / (time.perf_counter() - began)


async def own_publish(url: str, topic: str, messages: int, *, batched: bool) -> float:
    async with Client(url) as client:
        producer = await client.create_producer(
            topic, batching_enabled=batched, block_if_queue_full=True, max_pending_messages=IN_FLIGHT
        )
        await producer.send(PAYLOAD)
        began = time.perf_counter()
        for _ in range(messages):
            await producer.submit(PAYLOAD)
        await producer.flush()
        return messages / (time.perf_counter() - began)


def official_catch_up(url: str, topic: str, messages: int) -> float:
    """Messages a second of a backlog, each acknowledged."""
    with official(url) as client:
        consumer = client.subscribe(topic, "official", initial_position=pulsar.InitialPosition.Earliest)
        began = time.perf_counter()
        for _ in range(messages):
            consumer.acknowledge(consumer.receive(60_000))
        return messages / (time.perf_counter() - began)


async def own_catch_up(url: str, topic: str, messages: int) -> float:
    async with Client(url) as client:
        consumer = await client.subscribe(topic, "own", initial_position=InitialPosition.Earliest)
        began = time.perf_counter()
        for _ in range(messages):
            await consumer.acknowledge(await consumer.receive(60_000))
        return messages / (time.perf_counter() - began)


def official_one_at_a_time(url: str, topic: str, messages: int) -> list[float]:
    """Milliseconds that each send took."""
    with official(url) as client:
        producer = client.create_producer(topic, batching_enabled=False)
        taken = []
        for _ in range(messages + WARM_UP):
            began = time.perf_counter()
            producer.send(PAYLOAD)
            taken.append((time.perf_counter() - began) * 1000)
        return taken[WARM_UP:]


async def own_one_at_a_time(url: str, topic: str, messages: int) -> list[float]:
    async with Client(url) as client:
        producer = await client.create_producer(topic, batching_enabled=False)
        taken = []
        for _ in range(messages + WARM_UP):
            began = time.perf_counter()
            await producer.send(PAYLOAD)
            taken.append((time.perf_counter() - began) * 1000)
        return taken[WARM_UP:]
