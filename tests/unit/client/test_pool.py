# SPDX-License-Identifier: Apache-2.0
"""The connections of a client that is closed while one of them is on its way."""

import asyncio
import ssl
from collections.abc import Callable
from random import Random

import pytest

from magnetar.client.pool import Pool, Way
from magnetar.client.service_url import Address, parse_address
from magnetar.config.client import ClientSettings
from magnetar.errors import AlreadyClosed
from magnetar.runtime.tasks import Tasks
from magnetar.wire.commands import Type
from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.unit.client.fake_broker import FakeBroker, FakeConnection


def test_a_connection_that_is_established_after_the_pool_was_closed_is_closed_too() -> None:
    """CI: its socket stayed open until it was collected."""

    async def scenario() -> None:
        held: list[FakeConnection] = []
        transports: list[asyncio.Transport] = []
        asked = asyncio.Event()

        async def connect(make: Callable[[], asyncio.Protocol], target: Address, tls: ssl.SSLContext | None) -> None:
            transport, _ = await asyncio.get_running_loop().create_connection(make, target.host, target.port)
            transports.append(transport)

        def hold(connection: FakeConnection, command: pb.BaseCommand) -> bool:
            held.append(connection)
            asked.set()
            return command.type == Type.CONNECT

        async with FakeBroker(faults=[hold]) as broker:
            tasks = Tasks("test", lambda name, error: None)
            pool = Pool(ClientSettings(), None, None, Random(1), tasks, connect)
            connecting = asyncio.ensure_future(pool.connect(Way(parse_address(broker.url))))
            async with asyncio.timeout(30):
                await asked.wait()
            await pool.close()
            held[0].on_connect(pb.CommandConnect())
            with pytest.raises(AlreadyClosed):
                await connecting
            assert pool.connections == []
            assert [transport.is_closing() for transport in transports] == [True]
            await tasks.close()

    asyncio.run(scenario())
