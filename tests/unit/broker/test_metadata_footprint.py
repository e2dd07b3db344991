# SPDX-License-Identifier: Apache-2.0
"""How often each thing that a client does touches the metadata: what happens for every message, never."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from magnetar.metadata.store import MetadataStore
from magnetar.testing.local_pulsar import LocalPulsar

TOPIC = "persistent://public/default/counted"
MESSAGES = 200


class Touches:
    """Counts what a store is asked for; the store does it."""

    def __init__(self, store: MetadataStore) -> None:
        self.reads: list[str] = []
        self.writes: list[str] = []
        for name, seen in (
            ("get", self.reads),
            ("children", self.reads),
            ("put", self.writes),
            ("delete", self.writes),
        ):
            setattr(store, name, self._counted(getattr(store, name), seen))

    def _counted(self, call: Callable[..., Awaitable[Any]], seen: list[str]) -> Callable[..., Awaitable[Any]]:
        async def counted(path: str, *arguments: Any, **named: Any) -> Any:
            seen.append(path)
            return await call(path, *arguments, **named)

        return counted

    async def writes_of(self, action: Awaitable[Any]) -> list[str]:
        """What is written while something is done, and nothing else."""
        before = len(self.writes)
        await action
        return self.writes[before:]


@pytest.mark.feature("F-MD-19")
def test_topics_and_cursors_are_written_down_and_messages_are_not(loop_run: Callable[..., None]) -> None:
    async def scenario() -> None:
        settings = {"managedLedgerMaxEntriesPerLedger": "150", "managedLedgerMinLedgerRolloverTimeMinutes": "0"}
        async with LocalPulsar(settings=settings, transport="memory") as pulsar:
            touches = Touches(pulsar.standalone.store)
            client = pulsar.client()
            producer = await client.create_producer(TOPIC)
            assert [path for path in touches.writes if path == "/managed-ledgers/public/default/persistent/counted"]
            # A second producer of a topic that is open: nothing.
            assert await touches.writes_of(client.create_producer(TOPIC)) == []
            # A cursor: its record.
            created = await touches.writes_of(client.subscribe(TOPIC, "s"))
            assert created == ["/managed-ledgers/public/default/persistent/counted/s"]
            consumer = await client.subscribe(TOPIC, "s2")

            async def publish(count: int) -> None:
                for number in range(count):
                    await producer.send(b"%d" % number)

            async def consume(count: int) -> None:
                for _ in range(count):
                    await consumer.acknowledge(await consumer.receive())

            # Messages: nothing at all, until a ledger is full; then a few for the next one.
            assert await touches.writes_of(publish(100)) == []
            rolled = await touches.writes_of(publish(MESSAGES - 100))
            assert rolled
            assert len(rolled) <= 8, rolled
            # The cursor moves to a ledger of its own when it is first saved, which time decides.
            reads = len(touches.reads)
            acknowledged = await touches.writes_of(consume(MESSAGES))
            assert len(acknowledged) <= 8, acknowledged
            assert len(touches.reads) - reads <= 8
            await client.close()

    loop_run(scenario())
