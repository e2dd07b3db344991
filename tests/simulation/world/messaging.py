# SPDX-License-Identifier: Apache-2.0
"""Producers, consumers and an onlooker: the real client on machines of their own, and a history of what they were told.

Producers send all through the storm; consumers receive and acknowledge, refuse, or do neither, until they are stopped.
Every topic has the same subscriptions, of drawn types. After calm the onlooker reads every topic from its beginning and
takes what its subscriptions still owe. Whether an acknowledgement must have been saved is the scenario's to say: it
knows what kept the broker from it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from functools import partial
from random import Random
from typing import Any, NamedTuple, TypeVar

from magnetar.client.client import Client
from magnetar.client.consumer import Consumer
from magnetar.client.message import Message
from magnetar.client.options import BatchingType, ConsumerType, InitialPosition
from magnetar.errors import MagnetarError
from magnetar.ids import EARLIEST_MESSAGE, MessageId
from tests.simulation.world.checkers.cursors import Acked, cursor
from tests.simulation.world.checkers.messages import (
    Received,
    Sent,
    no_acked_loss,
    no_ghost,
    no_unexplained_copy,
    order,
)
from tests.simulation.world.checkers.saved_cursors import saved_cursors, saved_when_asked
from tests.simulation.world.checkers.violation import Violation
from tests.simulation.world.history import Operation
from tests.simulation.world.node import Node
from tests.simulation.world.world import World

Part = TypeVar("Part")

_CALM_S = 300.0
_QUIET_MS = 100_000
# Longer than the cursor's flush interval and a slow sync.
SAVED_AFTER_S = 5.0
_NACK_DELAY_MS = 500
_KEYS = 4
_BURST_MAX = 4
_ORDERED = (ConsumerType.Exclusive, ConsumerType.Failover)


class Audience(NamedTuple):
    """A subscription that every topic has."""

    type: ConsumerType
    # Cumulatively now and then, where messages come in order.
    acks_runs: bool
    nacks: bool

    @property
    def subscription(self) -> str:
        return self.type.name

    def lane(self, key: str) -> str | None:
        """What a message comes in order with."""
        if self.type in _ORDERED:
            return ""
        return key if self.type is ConsumerType.KeyShared else None


class Messaging:
    def __init__(
        self, world: World, url: str, topics: list[str], *, sends_max: int, pause_s: float, audiences_max: int = 1
    ) -> None:
        """`pause_s` is the longest pause of a producer between two messages, or two bursts of them."""
        random = world.random
        self.world = world
        self.history = world.history
        self.topics = topics
        self._url = url
        self._sends_max = world.at_most("messages", sends_max)
        self._pause_s = pause_s
        self.deduplicates = random.random() < 0.5
        types = random.sample(list(ConsumerType), random.randint(1, audiences_max))
        audiences = [Audience(type_, random.random() < 0.3, random.random() < 0.5) for type_ in types]
        self.audiences = audiences[: world.at_most("subscriptions", len(audiences))]
        self.batches = random.random() < 0.5
        # Where receipts travel for long, some are lost with their broker, and messages are sent again.
        world.network.links.settings.tail_ms = random.choice((0.3, 30.0, 100.0))
        self.producers = [world.node(f"producer-{number}") for number in range(max(2, len(topics)))]
        self._roles = [
            (topic, audience)
            for audience in self.audiences
            for topic in topics
            for _ in range(1 if audience.type is ConsumerType.Exclusive else 2)
        ]
        self.consumers = [world.node(f"consumer-{number}") for number in range(len(self._roles))]
        # Stays the same while nothing keeps brokers from saving what was acknowledged; None while something does.
        self.undisturbed: Callable[[], object] = lambda: None
        # How many messages a broker says that a subscription owes, where the scenario can ask one.
        self.backlog: Callable[[str, str], Awaitable[int]] | None = None
        self.stopping = False
        self.sent = 0
        self._stopped: dict[str, asyncio.Event] = {
            node.name: asyncio.Event() for node in (*self.producers, *self.consumers)
        }

    def start(self) -> None:
        for number, node in enumerate(self.producers):
            node.start(partial(self._produce, self.topics[number % len(self.topics)]))
        for node, (topic, audience) in zip(self.consumers, self._roles, strict=True):
            node.start(partial(self._consume, topic, audience))

    async def stop(self) -> None:
        """Let everyone come to an end."""
        self.stopping = True
        try:
            async with asyncio.timeout(_CALM_S):
                for stopped in self._stopped.values():
                    await stopped.wait()
        except TimeoutError:
            stuck = [name for name, stopped in self._stopped.items() if not stopped.is_set()]
            self.world.check([Violation("I13 live", f"{', '.join(stuck)} did not come to an end after calm")])

    def violations(self) -> list[Violation]:
        history = self.history
        violations = no_acked_loss(history) + order(history) + no_ghost(history)
        violations += saved_cursors(history) + saved_when_asked(history)
        if self.deduplicates:
            violations += no_unexplained_copy(history, deduplicated=True)
        # A copy may wait in a client's queue while the first one is acknowledged: only the drain is proof.
        return violations + [
            broken for broken in cursor(history) if all(operation.kind != "receive" for operation in broken.evidence)
        ]

    def client(self, node: Node) -> Client:
        return new_client(self._url, node)

    @property
    def subscriptions(self) -> list[str]:
        return [audience.subscription for audience in self.audiences]

    async def _produce(self, topic: str, node: Node) -> None:
        random, name = node.random(f"sends-{node.lives}"), f"{node.name}/{node.lives}"
        client = self.client(node)
        producer = await until_open(
            lambda: client.create_producer(
                topic,
                producer_name=name,
                send_timeout_millis=0,
                batching_enabled=self.batches,
                batching_type=BatchingType.KeyBased,
            )
        )
        waiting: dict[asyncio.Task[None], None] = {}
        sequence = 0
        while not self.stopping:
            burst = random.randint(1, _BURST_MAX) if self.batches else 1
            while burst and self.sent < self._sends_max and len(waiting) < 5:
                burst -= 1
                self.sent += 1
                payload, key = f"{name}:{sequence}", self._key(node, random)
                operation = self.history.invoke(name, "send", Sent(topic, name, sequence, payload))
                # In order: tasks that send would each begin when they are let.
                receipt = await producer.submit(payload.encode(), partition_key=key)
                task = asyncio.get_running_loop().create_task(self._settle(receipt, operation))
                waiting[task] = None
                task.add_done_callback(lambda done: waiting.pop(done, None))
                sequence += 1
            await asyncio.sleep(self._pause_s * random.random())
        for task in list(waiting):
            await task
        await client.close()
        self._stopped[node.name].set()
        await asyncio.get_running_loop().create_future()

    def _key(self, node: Node, random: Random) -> str:
        """A batch has one key. Batches of several keys overtake one another, so who sends batches has one."""
        return node.name if self.batches else f"key-{random.randrange(_KEYS)}"

    async def _settle(self, receipt: Awaitable[MessageId], operation: Operation) -> None:
        try:
            message_id = await receipt
        except MagnetarError as error:
            self.history.info(operation, type(error).__name__)
            return
        # A message that was stored already is acknowledged without saying where.
        self.history.ok(operation, _place(message_id) if message_id.ledger_id >= 0 else None)

    async def _consume(self, topic: str, audience: Audience, node: Node) -> None:
        random, name = node.random(f"acks-{node.lives}"), f"{node.name}/{node.lives}"
        client = self.client(node)
        consumer = await self._subscribe(client, topic, audience)
        subscription = audience.subscription
        seen: set[str] = set()
        while not self.stopping:
            try:
                message = await consumer.receive(timeout_millis=500)
            except MagnetarError:
                continue
            payload, place = message.data().decode(), _place(message.message_id())
            again = payload in seen or audience.type is not ConsumerType.Exclusive
            seen.add(payload)
            lane = audience.lane(message.partition_key())
            receive = self.history.invoke(name, "receive", Received(topic, subscription, place, payload, again, lane))
            self.history.ok(receive)
            choice = random.random()
            if choice < 0.7:
                in_runs = audience.acks_runs and audience.type in _ORDERED and choice < 0.2
                await self._acknowledge(name, consumer, message, Acked(topic, subscription, place, in_runs))
            elif choice < 0.85 and audience.nacks:
                consumer.negative_acknowledge(message)
        await client.close()
        self._stopped[node.name].set()
        await asyncio.get_running_loop().create_future()

    async def _acknowledge(self, name: str, consumer: Consumer[bytes], message: Message[bytes], acked: Acked) -> None:
        operation = self.history.invoke(name, "ack", acked)
        # From now on: the answer may arrive when the broker that gave it is dead already.
        before = self.undisturbed()
        try:
            if acked.cumulative:
                await consumer.acknowledge_cumulative(message)
            else:
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
        self.world.loop.call_later(SAVED_AFTER_S, settle, context=Context())

    async def _subscribe(self, client: Client, topic: str, audience: Audience) -> Consumer[bytes]:
        return await until_open(
            lambda: client.subscribe(
                topic,
                audience.subscription,
                consumer_type=audience.type,
                initial_position=InitialPosition.Earliest,
                ack_receipt_enabled=True,
                batch_index_ack_enabled=True,
                negative_ack_redelivery_delay_ms=_NACK_DELAY_MS,
                receiver_queue_size=10,
            )
        )

    # --- after calm -----------------------------------------------------------------------------------------

    async def look(self) -> None:
        """What is there, and what each subscription owes."""
        done = asyncio.Event()

        async def look(node: Node) -> None:
            client = self.client(node)
            for topic in self.topics:
                await self._scan(client, topic)
            owing = [(topic, audience) for topic in self.topics for audience in self.audiences]
            for topic, audience in owing:
                await self._count(topic, audience.subscription)
            await asyncio.gather(*(self._drain(client, topic, audience) for topic, audience in owing))
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

    async def _count(self, topic: str, subscription: str) -> None:
        if self.backlog is not None:
            count = self.history.invoke("onlooker", "backlog", (topic, subscription))
            self.history.ok(count, await self.backlog(topic, subscription))

    async def _drain(self, client: Client, topic: str, audience: Audience) -> None:
        drain = self.history.invoke("onlooker", "drain", (topic, audience.subscription))
        consumer = await self._subscribe(client, topic, audience)
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
