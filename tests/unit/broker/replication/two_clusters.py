# SPDX-License-Identifier: Apache-2.0
"""A topic of one cluster and the cluster that it goes to, on one loop whose time costs nothing.

Here: a real topic over model bookies, with its real replicator. There: a whole broker in memory. `Link` lies between
them, sees every frame in both directions, and may change it, lose it, or be cut.
Assembles.
"""

import asyncio
from collections.abc import Callable
from random import Random
from types import TracebackType
from typing import Any, Final, Self, cast

from magnetar.broker.as_client import AsClient
from magnetar.broker.replication.parts import ReplicationParts
from magnetar.broker.replication.remote_clusters import RemoteClusters
from magnetar.broker.replication.replicator import Replicator
from magnetar.broker.replication.topic_replication import TopicReplication
from magnetar.broker.topic import Topic
from magnetar.config.broker import BrokerSettings
from magnetar.config.security import SecuritySettings
from magnetar.errors import ConnectionLost
from magnetar.metadata.json_record import encode_json
from magnetar.names import cluster_path
from magnetar.runtime.memory_transport import MemoryTransport, connect_in_memory
from magnetar.runtime.tasks import Tasks
from magnetar.testing import LocalPulsar
from magnetar.wire import commands
from magnetar.wire.commands import Sender
from magnetar.wire.frame import FrameCutter, join
from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.unit.broker.publishers import NAME, Brokers, Client, body_of, producer_of, stored
from tests.unit.broker.virtual_time import LoopClock

PATIENCE_S: Final = 40_000.0
# What nobody reads and nobody sends to would go after a while.
_KEPT: Final = {
    "brokerDeleteInactiveTopicsEnabled": "false",
    "defaultRetentionTimeInMinutes": "-1",
    "defaultRetentionSizeInMB": "-1",
}

Meddle = Callable[[pb.BaseCommand, bytes], tuple[bytes, bytes] | None]
"""What becomes of a frame: its command and body as they arrive, or None: it is lost."""


class _End(asyncio.Protocol):
    """One end of the link, in front of a protocol: every frame goes through `meddle` before it is heard."""

    def __init__(self, inner: asyncio.Protocol, sender: Sender, meddle: Meddle) -> None:
        self._inner = inner
        self._sender = sender
        self._meddle = meddle
        self._cutter = FrameCutter()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        for command, body in self._cutter.feed(data):
            heard = self._meddle(commands.parse(command, self._sender), body)
            if heard is not None:
                self._inner.data_received(join(*heard))

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


class Link:
    """The way between the clusters."""

    def __init__(self, there: LocalPulsar) -> None:
        self.is_up = True
        # Told of every frame; replaced by tests.
        self.on_request: Meddle = passed
        self.on_answer: Meddle = passed
        self._there = there
        self._open: list[MemoryTransport] = []

    async def connect(self, protocol: Callable[[], asyncio.Protocol], target: object, tls: object) -> object:
        if not self.is_up:
            raise ConnectionLost("the link is down")
        broker = self._there.standalone.broker
        pair = connect_in_memory(
            lambda: _End(protocol(), Sender.BROKER, lambda *frame: self.on_answer(*frame)),
            lambda: _End(broker.new_connection(), Sender.CLIENT, lambda *frame: self.on_request(*frame)),
            "replicator",
        )
        self._open.append(pair[0])
        return pair

    def cut(self) -> None:
        self.is_up = False
        for transport in self._open:
            transport.abort()
        self._open.clear()


def passed(command: pb.BaseCommand, body: bytes) -> tuple[bytes, bytes]:
    return command.SerializeToString(), body


class TwoClusters:
    def __init__(self, here: BrokerSettings | None = None, **there: str) -> None:
        """`there`: settings of the other cluster's broker, by Pulsar's names."""
        self.brokers = Brokers(here or BrokerSettings(cluster_name="here"))
        self.brokers.world.clock = LoopClock()  # type: ignore[assignment]
        self.there = LocalPulsar(
            settings={"clusterName": "there", "brokerDeduplicationEnabled": "true", **_KEPT, **there},
            clock=self.brokers.world.clock,
            transport="memory",
            seed=1,
        )
        self.link = Link(self.there)
        self.topic: Topic
        self._tasks: Tasks
        self._clusters: RemoteClusters

    async def __aenter__(self) -> Self:
        await self.there.__aenter__()
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._let_go()
        await self.brokers.stop()
        await self.there.__aexit__(kind, error, trace)

    async def start(self) -> None:
        """A broker here, which takes the topic and replicates it."""
        topics = await self.brokers.start()
        owner = self.brokers._owner
        assert owner is not None
        record = {"brokerServiceUrl": self.there.service_url, "serviceUrl": "http://there"}
        await owner.store.put(cluster_path("there"), encode_json(record))
        self._tasks = Tasks("replication", lambda task, error: self.brokers.world.cluster.crashes.append(f"{error!r}"))
        security = SecuritySettings()
        clock = self.brokers.world.clock
        self._clusters = RemoteClusters(owner.store, AsClient(security), security, clock, self.link.connect)
        # No message here has a schema: nobody asks for one.
        schemas = cast("Any", None)
        parts = ReplicationParts(
            "here", self.brokers.settings, self._clusters, topics.namespaces, schemas, clock, Random(1), self._tasks
        )
        self.topic = await self.brokers.topic()
        self.topic.replication = TopicReplication(self.topic, parts)
        await self.topic.replication.apply(["there"])

    async def die_here(self) -> None:
        """As by kill -9: what the replicator's cursor did not save is forgotten."""
        await self._let_go()
        await self.brokers.die()

    async def _let_go(self) -> None:
        assert self.topic.replication is not None
        await self.topic.replication.close()
        await self._tasks.close()
        await self._clusters.close()

    @property
    def replicator(self) -> Replicator:
        assert self.topic.replication is not None
        return self.topic.replication.replicators["there"]

    async def publish(self, numbers: range, name: str = "p", **fields: Any) -> None:
        client = Client()
        producer = producer_of(client, name)
        for number in numbers:
            self.topic.publish(producer, number, 0, 1, body_of(name, number, **fields))
        await client.until_answers(len(numbers))
        assert not client.errors

    async def arrived(self) -> list[tuple[str, int]]:
        """Producer name and sequence id of what lies over there, in order."""
        return await stored(await self.there.standalone.broker.topics.load(NAME, create=True))

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():  # noqa: ASYNC110  virtual time costs nothing
                await asyncio.sleep(0.01)

    async def until_drained(self) -> None:
        await self.until(lambda: self.replicator.backlog_entries == 0)
