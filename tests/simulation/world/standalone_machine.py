# SPDX-License-Identifier: Apache-2.0
"""A machine on which a whole standalone runs, unchanged, and is started again when it has ended.

Its limits are small, so that ledgers roll within a story; nothing that was acknowledged is trimmed.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context, copy_context
from dataclasses import replace
from typing import Any

from magnetar.config.load import Settings, load_settings
from magnetar.runtime.chance import stream
from magnetar.runtime.simulated_faults import Latency
from magnetar.standalone.standalone import Standalone
from tests.simulation.world.messaging import SAVED_AFTER_S
from tests.simulation.world.node import Node
from tests.simulation.world.storage_cluster import SMALL_BOOKIE
from tests.simulation.world.world import World

URL = "pulsar://broker:6650"


class StandaloneMachine:
    def __init__(self, world: World, given: Mapping[str, str]) -> None:
        self.world = world
        self.node = world.node("broker")
        self._given = given
        # The one that serves, and what makes a task one of its process.
        self.serving: tuple[Standalone, Context] | None = None
        faults = self.node.disk.kernel.faults
        faults.write_latency, faults.sync_latency = Latency(0.05, 0.05), Latency(0.3, 1.0)

    def start(self) -> None:
        self.node.start(self._serve)

    def order(self, work: Callable[[Standalone], Coroutine[Any, Any, None]]) -> None:
        """Have the standalone do something, in a task of its own process, which may die over it."""
        if self.serving is not None and self.node.is_running():
            standalone, context = self.serving
            self.world.loop.create_task(work(standalone), context=context)

    async def end_once_more(self) -> None:
        """In most stories the machine dies again after calm, when all that was acknowledged must be saved."""
        die = stream(self.world.seed, "end").choice((None, self.node.kill, self.node.lose_power))
        if die is not None:
            await asyncio.sleep(2 * SAVED_AFTER_S)
            die()
            self.node.come_back()

    async def _serve(self, node: Node) -> None:
        self.serving = None
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

    def _settings(self) -> Settings:
        given = {
            "--port": "6650",
            "--http-port": "0",
            "bindAddress": "0.0.0.0",
            "advertisedAddress": "broker",
            "defaultRetentionTimeInMinutes": "-1",
            "defaultRetentionSizeInMB": "-1",
            "managedLedgerMaxEntriesPerLedger": "20",
            "managedLedgerMinLedgerRolloverTimeMinutes": "0",
            **self._given,
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
