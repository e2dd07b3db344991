# SPDX-License-Identifier: Apache-2.0
"""A whole standalone, unchanged, on a machine that crashes, with the real client on the other side of a bad network.

Producers send all through the storm, consumers of one to four subscription types receive and acknowledge with receipts;
broker, producers and consumers die and come back, and connections are cut. With deduplication on, no message may lie
there twice. After calm, and most often one more death of the broker, a reader sees every message that was acknowledged
to its sender, and each subscription still owes exactly what nobody acknowledged, which is what the broker counts.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import replace

from magnetar.admin.backlog import backlog_messages
from magnetar.config.load import Settings, load_settings
from magnetar.names import TopicName
from magnetar.runtime.chance import stream
from magnetar.runtime.simulated_faults import Latency
from magnetar.standalone.standalone import Standalone
from tests.simulation.world.messaging import SAVED_AFTER_S, Messaging
from tests.simulation.world.node import Node
from tests.simulation.world.planted_bugs import planted
from tests.simulation.world.registry import scenario
from tests.simulation.world.storage_cluster import SMALL_BOOKIE
from tests.simulation.world.witnessed_cursors import witnessed_cursors
from tests.simulation.world.world import World

_TOPIC = "persistent://public/default/t"
_SECONDS = 8.0
_SENDS_MAX = 120
# Messages come all through the storm.
_PAUSE_S = 0.25
_AUDIENCES_MAX = 4
_COUNTED_MAX = 10_000


@scenario("broker")
async def broker(world: World) -> None:
    story = BrokerStory(world)
    messaging = story.messaging
    with planted(world.planted), witnessed_cursors(world.history, messaging.topics, messaging.subscriptions):
        await story.run()


class BrokerStory:
    def __init__(self, world: World) -> None:
        self.world = world
        self.machine = world.node("broker")
        self.messaging = Messaging(
            world,
            "pulsar://broker:6650",
            [_TOPIC],
            sends_max=_SENDS_MAX,
            pause_s=_PAUSE_S,
            audiences_max=_AUDIENCES_MAX,
        )
        self.messaging.undisturbed = self._undisturbed
        self.messaging.backlog = self._backlog
        # The one that serves, and what makes a task one of its process.
        self.serving: tuple[Standalone, Context] | None = None
        faults = self.machine.disk.kernel.faults
        faults.write_latency, faults.sync_latency = Latency(0.05, 0.05), Latency(0.3, 1.0)

    async def run(self) -> None:
        world, messaging = self.world, self.messaging
        self.machine.start(self._serve)
        messaging.start()
        # The machine that keeps everything is struck as often as all the others together.
        world.nemesis.targets = [*[self.machine] * 4, *messaging.producers, *messaging.consumers]
        await world.nemesis.run(_SECONDS)
        world.nemesis.heal()
        await messaging.stop()
        await self._end(stream(world.seed, "end").choice((None, self.machine.kill, self.machine.lose_power)))
        await messaging.look()
        world.check(messaging.violations())

    async def _end(self, die: Callable[[], None] | None) -> None:
        """In most stories the machine dies once more, when all that was acknowledged must be saved."""
        if die is not None:
            await asyncio.sleep(2 * SAVED_AFTER_S)
            die()
            self.machine.come_back()

    def _undisturbed(self) -> object:
        """What keeps a machine from saving in time: its deaths, and the faults that make it stand still."""
        if not self.machine.is_running() or self.machine.is_paused():
            return None
        return [self.machine.lives, *(self.world.faults[kind] for kind in ("pause", "full-disk", "slow-disk"))]

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
        self.serving = standalone, copy_context()
        raise await failed

    async def _backlog(self, topic: str, subscription: str) -> int:
        """As the admin interface counts it; asked by a task of the broker's own process."""
        assert self.serving is not None
        standalone, context = self.serving
        counted: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

        async def count() -> None:
            loaded = await standalone.broker.topics.load(TopicName.parse(topic), create=False)
            counted.set_result(await backlog_messages(loaded.subscriptions[subscription], _COUNTED_MAX))

        self.world.loop.create_task(count(), context=context)
        messages = await counted
        assert messages is not None, "not counted"
        return messages

    def _settings(self) -> Settings:
        given = {
            "--port": "6650",
            "--http-port": "0",
            "bindAddress": "0.0.0.0",
            "advertisedAddress": "broker",
            "brokerDeduplicationEnabled": str(self.messaging.deduplicates).lower(),
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
