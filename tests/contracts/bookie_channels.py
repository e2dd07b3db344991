# SPDX-License-Identifier: Apache-2.0
"""The implementations of BookieChannel that the contract suite runs over; a new one is a line in CHANNELS.

Each is an async context that gives a channel to an empty bookie which answers.
Assembles.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

from magnetar.config.ledger import ChannelSettings
from magnetar.ledger.bookies import Address
from magnetar.ledger.channel import BookieChannel
from magnetar.ledger.tcp_channel import TcpChannel
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.runtime.tasks import Tasks
from magnetar.standalone.local_channel import LocalBookieChannel
from tests.simulation.world.model_bookie import ModelBookie
from tests.simulation.world.model_server import ModelServer
from tests.unit.bookie.benches import ROOMY, bench
from tests.unit.bookie.ports import bookie_on_a_port

OpenChannel = Callable[[], AbstractAsyncContextManager[BookieChannel]]


@asynccontextmanager
async def model_channel() -> AsyncIterator[BookieChannel]:
    yield ModelBookie("b1").channel()


@asynccontextmanager
async def tcp_channel(*, use_v2_protocol: bool) -> AsyncIterator[BookieChannel]:
    crashes: list[BaseException] = []
    server = ModelServer(ModelBookie("b1"))
    await server.start()
    tasks = Tasks("test", lambda name, error: crashes.append(error))

    async def address(bookie: str) -> Address:
        return Address("127.0.0.1", server.port)

    channel = TcpChannel("b1", address, tasks, ChannelSettings(use_v2_protocol=use_v2_protocol))
    try:
        yield channel
    finally:
        channel.close()
        await tasks.close()
        await server.stop()
    assert not crashes


@asynccontextmanager
async def bookie_channel(*, use_v2_protocol: bool) -> AsyncIterator[BookieChannel]:
    """A whole bookie of ours behind its port."""
    crashes: list[BaseException] = []
    tasks = Tasks("test", lambda name, error: crashes.append(error))
    async with bookie_on_a_port(SimulatedDisk(), bookie_id="b1") as bookie:

        async def address(name: str) -> Address:
            return Address("127.0.0.1", bookie.endpoints[0].port)

        channel = TcpChannel("b1", address, tasks, ChannelSettings(use_v2_protocol=use_v2_protocol))
        try:
            yield channel
        finally:
            channel.close()
            await tasks.close()
    assert not crashes


@asynccontextmanager
async def local_channel() -> AsyncIterator[BookieChannel]:
    """A whole bookie's storage in the same process."""
    async with bench(SimulatedDisk(), ROOMY) as storage:
        storage.bookie = "b1"
        yield LocalBookieChannel(storage)


CHANNELS: dict[str, OpenChannel] = {
    "bookie-2": partial(bookie_channel, use_v2_protocol=True),
    "bookie-3": partial(bookie_channel, use_v2_protocol=False),
    "local": local_channel,
    "model": model_channel,
    "tcp-2": partial(tcp_channel, use_v2_protocol=True),
    "tcp-3": partial(tcp_channel, use_v2_protocol=False),
}
