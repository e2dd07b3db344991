# SPDX-License-Identifier: Apache-2.0
"""A connection that breaks in the very moment in which it is established."""

import asyncio
from unittest.mock import Mock

import pytest

from magnetar.client.connection import Connection
from magnetar.config.client import ClientSettings
from magnetar.errors import ConnectionLost
from magnetar.wire import commands
from magnetar.wire.proto import pulsar_api_pb2 as pb


def test_a_connection_that_breaks_right_after_the_brokers_yes_is_not_open() -> None:
    """Simulation, broker seed 7050: it counted as open for ever, and its client asked nobody else."""

    async def scenario() -> None:
        connection = Connection("broker", ClientSettings(), None, lambda it: None)
        connection.connection_made(Mock())
        handshake = asyncio.ensure_future(connection.handshake())
        await asyncio.sleep(0)
        yes = pb.CommandConnected(server_version="any", protocol_version=commands.PROTOCOL_VERSION)
        connection.data_received(commands.encode(pb.BaseCommand.CONNECTED, yes))
        connection.connection_lost(ConnectionResetError("reset"))
        with pytest.raises(ConnectionLost, match="reset"):
            await handshake
        assert not connection.is_open
        await connection.close()

    asyncio.run(scenario())
