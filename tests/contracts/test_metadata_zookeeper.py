# SPDX-License-Identifier: Apache-2.0
"""What is particular to ZooKeeper: connections that break, chroots, servers that are not there."""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss

from magnetar.config.metadata import MetadataSettings
from magnetar.errors import CannotStart
from magnetar.metadata.open import open_store
from magnetar.metadata.store import Change, ChangeKind, SessionEvent
from magnetar.metadata.zookeeper import ZooKeeperStore
from magnetar.metadata.zookeeper_client import ZooKeeperClient
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.simulated_disk import SimulatedDisk
from tests.contracts.metadata_stores import Seen, SeenChanges, ZooKeeperPlace, watched
from tests.contracts.zookeeper_server import zookeeper_server
from tests.faults.zookeeper_ensemble import ZooKeeperEnsemble
from tests.relay import Relay

pytestmark = [pytest.mark.feature("F-MD-02")]


def test_a_broken_connection_is_told_and_the_session_its_records_and_its_watches_live_on(
    tmp_path: Path, loop_run: Callable[[Any], Any]
) -> None:
    async def check() -> None:
        async with ZooKeeperPlace(tmp_path) as place:
            one, two = await place.session(), await place.session()
            assert isinstance(one, ZooKeeperStore)
            events: Seen[SessionEvent] = Seen()
            one.watch_session(events)
            changes = await watched(one, "/w")
            await one.put("/mine", b"", ephemeral=True)
            session = one._client.session
            one._client._kazoo._connection._socket.shutdown(socket.SHUT_RDWR)
            await events.until_holds(SessionEvent.DISCONNECTED, SessionEvent.RECONNECTED)
            assert SessionEvent.LOST not in events.items
            assert one._client.session == session
            # What may have been missed is told as a change of the prefix.
            await changes.until_holds(Change(ChangeKind.CHILDREN_CHANGED, "/w"))
            assert not await one.exists("/w")
            await two.put("/w/after", b"")
            await changes.until_holds(Change(ChangeKind.CREATED, "/w/after"))
            assert await two.exists("/mine")
            assert (await one.put("/mine", b"2", ephemeral=True)).version == 1

    loop_run(check())


def test_a_chroot_is_made_and_nothing_leaves_it(loop_run: Callable[[Any], Any]) -> None:
    server = zookeeper_server()

    async def check() -> None:
        store = await open_store(
            f"zk:{server}/tenants/one", disk=SimulatedDisk(), clock=SystemClock(), settings=MetadataSettings()
        )
        changes = SeenChanges()
        store.watch("/", changes)
        await store.put("/a/b", b"value")
        await changes.until_holds(Change(ChangeKind.CREATED, "/a/b"), Change(ChangeKind.CHILDREN_CHANGED, "/a"))
        assert await store.children("/") == ["a"]
        stored = await store.put("/a/n-", b"", sequential=True)
        assert stored.path.startswith("/a/n-")
        plain = KazooClient(hosts=server)
        await asyncio.to_thread(plain.start)
        value, _ = await asyncio.to_thread(plain.get, "/tenants/one/a/b")
        assert value == b"value"
        await asyncio.to_thread(plain.stop)
        await asyncio.to_thread(plain.close)
        await store.delete_recursive("/a")
        await store.close()

    loop_run(check())


def test_a_connection_that_is_lost_while_the_chroot_is_made_is_no_reason_to_give_up(
    loop_run: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy machine lets pings wait; the client connects again, and so must whoever opens."""
    enter = ZooKeeperClient.enter
    losses = 2

    async def lossy(client: ZooKeeperClient, chroot: str) -> None:
        nonlocal losses
        if losses:
            losses -= 1
            raise ConnectionLoss
        await enter(client, chroot)

    monkeypatch.setattr(ZooKeeperClient, "enter", lossy)

    async def scenario() -> None:
        store = await ZooKeeperStore.open(f"{zookeeper_server()}/{uuid4().hex}")
        await store.put("/a", b"1")
        await store.close()

    loop_run(scenario())
    assert losses == 0


def test_no_server_is_one_sentence(loop_run: Callable[[Any], Any]) -> None:
    async def check() -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            host = f"127.0.0.1:{unused.getsockname()[1]}"
            with pytest.raises(CannotStart, match=f"no ZooKeeper at {host}"):
                await ZooKeeperStore.open(host, MetadataSettings(operation_timeout_ms=300))

    loop_run(check())


def test_a_list_is_never_older_than_its_question(tmp_path: Path) -> None:
    """F115: the link of a follower to its leader stands still, and single records are read there as they were."""
    zookeeper_server()
    patient = MetadataSettings(session_timeout_ms=60_000, operation_timeout_ms=60_000)
    links: list[Relay] = []

    def linked(port: int) -> int:
        links.append(Relay(port))
        return links[-1].port

    async def check(behind: int, other: int) -> None:
        path = f"/{uuid4().hex}"
        asked, beside, elsewhere = [
            await ZooKeeperStore.open(f"127.0.0.1:{port}", patient) for port in (behind, behind, other)
        ]
        await elsewhere.put(f"{path}/before", b"")
        assert await asked.children(path) == ["before"]
        for link in links:
            link.hold()
        await elsewhere.put(f"{path}/since", b"")
        async with asyncio.TaskGroup() as group:
            listing = group.create_task(asked.children(path))
            # An answer from what the server knows by itself would be there before these are.
            seen = [await beside.exists(f"{path}/since") for _ in range(50)]
            for link in links:
                link.let_go()
        assert seen == [False] * 50
        assert listing.result() == ["before", "since"]
        assert await asked.exists(f"{path}/since")
        for store in (asked, beside, elsewhere):
            await store.close()

    try:
        with ZooKeeperEnsemble(
            tmp_path, reached=linked, settings="syncLimit=120\nmaxSessionTimeout=60000\n"
        ) as ensemble:
            behind, other, _ = (server.port for server in ensemble.servers)
            asyncio.run(check(behind, other))
    finally:
        for link in links:
            link.close()
