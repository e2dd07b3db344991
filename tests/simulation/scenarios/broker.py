# SPDX-License-Identifier: Apache-2.0
"""A whole standalone, unchanged, on a machine that crashes, with the real client on the other side of a bad network.

Producers send, consumers receive and acknowledge with receipts; broker, producers and consumers die and come back, and
connections are cut. With deduplication on, no message may lie there twice. After calm a reader sees every message that
was acknowledged to its sender, and the subscription still owes exactly what nobody acknowledged.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from dataclasses import replace
from typing import Any, TypeVar

from magnetar.client.client import Client
from magnetar.client.consumer import Consumer
from magnetar.client.options import ConsumerType, InitialPosition
from magnetar.config.load import Settings, load_settings
from magnetar.errors import MagnetarError
from magnetar.ids import EARLIEST_MESSAGE
from magnetar.runtime.simulated_faults import Latency
from magnetar.standalone.standalone import Standalone
from tests.simulation.world.checkers.cursors import Acked, cursor
from tests.simulation.world.checkers.messages import (
    Received,
    Sent,
    no_acked_loss,
    no_ghost,
    no_unexplained_copy,
    order,
)
from tests.simulation.world.history import Operation
from tests.simulation.world.node import Node
from tests.simulation.world.planted_bugs import planted
from tests.simulation.world.registry import scenario
from tests.simulation.world.storage_cluster import SMALL_BOOKIE
from tests.simulation.world.world import World

Part = TypeVar("Part")

_URL = "pulsar://broker:6650"
_TOPIC = "persistent://public/default/t"
_SUBSCRIPTION = "s"
_SECONDS = 8.0
_CALM_S = 300.0
_QUIET_MS = 100_000
_SENDS_MAX = 60
# Longer than the cursor's flush interval and a slow sync.
_SAVED_AFTER_S = 5.0


@scenario("broker")
async def broker(world: World) -> None:
    with planted(world.planted):
        await BrokerStory(world).run()


class BrokerStory:
    def __init__(self, world: World) -> None:
        random = world.random
        self.world = world
        self.history = world.history
        self.deduplicates = random.random() < 0.5
        self.consumer_type = random.choice((ConsumerType.Exclusive, ConsumerType.Failover, ConsumerType.Shared))
        self.batches = random.random() < 0.5
        # Where receipts travel for long, some are lost with their broker, and messages are sent again.
        world.network.links.settings.tail_ms = random.choice((0.3, 30.0, 100.0))
        self.machine = world.node("broker")
        faults = self.machine.disk.kernel.faults
        faults.write_latency, faults.sync_latency = Latency(0.05, 0.05), Latency(0.3, 1.0)
        self.producers = [world.node(f"producer-{number}") for number in range(2)]
        shared = self.consumer_type is not ConsumerType.Exclusive
        self.consumers = [world.node(f"consumer-{number}") for number in range(2 if shared else 1)]
        self.stopping = False
        self.sent = 0
        self.stopped: dict[str, asyncio.Event] = {
            node.name: asyncio.Event() for node in (*self.producers, *self.consumers)
        }

    async def run(self) -> None:
        world = self.world
        self.machine.start(self._serve)
        for node in self.producers:
            node.start(self._produce)
        for node in self.consumers:
            node.start(self._consume)
        # The machine that keeps everything is struck as often as all the others together.
        world.nemesis.targets = [*[self.machine] * 4, *self.producers, *self.consumers]
        await world.nemesis.run(_SECONDS)
        world.nemesis.heal()
        self.stopping = True
        async with asyncio.timeout(_CALM_S):
            for stopped in self.stopped.values():
                await stopped.wait()
        await self._look()
        self._check()

    def _check(self) -> None:
        history = self.history
        violations = no_acked_loss(history) + order(history) + no_ghost(history)
        if self.deduplicates:
            violations += no_unexplained_copy(history, deduplicated=True)
        # A copy may wait in a client's queue while the first one is acknowledged: only the drain is proof.
        violations += [
            broken for broken in cursor(history) if all(operation.kind != "receive" for operation in broken.evidence)
        ]
        self.world.check(violations)

    # --- the machine ----------------------------------------------------------------------------------------

    async def _serve(self, node: Node) -> None:
        failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

        def on_failed(error: BaseException) -> None:
            if not failed.done():
                failed.set_result(error)

        standalone = await Standalone.open(
            node.disk,
            self._settings(),
            clock=node.clock,
            random=node.random(f"standalone-{node.lives}"),
            on_failed=on_failed,
        )
        await standalone.start()
        raise await failed

    def _settings(self) -> Settings:
        given = {
            "--port": "6650",
            "--http-port": "0",
            "bindAddress": "0.0.0.0",
            "advertisedAddress": "broker",
            "brokerDeduplicationEnabled": str(self.deduplicates).lower(),
            "defaultRetentionTimeInMinutes": "-1",
            "defaultRetentionSizeInMB": "-1",
            "managedLedgerMaxEntriesPerLedger": "20",
            "managedLedgerMinLedgerRolloverTimeMinutes": "0",
        }
        settings = load_settings((), {}, given)
        small = replace(
            SMALL_BOOKIE,
            journal_directories=settings.bookie.journal_directories,
            ledger_directories=settings.bookie.ledger_directories,
            entry_bytes_max=settings.bookie.entry_bytes_max,
            journal_sync="broker-ack-before-sync" not in self.world.planted,
        )
        return replace(settings, bookie=small)

    # --- clients --------------------------------------------------------------------------------------------

    def client(self, node: Node) -> Client:
        return Client(
            _URL,
            clock=node.clock,
            random=node.random(f"client-{node.lives}"),
            operation_timeout_seconds=10.0,
            connection_timeout_ms=2_000,
            keep_alive_interval_seconds=3.0,
            initial_backoff_ms=50,
            backoff_ms_max=1_000,
        )

    async def _produce(self, node: Node) -> None:
        random, name = node.random(f"sends-{node.lives}"), f"{node.name}/{node.lives}"
        client = self.client(node)
        producer = await until_open(
            lambda: client.create_producer(
                _TOPIC, producer_name=name, send_timeout_millis=0, batching_enabled=self.batches
            )
        )
        waiting: dict[asyncio.Task[None], None] = {}
        sequence = 0
        while not self.stopping:
            if self.sent < _SENDS_MAX and len(waiting) < 5:
                self.sent += 1
                payload = f"{name}:{sequence}"
                operation = self.history.invoke(name, "send", Sent(_TOPIC, name, sequence, payload))
                task = asyncio.get_running_loop().create_task(self._send(producer, operation))
                waiting[task] = None
                task.add_done_callback(lambda done: waiting.pop(done, None))
                sequence += 1
            await asyncio.sleep(0.1 * random.random())
        for task in list(waiting):
            await task
        await client.close()
        self.stopped[node.name].set()
        await asyncio.get_running_loop().create_future()

    async def _send(self, producer: Any, operation: Operation) -> None:
        try:
            message_id = await producer.send(operation.value.payload.encode())
        except MagnetarError as error:
            self.history.info(operation, type(error).__name__)
            return
        # A message that was stored already is acknowledged without saying where.
        self.history.ok(operation, _place(message_id) if message_id.ledger_id >= 0 else None)

    async def _consume(self, node: Node) -> None:
        random, name = node.random(f"acks-{node.lives}"), f"{node.name}/{node.lives}"
        client = self.client(node)
        consumer = await self._subscribe(client)
        seen: set[str] = set()
        while not self.stopping:
            try:
                message = await consumer.receive(timeout_millis=500)
            except MagnetarError:
                continue
            payload, place = message.data().decode(), _place(message.message_id())
            again = payload in seen or self.consumer_type is not ConsumerType.Exclusive
            seen.add(payload)
            receive = self.history.invoke(name, "receive", Received(_TOPIC, _SUBSCRIPTION, place, payload, again))
            self.history.ok(receive)
            if random.random() < 0.7:
                await self._acknowledge(name, consumer, message, place)
        await client.close()
        self.stopped[node.name].set()
        await asyncio.get_running_loop().create_future()

    async def _acknowledge(self, name: str, consumer: Consumer[bytes], message: Any, place: tuple[int, ...]) -> None:
        operation = self.history.invoke(name, "ack", Acked(_TOPIC, _SUBSCRIPTION, place))
        # From now on: the answer may arrive when the broker that gave it is dead already.
        before = self._hindrances()
        try:
            await consumer.acknowledge(message)
        except MagnetarError as error:
            self.history.info(operation, type(error).__name__)
            return

        def settle() -> None:
            if self._hindrances() == before and self.machine.is_running() and not self.machine.is_paused():
                self.history.ok(operation)
            else:
                self.history.info(operation, "taken, perhaps not saved")

        # The answer says that it was taken. It is saved soon after, and from then on it must survive.
        self.world.loop.call_later(_SAVED_AFTER_S, settle, context=Context())

    def _hindrances(self) -> list[int]:
        """What keeps a machine from saving in time: its deaths, and the faults that make it stand still."""
        return [self.machine.lives, *(self.world.faults[kind] for kind in ("pause", "full-disk", "slow-disk"))]

    async def _subscribe(self, client: Client) -> Consumer[bytes]:
        return await until_open(
            lambda: client.subscribe(
                _TOPIC,
                _SUBSCRIPTION,
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
            await self._scan(client)
            await self._drain(client)
            await client.close()
            done.set()
            await asyncio.get_running_loop().create_future()

        self.world.node("onlooker").start(look)
        async with asyncio.timeout(_CALM_S):
            await done.wait()

    async def _scan(self, client: Client) -> None:
        scan = self.history.invoke("onlooker", "scan", _TOPIC)
        reader = await until_open(lambda: client.create_reader(_TOPIC, EARLIEST_MESSAGE))
        found = []
        while await reader.has_message_available():
            message = await reader.read_next()
            found.append((_place(message.message_id()), message.data().decode()))
        await reader.close()
        self.history.ok(scan, found)

    async def _drain(self, client: Client) -> None:
        drain = self.history.invoke("onlooker", "drain", (_TOPIC, _SUBSCRIPTION))
        consumer = await self._subscribe(client)
        owed = []
        while True:
            try:
                message = await consumer.receive(timeout_millis=_QUIET_MS)
            except MagnetarError:
                break
            owed.append(_place(message.message_id()))
        self.history.ok(drain, owed)


async def until_open(make: Callable[[], Awaitable[Part]]) -> Part:
    """A client gives up after its operation timeout; a service tries again."""
    while True:
        try:
            return await make()
        except MagnetarError:
            await asyncio.sleep(0.2)


def _place(message_id: Any) -> tuple[int, ...]:
    return (message_id.ledger_id, message_id.entry_id, message_id.batch_index)
