# SPDX-License-Identifier: Apache-2.0
"""A consume-process-produce loop while the whole process is killed again and again: every input has one output."""

import asyncio
import random
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from magnetar import Client, ConsumerType, Transaction
from magnetar.errors import MagnetarError
from magnetar.ids import EARLIEST_MESSAGE
from tests.conformance.client_service import run
from tests.processes import StandaloneProcess

INPUTS = 16
KILLS = 2


class Copying:
    """Takes each input, sends its output and acknowledges the input in one transaction; what fails is done again."""

    TIMEOUT_MS = 2_000

    def __init__(self, client: Client, source: str, target: str) -> None:
        self._client = client
        self._source = source
        self._target = target
        # By where they lie: a kill may make the reader see a message twice, which is not two messages.
        self.outputs: dict[str, bytes] = {}

    @property
    def is_done(self) -> bool:
        return len(set(self.outputs.values())) == INPUTS

    async def copy(self) -> None:
        consumer = await self._client.subscribe(self._source, "s", consumer_type=ConsumerType.Shared)
        producer = await self._client.create_producer(self._target)
        while not self.is_done:
            try:
                received = await consumer.receive(500)
                async with self._client.transaction(timeout_ms=self.TIMEOUT_MS) as txn:
                    await producer.send(received.data(), txn=txn)
                    await consumer.acknowledge(received, txn=txn)
                    self.on_committing(txn)
            except MagnetarError:
                consumer.redeliver_unacknowledged_messages()

    def on_committing(self, txn: Transaction) -> None:
        """What comes next is its commit."""

    async def through(self, strikes: Coroutine[Any, Any, None], seconds: float) -> None:
        """Every input has one output, whatever strikes meanwhile."""
        inputs = await self._client.create_producer(self._source, initial_subscription_name="s")
        expected = [b"%d" % number for number in range(INPUTS)]
        for data in expected:
            await inputs.send(data)
        async with asyncio.timeout(seconds), asyncio.TaskGroup() as tasks:
            tasks.create_task(self.copy())
            tasks.create_task(self.read())
            tasks.create_task(strikes)
        assert sorted(self.outputs.values(), key=int) == expected

    async def read(self) -> None:
        reader = await self._client.create_reader(self._target, EARLIEST_MESSAGE)
        quiet = 0
        # A little longer than it takes to see everything: nothing may come behind it.
        while not self.is_done or quiet < 3:
            try:
                received = await reader.read_next(500)
                self.outputs[str(received.message_id())] = received.data()
                quiet = 0
            except MagnetarError:
                quiet += 1


@pytest.mark.feature("F-TXN-01")
def test_every_input_has_one_output_over_kill_9(tmp_path: Path) -> None:
    chance = random.Random(11)

    async def kill_now_and_then(process: StandaloneProcess, copying: Copying) -> None:
        loop = asyncio.get_running_loop()
        for number in range(1, KILLS + 1):
            while len(copying.outputs) < number * INPUTS // (KILLS + 2):  # noqa: ASYNC110
                await asyncio.sleep(0.002)
            await asyncio.sleep(chance.random() / 50)
            process.kill()
            await loop.run_in_executor(None, process.start)

    async def test(process: StandaloneProcess) -> None:
        async with Client(process.service_url) as client:
            copying = Copying(client, "persistent://public/default/in", "persistent://public/default/out")
            await copying.through(kill_now_and_then(process, copying), 150)

    # A kill between a message's sync and its receipt has the client send it again, in the same transaction.
    environment = {"transactionCoordinatorEnabled": "true", "brokerDeduplicationEnabled": "true"}
    with StandaloneProcess(tmp_path, environment=environment) as process:
        run(test(process))
