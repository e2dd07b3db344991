# SPDX-License-Identifier: Apache-2.0
"""Where the metadata stores under test come from, and how a test watches them.

A place is one tree of records that sessions are opened on. Each implementation has one here; the contract suite runs
over all of them.
"""

import asyncio
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Generic, TypeVar

from kazoo.client import KazooClient

from magnetar.config.metadata import MetadataSettings
from magnetar.metadata.durable_tree import DurableTree
from magnetar.metadata.embedded import EmbeddedStore
from magnetar.metadata.etcd import EtcdStore
from magnetar.metadata.memory import MemoryStore, MemoryTree
from magnetar.metadata.remote import RemoteStore
from magnetar.metadata.remote_server import MetadataServer
from magnetar.metadata.split import SplitStore
from magnetar.metadata.store import Change, MetadataStore, SessionEvent
from magnetar.metadata.zookeeper import ZooKeeperStore
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.real_disk import RealDisk
from tests.contracts.etcd_server import etcd_server
from tests.contracts.zookeeper_server import zookeeper_server
from tests.simulation.world.metadata_model import MetadataModel, ModelStore

T = TypeVar("T")

PATIENCE_S = 30.0


class Place(ABC):
    """One tree of records; `async with place:` starts and ends it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.stores: list[MetadataStore] = []

    async def session(self) -> MetadataStore:
        store = await self.open_session()
        self.stores.append(store)
        return store

    async def __aenter__(self) -> "Place":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for store in self.stores:
            await store.close()
        await self.stop()

    async def start(self) -> None:
        return

    async def stop(self) -> None:
        return

    @abstractmethod
    async def open_session(self) -> MetadataStore: ...

    async def expire(self, store: MetadataStore) -> None:
        """End a session as the store would, and let a new one take its place."""
        raise NotImplementedError(f"{type(self).__name__} has no sessions that expire")


class MemoryPlace(Place):
    async def start(self) -> None:
        self.tree = MemoryTree()

    async def open_session(self) -> MetadataStore:
        return self.tree.open_session()

    async def expire(self, store: MetadataStore) -> None:
        assert isinstance(store, MemoryStore)
        store.expire_session()
        store.reestablish_session()


class SplitPlace(Place):
    """A cluster's own store and the one that clusters share, seen as one."""

    async def start(self) -> None:
        self.own, self.shared = MemoryTree(), MemoryTree()

    async def open_session(self) -> MetadataStore:
        return SplitStore(self.own.open_session(), self.shared.open_session())


class EmbeddedPlace(Place):
    async def start(self) -> None:
        self.disk = RealDisk(str(self.directory))
        self.tree = await DurableTree.open(
            self.disk, "metadata", clock=SystemClock(), settings=MetadataSettings(log_bytes_max=4096)
        )

    async def open_session(self) -> MetadataStore:
        return await EmbeddedStore.join(self.tree)

    async def stop(self) -> None:
        await self.tree.close()
        await self.disk.close()


class ModelPlace(Place):
    async def start(self) -> None:
        self.model = MetadataModel(Random(1))

    async def open_session(self) -> MetadataStore:
        return self.model.open_session()

    async def expire(self, store: MetadataStore) -> None:
        assert isinstance(store, ModelStore)
        events: Seen[SessionEvent] = Seen()
        end = store.watch_session(events)
        self.model.expire(store)
        await events.until_holds(SessionEvent.REESTABLISHED)
        end()


class RemotePlace(Place):
    """A metadata server in this process, and clients that reach it over loopback."""

    async def start(self) -> None:
        self.disk = RealDisk(str(self.directory))
        settings = MetadataSettings()
        self.tree = await DurableTree.open(self.disk, "metadata", clock=SystemClock(), settings=settings)
        self.server = MetadataServer(self.tree, settings)
        self.port = await self.server.start("127.0.0.1", 0)

    async def open_session(self) -> MetadataStore:
        return await RemoteStore.open("127.0.0.1", self.port, MetadataSettings(reconnect_delay_min_ms=1))

    async def expire(self, store: MetadataStore) -> None:
        assert isinstance(store, RemoteStore)
        events: Seen[SessionEvent] = Seen()
        end = store.watch_session(events)
        assert store._link is not None
        await self.server.end(store._session.session)
        store._link.cut()
        await events.until_holds(SessionEvent.REESTABLISHED)
        end()

    async def stop(self) -> None:
        await self.server.close()
        await self.tree.close()
        await self.disk.close()


class ZooKeeperPlace(Place):
    """A chroot of its own for each test, on one server for all."""

    async def start(self) -> None:
        self.hosts = f"{zookeeper_server()}/{uuid.uuid4().hex}"

    async def open_session(self) -> MetadataStore:
        return await ZooKeeperStore.open(self.hosts, MetadataSettings(session_timeout_ms=4_000))

    async def expire(self, store: MetadataStore) -> None:
        """Whoever joins a session by its id and password can end it for everybody."""
        assert isinstance(store, ZooKeeperStore)
        events: Seen[SessionEvent] = Seen()
        end = store.watch_session(events)
        twin = KazooClient(hosts=self.hosts, client_id=store._client._kazoo.client_id)
        await asyncio.to_thread(twin.start)
        await asyncio.to_thread(twin.stop)
        await asyncio.to_thread(twin.close)
        await events.until_holds(SessionEvent.REESTABLISHED)
        end()


class EtcdPlace(Place):
    """A chroot of its own for each test, on one server for all."""

    async def start(self) -> None:
        self.servers = f"{etcd_server()}/{uuid.uuid4().hex}"

    async def open_session(self) -> MetadataStore:
        return await EtcdStore.open(
            self.servers, SystemClock(), MetadataSettings(session_timeout_ms=20_000, reconnect_delay_min_ms=10)
        )

    async def expire(self, store: MetadataStore) -> None:
        """etcd revokes the lease, as it would when it has run out."""
        assert isinstance(store, EtcdStore)
        events: Seen[SessionEvent] = Seen()
        end = store.watch_session(events)
        await store._client.call_lease("revoke", {"ID": str(store._lease.number)})
        store._lease.doubt()
        await events.until_holds(SessionEvent.REESTABLISHED)
        end()


class Seen(Generic[T]):
    """A listener that remembers, and on which a test can wait."""

    def __init__(self) -> None:
        self.items: list[T] = []
        self._told = asyncio.Event()

    def __call__(self, item: T) -> None:
        self.items.append(item)
        self._told.set()

    async def until(self, condition: Callable[[list[T]], bool]) -> list[T]:
        async with asyncio.timeout(PATIENCE_S):
            while not condition(self.items):
                self._told.clear()
                await self._told.wait()
        return self.items

    async def until_holds(self, *wanted: T) -> list[T]:
        return await self.until(lambda items: all(item in items for item in wanted))


SeenChanges = Seen[Change]


async def watched(store: MetadataStore, prefix: str) -> SeenChanges:
    """A watch that is certainly set: what was asked for later on the same session has been answered."""
    seen = SeenChanges()
    store.watch(prefix, seen)
    await store.exists(prefix)
    return seen


PLACES: dict[str, type[Place]] = {
    "memory": MemoryPlace,
    "split": SplitPlace,
    "embedded": EmbeddedPlace,
    "model": ModelPlace,
    "remote": RemotePlace,
    "zookeeper": ZooKeeperPlace,
    "etcd": EtcdPlace,
}
EXPIRING: dict[str, type[Place]] = {name: place for name, place in PLACES.items() if place.expire is not Place.expire}
