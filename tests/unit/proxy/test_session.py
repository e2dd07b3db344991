# SPDX-License-Identifier: Apache-2.0
"""One client of a proxy: questions that are passed on, and what of a command goes along."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from random import Random
from typing import Any

import pytest

from magnetar.config.broker import BrokerSettings
from magnetar.config.proxy import ProxySettings
from magnetar.config.security import SecuritySettings
from magnetar.errors import BadCommand, NotAuthorized
from magnetar.proxy import session
from magnetar.proxy.brokers import Brokers
from magnetar.proxy.proxy import Proxy
from magnetar.proxy.targets import Target
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.metrics import Metrics
from magnetar.runtime.tasks import Tasks
from magnetar.wire import commands, frame
from magnetar.wire.commands import Sender, Type
from magnetar.wire.hot import PING
from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.conftest import RunOnLoop

pytestmark = [pytest.mark.feature("F-PXY-02")]

CONNECT = commands.encode(Type.CONNECT, pb.CommandConnect(client_version="c", protocol_version=21))
CONNECTED = commands.encode(Type.CONNECTED, pb.CommandConnected(server_version="b", protocol_version=21))
# A SUBSCRIBE without any of its fields, as it may lie beside the message that a type names.
STRAY = bytes([4 << 3 | 2, 0])


NOBODY = SecuritySettings()
WITH_A_TOKEN = SecuritySettings(
    client_authentication_plugin="org.apache.pulsar.client.impl.auth.AuthenticationToken",
    client_authentication_parameters="token:the-proxys-own",
)

Served = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def proxying(
    broker: Served, crashed: list[str], security: SecuritySettings = NOBODY, **limits: Any
) -> AsyncIterator[tuple[int, Proxy]]:
    """A proxy's port, and the proxy; all of it takes twenty seconds at most."""
    server = await asyncio.start_server(broker, "127.0.0.1", 0)
    url = f"//127.0.0.1:{server.sockets[0].getsockname()[1]}"
    settings = ProxySettings(broker_url=f"pulsar:{url}", broker_web_url=f"http:{url}", **limits)
    tasks = Tasks("test", lambda name, error: crashed.append(name))
    brokers = await Brokers.open(settings, Random(1), None, tasks)
    proxy = Proxy(settings, BrokerSettings(port=0), security, brokers, SystemClock(), Metrics(), print)
    port = int((await proxy.start())["serviceUrl"].rpartition(":")[2])
    async with server, asyncio.timeout(20):
        try:
            yield port, proxy
        finally:
            await proxy.stop()
            await tasks.close()


async def _command(reader: asyncio.StreamReader, sender: Sender) -> pb.BaseCommand:
    size = int.from_bytes(await reader.readexactly(4), "big")
    return commands.parse((await reader.readexactly(size))[4:], sender)


def test_a_command_with_half_another_beside_it_is_passed_on_without_that(loop_run: RunOnLoop) -> None:
    crashed: list[str] = []
    question = pb.BaseCommand(type=Type.PARTITIONED_METADATA)
    question.partitionMetadata.topic, question.partitionMetadata.request_id = "persistent://a/b/c", 7
    answer = pb.BaseCommand(type=Type.PARTITIONED_METADATA_RESPONSE)
    answer.partitionMetadataResponse.request_id, answer.partitionMetadataResponse.partitions = 7, 3

    async def broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _command(reader, Sender.CLIENT)
        writer.write(CONNECTED)
        asked = await _command(reader, Sender.CLIENT)
        assert asked == question
        writer.write(frame.join(answer.SerializeToString() + STRAY))
        await reader.read()
        writer.close()

    async def scenario() -> None:
        async with proxying(broker, crashed) as (port, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(CONNECT + frame.join(question.SerializeToString() + STRAY))
            assert (await _command(reader, Sender.BROKER)).type == Type.CONNECTED
            assert await _command(reader, Sender.BROKER) == answer
            writer.close()
        assert crashed == []

    loop_run(scenario())


async def _no_broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


def test_who_reads_nothing_counts_until_it_is_cut_off(loop_run: RunOnLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "GOODBYE_S", 0.2)

    async def scenario() -> None:
        async with proxying(_no_broker, [], pipe_bytes_max=1024) as (port, proxy):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
            writer.write(CONNECT)
            await _command(reader, Sender.BROKER)
            # As many answers as neither side's kernel holds.
            writer.write(PING * 2_000_000)
            (client,) = connected = proxy._sessions
            assert client._transport is not None
            while not client._transport.get_write_buffer_size():  # noqa: ASYNC110 - told to the session alone
                await asyncio.sleep(0.01)
            client.refuse(BadCommand("no more of this"))
            for _ in range(10):
                await asyncio.sleep(0)
            assert client in connected
            while connected:  # noqa: ASYNC110 - told to nobody
                await asyncio.sleep(0.01)
            writer.transport.abort()

    loop_run(scenario())


def _led_to(port: int) -> bytes:
    connect = pb.CommandConnect(client_version="c", protocol_version=21, proxy_to_broker_url=f"127.0.0.1:{port}")
    return commands.encode(Type.CONNECT, connect)


@pytest.mark.feature("F-PXY-05")
@pytest.mark.parametrize("security", [NOBODY, WITH_A_TOKEN])
def test_a_client_cannot_have_the_proxys_credentials_sent_to_itself(
    security: SecuritySettings, loop_run: RunOnLoop
) -> None:
    """A proxy without any leads on as Pulsar's does."""
    told: list[tuple[str, bytes]] = []

    async def takes_it(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connect = (await _command(reader, Sender.CLIENT)).connect
        told.append((connect.auth_method_name, connect.auth_data))
        writer.write(CONNECTED)
        await reader.read()
        writer.close()

    async def answer_of(proxy_port: int, target_port: int) -> pb.BaseCommand:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy_port)
        writer.write(_led_to(target_port))
        answer = await _command(reader, Sender.BROKER)
        writer.close()
        return answer

    async def scenario() -> None:
        stranger = await asyncio.start_server(takes_it, "127.0.0.1", 0)
        there = stranger.sockets[0].getsockname()[1]
        async with stranger, proxying(takes_it, [], security, allowed_ports=("*",)) as (port, proxy):
            answer = await answer_of(port, there)
            web = Target("127.0.0.1", there)
            if security is NOBODY:
                assert answer.type == Type.CONNECTED
                assert told == [("", b"")]
                await proxy.check_redirect(web)
            else:
                assert (answer.type, answer.error.error) == (Type.ERROR, pb.AuthorizationError)
                assert "brokerProxyAllowedHostNames" in answer.error.message
                assert told == []
                with pytest.raises(NotAuthorized, match="brokerProxyAllowedHostNames"):
                    await proxy.check_redirect(web)
            told.clear()
            (named,) = proxy.brokers.services()
            assert (await answer_of(port, named.port)).type == Type.CONNECTED
            assert told == [("", b"") if security is NOBODY else ("token", b"the-proxys-own")]
            await proxy.check_redirect(named)
        async with proxying(takes_it, [], security, allowed_addresses=("10.0.0.0/8",)) as (_, proxy):
            with nullcontext() if security is NOBODY else pytest.raises(NotAuthorized, match="at an address"):
                await proxy.check_redirect(web)
        async with proxying(takes_it, [], security, allowed_hosts=("127.*",)) as (_, proxy):
            await proxy.check_redirect(web)

    loop_run(scenario())
