# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks.perf --client official|own`: one loop, through the official Python client or through ours.

Messages carry when they were due, so that a consumer in the same process knows how late each is.
"""

import asyncio
import selectors
import struct
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Protocol

import pulsar
import uvloop

from benchmarks import clients
from benchmarks.perf_work import Meter, Report, Work
from benchmarks.raw_paced import DRAIN_LIMIT_S
from magnetar import Client, ConsumerType, InitialPosition
from magnetar.cli.pace import Pace

TURN = 64
PAUSE_S = 0.01
BATCH_BYTES_MAX = 4 * 2**20
_DUE = struct.Struct(">d")

# Told of each message that came, which is acknowledged already.
OnMessage = Callable[[Any], None]
# Told of each receipt: whether it is one.
OnReceipt = Callable[[bool], None]


class Side(Protocol):
    """What the loop needs of a client."""

    async def open(self, work: Work, stack: AsyncExitStack) -> None: ...

    async def consume(self, on_message: OnMessage) -> None: ...

    async def produce(self) -> None: ...

    async def send(self, number: int, payload: bytes, on_receipt: OnReceipt) -> None: ...

    async def flush(self) -> None: ...


def _producer_options(work: Work) -> dict[str, Any]:
    return {
        "block_if_queue_full": True,
        "max_pending_messages": work.outstanding,
        "send_timeout_millis": 0,
        "batching_enabled": work.batch > 1,
        "batching_max_messages": max(2, work.batch),
        "batching_max_allowed_size_in_bytes": BATCH_BYTES_MAX,
        "batching_max_publish_delay_ms": max(1, round(work.batch_ms)),
    }


class Official:
    """Receipts and messages are told in the client's own threads."""

    async def open(self, work: Work, stack: AsyncExitStack) -> None:
        self._work = work
        self._client = stack.enter_context(clients.official(work.service_url))

    async def consume(self, on_message: OnMessage) -> None:
        def listener(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
            consumer.acknowledge(message)
            on_message(message)

        work, start = self._work, pulsar.InitialPosition
        for topic in work.topics * work.consumers:
            self._client.subscribe(
                topic,
                work.subscription,
                consumer_type=getattr(pulsar.ConsumerType, work.kind.replace("_", "")),
                initial_position=start.Earliest if work.earliest else start.Latest,
                receiver_queue_size=work.queue,
                message_listener=listener,
            )

    async def produce(self) -> None:
        options = _producer_options(self._work)
        topics = self._work.topics * self._work.producers
        self._producers = [self._client.create_producer(topic, **options) for topic in topics]

    async def send(self, number: int, payload: bytes, on_receipt: OnReceipt) -> None:
        def told(result: pulsar.Result, message_id: pulsar.MessageId) -> None:
            on_receipt(result == pulsar.Result.Ok)

        self._producers[number % len(self._producers)].send_async(payload, told)

    async def flush(self) -> None:
        for producer in self._producers:
            producer.flush()


class Own:
    async def open(self, work: Work, stack: AsyncExitStack) -> None:
        self._work = work
        client = Client(work.service_url, connections_per_broker=work.connections)
        self._client = await stack.enter_async_context(client)

    async def consume(self, on_message: OnMessage) -> None:
        async def listener(consumer: Any, message: Any) -> None:
            await consumer.acknowledge(message)
            on_message(message)

        work = self._work
        for topic in work.topics * work.consumers:
            await self._client.subscribe(
                topic,
                work.subscription,
                consumer_type=ConsumerType[work.kind.replace("_", "")],
                initial_position=InitialPosition.Earliest if work.earliest else InitialPosition.Latest,
                receiver_queue_size=work.queue,
                message_listener=listener,
            )

    async def produce(self) -> None:
        options = _producer_options(self._work)
        topics = self._work.topics * self._work.producers
        self._producers = [await self._client.create_producer(topic, **options) for topic in topics]

    async def send(self, number: int, payload: bytes, on_receipt: OnReceipt) -> None:
        receipt = await self._producers[number % len(self._producers)].submit(payload)
        receipt.add_done_callback(lambda told: on_receipt(told.exception() is None))

    async def flush(self) -> None:
        for producer in self._producers:
            await producer.flush()


SIDES: dict[str, Callable[[], Side]] = {"official": Official, "own": Own}


def _run(work: Work, report: Report, load: Callable[[Side], Awaitable[None]], side: Side) -> None:
    async def opened() -> None:
        async with AsyncExitStack() as stack:
            await side.open(work, stack)
            # Before the client is closed: what it gives up then did not fail.
            stack.callback(report.end)
            await load(side)

    # The pauses of other loops are whole milliseconds, in which a schedule would oversleep.
    paced = lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())  # noqa: E731
    with asyncio.Runner(loop_factory=paced if work.rate else uvloop.new_event_loop) as runner:
        runner.run(opened())


def publish(work: Work, report: Report, side: Side, *, consumed: bool = False) -> None:
    _run(work, report, partial(_publish, work, report, consumed), side)


def consume(work: Work, report: Report, side: Side) -> None:
    _run(work, report, partial(_consume, work, report), side)


async def _publish(work: Work, report: Report, consumed: bool, side: Side) -> None:
    sent, received = Meter("published", work.size), Meter("end to end", work.size)

    def on_message(message: Any) -> None:
        (due_s,) = _DUE.unpack_from(message.data())
        received.latencies_ms.append((time.perf_counter() - due_s) * 1000)

    def on_receipt(due_s: float, is_one: bool) -> None:
        if is_one:
            sent.latencies_ms.append((time.perf_counter() - due_s) * 1000)
        elif not report.ended:
            report.failures += 1

    if consumed:
        await side.consume(on_message)
    await side.produce()
    report.begin(*([sent, received] if consumed else [sent]))
    pace = Pace(work.rate, time.perf_counter())
    rest = b"x" * max(0, work.size - _DUE.size)
    number, wanted = 0, work.wanted
    while number < wanted and not (number % TURN == 0 and report.is_over()):
        due_s = pace.next_due_s(time.perf_counter())
        while (wait_s := due_s - time.perf_counter()) > 0:
            await asyncio.sleep(min(wait_s, PAUSE_S))
            report.is_over()
        await side.send(number, (_DUE.pack(due_s) + rest)[: work.size], partial(on_receipt, due_s))
        number += 1
        if number % TURN == 0:
            await asyncio.sleep(0)
    await side.flush()
    until = time.perf_counter() + DRAIN_LIMIT_S
    while sent.messages + report.failures < number or (consumed and received.messages < number):
        if time.perf_counter() > until:
            raise TimeoutError(f"{sent.messages} of {number} messages were answered, {received.messages} came")
        await asyncio.sleep(PAUSE_S)
        report.is_over()


async def _consume(work: Work, report: Report, side: Side) -> None:
    received = Meter("received", work.size)

    def on_message(message: Any) -> None:
        received.latencies_ms.append(time.time() * 1000 - message.publish_timestamp())

    report.begin(received)
    await side.consume(on_message)
    while True:
        if report.is_over() or received.messages >= work.wanted:
            return
        await asyncio.sleep(PAUSE_S)
