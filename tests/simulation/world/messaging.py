# SPDX-License-Identifier: Apache-2.0
"""Producers, consumers and an onlooker: the real client on machines of their own, and a history of what they were told.

Producers send and consumers receive and acknowledge until they are stopped; after calm the onlooker reads every topic
from its beginning and takes what its subscription still owes. Whether an acknowledgement must have been saved is the
scenario's to say: it knows what kept the broker from it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Any, TypeVar

from magnetar.client.client import Client
from magnetar.client.consumer import Consumer
from magnetar.client.options import ConsumerType, InitialPosition
from magnetar.errors import MagnetarError
from magnetar.ids import EARLIEST_MESSAGE
from tests.simulation.world.checkers.cursors import Acked, cursor
from tests.simulation.world.checkers.messages import (
    Received,
    Sent,
    no_acked_loss,
    no_ghost,
    no_unexplained_copy,
    order,
)
from tests.simulation.world.checkers.violation import Violation
from tests.simulation.world.history import Operation
from tests.simulation.world.node import Node
from tests.simulation.world.world import World

Part = TypeVar("Part")

SUBSCRIPTION = "s"
_CALM_S = 300.0
_QUIET_MS = 100_000
# Longer than the cursor's flush interval and a slow sync.
_SAVED_AFTER_S = 5.0


class Messaging:
    def __init__(self, world: World, url: str, topics: list[str], *, sends_max: int, pause_s: float = 0.1) -> None:
        """`pause_s` is the longest pause of a producer between two messages."""
        random = world.random
        self.world = world
        self.history = world.history
        self.topics = topics
        self._url = url
        self._sends_max = sends_max
        self._pause_s = pause_s
        self.deduplicates = random.random() < 0.5
        self.consumer_type = random.choice((ConsumerType.Exclusive, ConsumerType.Failover, ConsumerType.Shared))
        self.batches = random.random() < 0.5
        # Where receipts travel for long, some are lost with their broker, and messages are sent again.
        world.network.links.settings.tail_ms = random.choice((0.3, 30.0, 100.0))
        self.producers = [world.node(f"producer-{number}") for number in range(max(2, len(topics)))]
        per_topic = 2 if self.consumer_type is not ConsumerType.Exclusive else 1
        self.consumers = [world.node(f"consumer-{number}") for number in range(per_topic * len(topics))]
        # Stays the same while nothing keeps brokers from saving what was acknowledged; None while something does.
        self.undisturbed: Callable[[], object] = lambda: None
        self.stopping = False
        self.sent = 0
        self._stopped: dict[str, asyncio.Event] = {
            node.name: asyncio.Event() for node in (*self.producers, *self.consumers)
        }

    def start(self) -> None:
        for number, node in enumerate(self.producers):
            node.start(self._on(self.topics[number % len(self.topics)], self._produce))
        for number, node in enumerate(self.consumers):
            node.start(self._on(self.topics[number % len(self.topics)], self._consume))

    async def stop(self) -> None:
        """Let everyone come to an end, and look at what is there."""
        self.stopping = True
        try:
            async with asyncio.timeout(_CALM_S):
                for stopped in self._stopped.values():
                    await stopped.wait()
        except TimeoutError:
            stuck = [name for name, stopped in self._stopped.items() if not stopped.is_set()]
            self.world.check([Violation("I13 live", f"{', '.join(stuck)} did not come to an end after calm")])
        await self._look()

    def violations(self) -> list[Violation]:
        history = self.history
        violations = no_acked_loss(history) + order(history) + no_ghost(history)
        if self.deduplicates:
            violations += no_unexplained_copy(history, deduplicated=True)
        # A copy may wait in a client's queue while the first one is acknowledged: only the drain is proof.
        return violations + [
            broken for broken in cursor(history) if all(operation.kind != "receive" for operation in broken.evidence)
        ]

    def client(self, node: Node) -> Client:
        return new_client(self._url, node)

    @staticmethod
    def _on(topic: str, work: Callable[[Node, str], Awaitable[None]]) -> Callable[[Node], Any]:
        async def main(node: Node) -> None:
            await work(node, topic)

        return main

    async def _produce(self, node: Node, topic: str) -> None:
        random, name = node.random(f"sends-{node.lives}"), f"{node.name}/{node.lives}"
        client = self.client(node)
        producer = await until_open(
            lambda: client.create_producer(
                topic, producer_name=name, send_timeout_millis=0, batching_enabled=self.batches
            )
        )
        waiting: dict[asyncio.Task[None], None] = {}
        sequence = 0
        while not self.stopping:
            if self.sent < self._sends_max and len(waiting) < 5:
                self.sent += 1
                payload = f"{name}:{sequence}"
                operation = self.history.invoke(name, "send", Sent(topic, name, sequence, payload))
                task = asyncio.get_running_loop().create_task(self._send(producer, operation))
                waiting[task] = None
                task.add_done_callback(lambda done: waiting.pop(done, None))
                sequence += 1
            await asyncio.sleep(self._pause_s * random.random())
        for task in list(waiting):
            await task
        await client.close()
        self._stopped[node.name].set()
        await asyncio.get_running_loop().create_future()

    async def _send(self, producer: Any, operation: Operation) -> None:
        try:
            message_id = await producer.send(operation.value.payload.encode())
        except MagnetarError as error:
            self.history.info(operation, type(error).__name__)
            return
        # A message that was stored already is acknowledged without saying where.
        self.history.ok(operation, _place(message_id) if message_id.ledger_id >= 0 else None)

    async def _consume(self, node: Node, topic: str) -> None:
        random, name = node.random(f"acks-{node.lives}"), f"{node.name}/{node.lives}"
        client = self.client(node)
        consumer = await self._subscribe(client, topic)
        seen: set[str] = set()
        while not self.stopping:
            try:
                message = await consumer.receive(timeout_millis=500)
            except MagnetarError:
                continue
            payload, place = message.data().decode(), _place(message.message_id())
            again = payload in seen or self.consumer_type is not ConsumerType.Exclusive
            seen.add(payload)
            receive = self.history.invoke(name, "receive", Received(topic, SUBSCRIPTION, place, payload, again))
            self.history.ok(receive)
            if random.random() < 0.7:
                await self._acknowledge(name, consumer, message, Acked(topic, SUBSCRIPTION, place))
        await client.close()
        self._stopped[node.name].set()
        await asyncio.get_running_loop().create_future()

    async def _acknowledge(self, name: str, consumer: Consumer[bytes], message: Any, acked: Acked) -> None:
        operation = self.history.invoke(name, "ack", acked)
        # From now on: the answer may arrive when the broker that gave it is dead already.
        before = self.undisturbed()
        try:
            await consumer.acknowledge(message)
        except MagnetarError as error:
            self.history.info(operation, type(error).__name__)
            return

        def settle() -> None:
            if before is not None and self.undisturbed() == before:
                self.history.ok(operation)
            else:
                self.history.info(operation, "taken, perhaps not saved")

        # The answer says that it was taken. It is saved soon after, and from then on it must survive.
        self.world.loop.call_later(_SAVED_AFTER_S, settle, context=Context())

    async def _subscribe(self, client: Client, topic: str) -> Consumer[bytes]:
        return await until_open(
            lambda: client.subscribe(
                topic,
                SUBSCRIPTION,
                consumer_type=self.consumer_type,
                initial_position=InitialPosition.Earliest,
                ack_receipt_enabled=True,
                batch_index_ack_enabled=True,
                receiver_queue_size=10,
            )
        )

    # --- after calm -----------------------------------------------------------------------------------------

    async def _look(self) -> None:
        done = asyncio.Event()

        async def look(node: Node) -> None:
            client = self.client(node)
            for topic in self.topics:
                await self._scan(client, topic)
            await asyncio.gather(*(self._drain(client, topic) for topic in self.topics))
            await client.close()
            done.set()
            await asyncio.get_running_loop().create_future()

        self.world.node("onlooker").start(look)
        async with asyncio.timeout(_CALM_S):
            await done.wait()

    async def _scan(self, client: Client, topic: str) -> None:
        scan = self.history.invoke("onlooker", "scan", topic)
        reader = await until_open(lambda: client.create_reader(topic, EARLIEST_MESSAGE))
        found = []
        while await reader.has_message_available():
            message = await reader.read_next()
            found.append((_place(message.message_id()), message.data().decode()))
        await reader.close()
        self.history.ok(scan, found)

    async def _drain(self, client: Client, topic: str) -> None:
        drain = self.history.invoke("onlooker", "drain", (topic, SUBSCRIPTION))
        consumer = await self._subscribe(client, topic)
        owed = []
        while True:
            try:
                message = await consumer.receive(timeout_millis=_QUIET_MS)
            except MagnetarError:
                break
            owed.append(_place(message.message_id()))
        self.history.ok(drain, owed)


def new_client(url: str, node: Node) -> Client:
    """The client of a node's present life; it is less patient than people let it be."""
    return Client(
        url,
        clock=node.clock,
        random=node.random(f"client-{node.lives}"),
        operation_timeout_seconds=10.0,
        connection_timeout_ms=2_000,
        keep_alive_interval_seconds=3.0,
        initial_backoff_ms=50,
        backoff_ms_max=1_000,
    )


async def until_open(make: Callable[[], Awaitable[Part]]) -> Part:
    """A client gives up after its operation timeout; a service tries again."""
    while True:
        try:
            return await make()
        except MagnetarError:
            await asyncio.sleep(0.2)


def _place(message_id: Any) -> tuple[int, ...]:
    return (message_id.ledger_id, message_id.entry_id, message_id.batch_index)
