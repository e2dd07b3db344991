# SPDX-License-Identifier: Apache-2.0
"""One client of a proxy: questions that are passed on, and what of a command goes along."""

import asyncio
from random import Random

import pytest

from magnetar.config.broker import BrokerSettings
from magnetar.config.proxy import ProxySettings
from magnetar.config.security import SecuritySettings
from magnetar.proxy.brokers import Brokers
from magnetar.proxy.proxy import Proxy
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.metrics import Metrics
from magnetar.runtime.tasks import Tasks
from magnetar.wire import commands, frame
from magnetar.wire.commands import Sender, Type
from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.conftest import RunOnLoop

pytestmark = [pytest.mark.feature("F-PXY-02")]

CONNECT = commands.encode(Type.CONNECT, pb.CommandConnect(client_version="c", protocol_version=21))
CONNECTED = commands.encode(Type.CONNECTED, pb.CommandConnected(server_version="b", protocol_version=21))
# A SUBSCRIBE without any of its fields, as it may lie beside the message that a type names.
STRAY = bytes([4 << 3 | 2, 0])


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
        server = await asyncio.start_server(broker, "127.0.0.1", 0)
        settings = ProxySettings(broker_url=f"pulsar://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        tasks = Tasks("test", lambda name, error: crashed.append(name))
        brokers = await Brokers.open(settings, Random(1), None, tasks)
        door = BrokerSettings(port=0)
        proxy = Proxy(settings, door, SecuritySettings(), brokers, SystemClock(), Metrics(), print)
        port = int((await proxy.start())["serviceUrl"].rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with server, asyncio.timeout(20):
            try:
                writer.write(CONNECT + frame.join(question.SerializeToString() + STRAY))
                assert (await _command(reader, Sender.BROKER)).type == Type.CONNECTED
                assert await _command(reader, Sender.BROKER) == answer
            finally:
                writer.close()
                await proxy.stop()
        await tasks.close()
        assert crashed == []

    loop_run(scenario())
