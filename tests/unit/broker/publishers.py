# SPDX-License-Identifier: Apache-2.0
"""Topics for tests of the publish side: real managed ledgers over model bookies, and clients that note what they are
told.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

from magnetar.broker.namespaces import Namespaces
from magnetar.broker.ownership.owner import Owner as Addresses
from magnetar.broker.producer import AccessMode, Producer
from magnetar.broker.topic import Topic
from magnetar.broker.topics import Topics
from magnetar.config.broker import BrokerSettings
from magnetar.errors import MagnetarError
from magnetar.names import TopicName
from magnetar.runtime.tasks import Tasks
from magnetar.wire import message
from magnetar.wire.broker_entry import message_start
from magnetar.wire.proto.pulsar_api_pb2 import MessageMetadata
from tests.unit.ledger.faulty_store import FaultyStore
from tests.unit.managed_ledger.owners import Owner, World

NAME = TopicName.parse("persistent://public/default/topic")


class Client:
    """A producer's link: keeps the answers in their order."""

    def __init__(self) -> None:
        # ("stored" or "again" or "refused", sequence id)
        self.answers: list[tuple[str, int]] = []
        self.positions: dict[int, tuple[int, int]] = {}
        self.errors: list[MagnetarError] = []
        self.disconnected: list[Producer] = []
        self.held_back_s = 0.0
        self.bytes_given_back = 0
        self.alive = True
        self.alive_asked = 0
        self._told = asyncio.Event()

    def send_receipts(
        self, producer: Producer, receipts: list[tuple[int, int]], ledger_id: int, first_entry_id: int, size: int
    ) -> None:
        self.bytes_given_back += size
        if not producer.is_closed:
            for entry_id, (sequence_id, _) in enumerate(receipts, first_entry_id):
                self.answers.append(("stored", sequence_id))
                self.positions[sequence_id] = (ledger_id, entry_id)
        self._told.set()

    def send_duplicate_receipt(self, producer: Producer, sequence_id: int, highest_sequence_id: int, size: int) -> None:
        self.bytes_given_back += size
        if not producer.is_closed:
            self.answers.append(("again", sequence_id))
        self._told.set()

    def send_refusal(self, producer: Producer, sequence_id: int, size: int, error: MagnetarError) -> None:
        self.bytes_given_back += size
        self.errors.append(error)
        if not producer.is_closed:
            self.answers.append(("refused", sequence_id))
        self._told.set()

    def hold_back(self, seconds: float) -> None:
        self.held_back_s = max(self.held_back_s, seconds)

    async def is_alive(self) -> bool:
        self.alive_asked += 1
        await asyncio.sleep(0)
        return self.alive

    def disconnect_producer(self, producer: Producer) -> None:
        self.disconnected.append(producer)
        self._told.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                self._told.clear()
                await self._told.wait()

    async def until_answers(self, number: int) -> None:
        await self.until(lambda: len(self.answers) >= number)


_ids = count(1)


def producer_of(
    client: Client,
    name: str = "p",
    *,
    mode: AccessMode = AccessMode.SHARED,
    epoch: int = 0,
    topic_epoch: int | None = None,
    generated: bool = False,
    producer_id: int | None = None,
) -> Producer:
    return Producer(
        client,
        next(_ids) if producer_id is None else producer_id,
        name,
        name_generated=generated,
        epoch=epoch,
        access_mode=mode,
        topic_epoch=topic_epoch,
    )


def body_of(name: str = "p", sequence_id: int = 0, highest: int | None = None, **fields: Any) -> bytes:
    metadata = MessageMetadata(producer_name=name, sequence_id=sequence_id, publish_time=1, **fields)
    if highest is not None:
        metadata.highest_sequence_id = highest
    return b"".join(message.join(metadata.SerializeToString(), b"payload"))


class Brokers:
    """One after another, brokers own the topics of one world; each may die at any moment."""

    def __init__(self, settings: BrokerSettings | None = None, **ledger_settings: object) -> None:
        self.world = World(**ledger_settings)  # type: ignore[arg-type]
        self.settings = settings or BrokerSettings()
        self.failures: list[MagnetarError] = []
        self._owner: Owner | None = None
        self._tasks: Tasks | None = None
        self.topics: Topics

    async def start(self, **changes: Any) -> Topics:
        self.settings = replace(self.settings, **changes)
        self._owner = self.world.owner()
        self._tasks = Tasks("broker", lambda task, error: self.world.cluster.crashes.append(f"{task}: {error!r}"))
        namespaces = Namespaces(self._owner.store)
        await namespaces.initialize("c", Addresses("pulsar://x", "http://x"))
        self.topics = Topics(
            namespaces, self._owner.logs, self.settings, self.world.clock, self._tasks, self._owner.store
        )
        return self.topics

    @property
    def store(self) -> FaultyStore:
        """The metadata session of the broker that is there now."""
        assert self._owner is not None
        return self._owner.store

    async def topic(self, name: TopicName = NAME) -> Topic:
        return await self.topics.load(name, create=True)

    async def stop(self) -> None:
        assert self._owner is not None
        assert self._tasks is not None
        await self.topics.close()
        await self._tasks.close()
        await self._owner.close()
        self.world.check()

    async def die(self) -> None:
        assert self._owner is not None
        assert self._tasks is not None
        await self._tasks.close()
        await self._owner.die()


async def stored(topic: Topic) -> list[tuple[str, int]]:
    """Producer name and sequence id of every stored entry, in order."""
    found = []
    position = topic.managed_ledger.first_position
    while entries := await topic.managed_ledger.read(position, entries_max=100, bytes_max=1 << 20):
        for entry in entries:
            metadata = message.read_metadata(entry.body, message_start(entry.body))
            found.append((metadata.producer_name, metadata.sequence_id))
        position = topic.managed_ledger.next_position(entries[-1].position)
        if entries[-1].position >= topic.managed_ledger.last_confirmed:
            break
    return found
