# SPDX-License-Identifier: Apache-2.0
"""What is particular to the metadata server: leases, restarts, lost answers, garbage, clients that do not read."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from magnetar.config.metadata import MetadataSettings
from magnetar.errors import BadSetting, CannotStart, MetadataError, OutcomeUnknown, TooManyRequests, ValueTooLarge
from magnetar.metadata import remote_server
from magnetar.metadata.durable_tree import DurableTree
from magnetar.metadata.open import open_store
from magnetar.metadata.remote import RemoteStore
from magnetar.metadata.remote_protocol import Hello, Kind, encode_frame, encode_hello
from magnetar.metadata.remote_server import MetadataServer
from magnetar.metadata.store import Change, ChangeKind, SessionEvent
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.runtime.simulated_faults import Call
from tests.contracts.metadata_stores import Seen, watched

pytestmark = [pytest.mark.feature("F-MD-23")]

QUICK = MetadataSettings(session_timeout_ms=1_000, reconnect_delay_min_ms=1, reconnect_delay_max_ms=20)


class Machine:
    """A disk, and a server on it that can be stopped, killed and started again on the same port."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk(Random(5))
        self.port = 0
        self.server: MetadataServer | None = None

    async def start(self, settings: MetadataSettings = QUICK) -> None:
        self.tree = await DurableTree.open(self.disk, "md", clock=SystemClock(), settings=settings)
        self.server = MetadataServer(self.tree, settings)
        self.port = await self.server.start("127.0.0.1", self.port)

    async def stop(self, *, orderly: bool = True) -> None:
        if self.server is None:
            return
        server, self.server = self.server, None
        await server.close()
        if orderly:
            await self.tree.close()
        else:
            self.disk.kernel.lose_power()

    async def client(self, settings: MetadataSettings = QUICK) -> RemoteStore:
        return await RemoteStore.open("127.0.0.1", self.port, settings)


@asynccontextmanager
async def machine(settings: MetadataSettings = QUICK) -> AsyncIterator[Machine]:
    running = Machine()
    await running.start(settings)
    try:
        yield running
    finally:
        await running.stop()


@pytest.mark.parametrize("orderly", [True, False])
def test_a_session_and_its_records_outlive_a_restart_of_the_server(
    loop_run: Callable[[Any], Any], orderly: bool
) -> None:
    async def check() -> None:
        async with machine() as running:
            store = await running.client()
            events: Seen[SessionEvent] = Seen()
            store.watch_session(events)
            changes = await watched(store, "/w")
            await store.put("/mine", b"", ephemeral=True)
            await store.put("/w/kept", b"value")
            await running.stop(orderly=orderly)
            await events.until_holds(SessionEvent.DISCONNECTED)
            with pytest.raises(MetadataError):
                await store.get("/w/kept")
            await running.start()
            await events.until_holds(SessionEvent.RECONNECTED)
            assert SessionEvent.LOST not in events.items
            record = await store.get("/mine")
            assert record is not None
            assert record.ephemeral
            await changes.until_holds(Change(ChangeKind.CHILDREN_CHANGED, "/w"))
            assert await store.exists("/w/kept")
            other = await running.client()
            await other.put("/w/new", b"")
            await changes.until_holds(Change(ChangeKind.CREATED, "/w/new"))
            await other.close()
            await store.close()

    loop_run(check())


def test_a_silent_clients_session_ends_after_its_timeout_and_a_living_ones_does_not(
    loop_run: Callable[[Any], Any],
) -> None:
    async def check() -> None:
        async with machine() as running:
            silent, living = await running.client(), await running.client()
            events: Seen[SessionEvent] = Seen()
            silent.watch_session(events)
            changes = await watched(living, "/")
            await silent.put("/silent", b"", ephemeral=True)
            await living.put("/living", b"", ephemeral=True)
            link = silent._link
            assert link is not None
            assert link._ping_timer is not None
            link._ping_timer.cancel()
            await changes.until_holds(Change(ChangeKind.DELETED, "/silent"))
            assert await living.exists("/living")
            # The client learns of it with its next request, and goes on in a new session.
            with pytest.raises(MetadataError):
                await silent.put("/silent", b"", ephemeral=True)
            await events.until_holds(SessionEvent.LOST, SessionEvent.REESTABLISHED)
            await silent.put("/silent", b"", ephemeral=True)
            await silent.close()
            await living.close()

    loop_run(check())


def test_a_write_under_way_when_the_connection_breaks_has_an_unknown_outcome(loop_run: Callable[[Any], Any]) -> None:
    async def check() -> None:
        async with machine() as running:
            store = await running.client()
            await store.put("/a", b"")
            running.disk.kernel.faults.hanging = frozenset({Call.SYNC})
            async with asyncio.TaskGroup() as group:
                writing = group.create_task(_outcome(store.put("/a", b"new")))
                reading = group.create_task(_outcome(store.get("/a")))
                while not running.tree._pending:  # noqa: ASYNC110 - the request is on its way
                    await asyncio.sleep(0.001)
                assert store._link is not None
                store._link.cut()
            assert writing.result() is OutcomeUnknown
            assert reading.result() is MetadataError
            await store.close()
            await running.stop(orderly=False)

    loop_run(check())


async def _outcome(operation: Any) -> type[Exception] | None:
    try:
        await operation
    except MetadataError as error:
        return type(error)
    return None


def test_another_store_behind_the_same_address_ends_the_session(loop_run: Callable[[Any], Any]) -> None:
    async def check() -> None:
        async with machine() as running:
            store = await running.client()
            events: Seen[SessionEvent] = Seen()
            store.watch_session(events)
            await store.put("/old", b"")
            await running.stop()
            running.disk.kernel.wipe()
            await running.start()
            await events.until_holds(SessionEvent.LOST, SessionEvent.REESTABLISHED)
            assert not await store.exists("/old")
            await store.close()

    loop_run(check())


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff\xff\xff\xff",
        encode_frame(Kind.GET, 1, b"/a"),
        encode_frame(Kind.HELLO, 1, b"nonsense"),
        encode_frame(Kind.ANSWER, 1, b""),
        encode_frame(Kind.HELLO, 1, encode_hello(Hello(0, 0, 1000))) + encode_frame(Kind.CHANGES, 2, b""),
    ],
)
def test_garbage_is_answered_once_and_the_connection_closed(loop_run: Callable[[Any], Any], garbage: bytes) -> None:
    async def check() -> None:
        async with machine() as running:
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
            writer.write(garbage)
            async with asyncio.timeout(10):
                answer = await reader.read()
            assert answer
            writer.close()
            await writer.wait_closed()
            store = await running.client()
            assert not await store.exists("/a")
            await store.close()

    loop_run(check())


def test_a_server_that_speaks_otherwise_is_refused_with_what_to_look_at(loop_run: Callable[[Any], Any]) -> None:
    async def check() -> None:
        async def web(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10)
            writer.close()

        server = await asyncio.start_server(web, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(CannotStart, match=r"does not speak as a metadata server does.*right port"):
            await RemoteStore.open("127.0.0.1", port, QUICK)
        server.close()
        await server.wait_closed()

    loop_run(check())


def test_connections_are_bounded_and_a_client_that_never_greets_is_cut(
    loop_run: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """F141: at a server of metadata."""
    monkeypatch.setattr(remote_server, "GREETING_LIMIT_S", 0.05)

    async def check() -> None:
        async with machine(MetadataSettings(connections_max=1)) as running:
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
            with pytest.raises(CannotStart):
                await running.client(MetadataSettings(operation_timeout_ms=2_000))
            async with asyncio.timeout(10):
                assert await reader.read() == b""
            writer.close()
            await writer.wait_closed()
            store = await running.client()
            await store.close()

    loop_run(check())


def test_a_client_that_does_not_read_is_cut_off(
    loop_run: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_server, "UNSENT_BYTES_MAX", 1_000_000)

    async def check() -> None:
        async with machine() as running:
            store = await running.client()
            await store.put("/large", b"x" * 1_000_000)
            assert store._link is not None
            transport = store._link._transport
            assert transport is not None
            transport.pause_reading()
            outcomes = asyncio.gather(*(_outcome(store.get("/large")) for _ in range(20)))
            while running.server is not None and running.server._connections:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            transport.abort()
            assert MetadataError in await outcomes
            await store.close()

    loop_run(check())


def test_an_answer_too_large_for_a_frame_is_refused_and_the_connection_lives(loop_run: Callable[[Any], Any]) -> None:
    """Fault F116: a list larger than the limit must not be asked for again and again over new connections."""

    async def check() -> None:
        async with machine(MetadataSettings(frame_bytes_max=2_000)) as running:
            store = await running.client()
            link = store._link
            await asyncio.gather(*(store.put(f"/many/{number:050d}", b"") for number in range(100)))
            with pytest.raises(ValueTooLarge, match=r"CHILDREN.*2000"):
                await store.children("/many")
            assert await store.exists("/many")
            assert store._link is link
            await store.close()

    loop_run(check())


def test_requests_that_wait_are_bounded(loop_run: Callable[[Any], Any]) -> None:
    async def check() -> None:
        async with machine() as running:
            store = await running.client(MetadataSettings(operations_pending_max=3))
            outcomes = await asyncio.gather(*(store.get("/a") for _ in range(5)), return_exceptions=True)
            assert [type(outcome) for outcome in outcomes].count(TooManyRequests) == 2
            await store.close()

    loop_run(check())


@pytest.mark.parametrize("url", ["remote:", "remote:host", "remote:host:", "remote::1", "remote:h:x", "remote:h:70000"])
def test_a_malformed_address_is_named(url: str) -> None:
    with pytest.raises(BadSetting, match="remote:HOST:PORT"):
        asyncio.run(open_store(url, disk=SimulatedDisk(), clock=SystemClock(), settings=QUICK))


def test_a_store_by_url(loop_run: Callable[[Any], Any]) -> None:
    async def check() -> None:
        async with machine() as running:
            store = await open_store(
                f"remote:127.0.0.1:{running.port}", disk=SimulatedDisk(), clock=SystemClock(), settings=QUICK
            )
            assert (await store.put("/a", b"")).version == 0
            await store.close()
            port = running.port
        with pytest.raises(CannotStart, match=f"127.0.0.1:{port}"):
            await RemoteStore.open("127.0.0.1", port, QUICK)

    loop_run(check())
