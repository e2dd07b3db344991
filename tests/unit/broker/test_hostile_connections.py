# SPDX-License-Identifier: Apache-2.0
"""Clients that take nothing and clients that say nothing, over real sockets: what they cost is bounded, others are
served meanwhile, and nothing of them is left.
"""

import asyncio
import os
import socket
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from magnetar.names import NamespaceName
from magnetar.testing import LocalPulsar
from magnetar.wire import commands
from magnetar.wire.frame import FrameCutter
from magnetar.wire.proto import pulsar_api_pb2 as pb

LoopRun = Callable[[Coroutine[Any, Any, None]], None]
Type = pb.BaseCommand.Type
CONNECT = commands.encode(Type.CONNECT, pb.CommandConnect(client_version="raw", protocol_version=21))
NAMES = [NamespaceName("public", "default").topic(f"topic-{number:05}") for number in range(10_000)]
LIST_BYTES = sum(len(str(name)) + 2 for name in NAMES)
WRITE_BYTES_MAX = 100_000
ASKED = 300


def question(request_id: int) -> bytes:
    asked = pb.CommandGetTopicsOfNamespace(request_id=request_id, namespace="public/default")
    return commands.encode(Type.GET_TOPICS_OF_NAMESPACE, asked)


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


async def connected(port: int) -> socket.socket:
    """A socket with little room for what it does not read."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    made.setblocking(False)
    await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", port))
    return made


async def answers(raw: socket.socket, cutter: FrameCutter, count: int, bytes_at_once: int) -> list[pb.BaseCommand]:
    found: list[pb.BaseCommand] = []
    while len(found) < count:
        data = await asyncio.get_running_loop().sock_recv(raw, bytes_at_once)
        assert data, "the broker closed the connection"
        found += [commands.parse(command, commands.Sender.BROKER) for command, _ in cutter.feed(data)]
    return found


@pytest.mark.feature("B-37")
def test_who_asks_for_long_lists_and_never_reads_costs_one_of_them(
    loop_run: LoopRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F140: what is unsent is bounded by the mark and one answer, however much is asked; nobody else waits for it."""

    async def scenario() -> None:
        settings = {"pulsarChannelWriteBufferHighWaterMark": str(WRITE_BYTES_MAX)}
        async with LocalPulsar(settings=settings) as pulsar, pulsar.client() as other:
            topics, made = pulsar.standalone.broker.topics, 0

            async def visible_names(*_: object) -> Any:
                nonlocal made
                made += 1
                return NAMES

            monkeypatch.setattr(topics, "visible_names", visible_names)
            greedy = await connected(port_of(pulsar.service_url))
            loop, cutter = asyncio.get_running_loop(), FrameCutter(64 * 1024 * 1024)
            await loop.sock_sendall(greedy, CONNECT)
            assert (await answers(greedy, cutter, 1, 65_536))[0].type == Type.CONNECTED
            taken = next(
                each
                for each in pulsar.standalone.broker.connections
                if each.peer.endswith(f":{greedy.getsockname()[1]}")
            )
            await loop.sock_sendall(greedy, b"".join(map(question, range(ASKED))))
            producer = await other.create_producer("persistent://public/default/others-are-served")
            most = 0
            for _ in range(100):
                await producer.send(b"x")
                most = max(most, taken.transport.get_write_buffer_size())
            assert not taken.is_writable
            assert WRITE_BYTES_MAX < most <= WRITE_BYTES_MAX + 2 * LIST_BYTES
            assert made < 20, "the socket's own buffers take some; the rest is not even made"
            monkeypatch.undo()
            # Whoever reads at last gets an answer to each, a few bytes at a time.
            found = await answers(greedy, cutter, ASKED, 10_000)
            assert {commands.body_of(each).request_id for each in found} == set(range(ASKED))  # type: ignore[attr-defined]
            greedy.close()

    loop_run(scenario())


def test_connections_that_say_nothing_leave_nothing() -> None:
    """F141: silent, cut in the middle of a word, reset at once, beyond the bound; on clients' ports and HTTP's."""
    settings = {
        "keepAliveIntervalSeconds": "1",
        "brokerMaxConnections": "150",
        "admin.connections_max": "150",
        "admin.head_timeout_ms": "500",
    }

    async def scenario() -> None:
        async with LocalPulsar(settings=settings, http=True) as pulsar, pulsar.client() as other:
            broker = pulsar.standalone.broker
            producer = await other.create_producer("persistent://public/default/others-are-served")
            before = len(os.listdir("/proc/self/fd"))
            ports = [port_of(pulsar.service_url), port_of(pulsar.web_url)]
            silent = [await connected(port) for port in ports for _ in range(200)]
            for number, each in enumerate(silent):
                if number % 3 == 0:
                    await _say_a_little(each)
            for port in ports:
                for _ in range(50):
                    cut = await connected(port)
                    cut.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    cut.close()
            await producer.send(b"while they are here")
            assert len(broker.connections) <= 150
            async with asyncio.timeout(30):
                await asyncio.gather(*(_until_closed(each) for each in silent))
                for each in silent:
                    each.close()
                while len(broker.connections) > 1 or len(os.listdir("/proc/self/fd")) > before:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await producer.send(b"and afterwards")
            late = await connected(ports[0])
            await asyncio.get_running_loop().sock_sendall(late, CONNECT)
            assert (await answers(late, FrameCutter(65_536), 1, 65_536))[0].type == Type.CONNECTED
            late.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())


async def _say_a_little(raw: socket.socket) -> None:
    try:
        await asyncio.get_running_loop().sock_sendall(raw, b"\x00\x00")
    except (ConnectionResetError, BrokenPipeError):
        return


async def _until_closed(raw: socket.socket) -> None:
    try:
        while await asyncio.get_running_loop().sock_recv(raw, 4_096):
            pass
    except ConnectionResetError:
        return
