# SPDX-License-Identifier: Apache-2.0
"""Self-test of the network: echo servers on asyncio streams, and clients that compare.

What comes back is always a beginning of what was sent; and once faults are healed, a whole round comes back.
"""

import asyncio

from tests.simulation.world.checkers.violation import Violation
from tests.simulation.world.node import Node
from tests.simulation.world.registry import scenario
from tests.simulation.world.world import World

_PORT = 7
_SECONDS = 10.0
_PATIENCE_S = 3.0
_SLICE_BYTES = 20_000


@scenario("echo")
async def echo(world: World) -> None:
    servers = [world.node(f"server-{number}") for number in range(2)]
    for server in servers:
        server.start(_serve)
    clients = [world.node(f"client-{number}") for number in range(2)]
    for client in clients:
        client.start(_ask_for_ever)
    world.nemesis.targets = [*servers, *clients]
    await world.nemesis.run(_SECONDS)
    world.nemesis.heal()
    async with asyncio.timeout(60):
        for server in servers:
            while not await _round(world, server.name, world.random.randbytes(200_000)):
                continue


async def _serve(node: Node) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(4096):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(talk, "0.0.0.0", _PORT)
    await server.serve_forever()


async def _ask_for_ever(node: Node) -> None:
    random = node.random(f"asks-{node.lives}")
    while True:
        await _round(node.world, f"server-{random.randrange(2)}", random.randbytes(random.choice((1, 1000, 100_000))))
        await asyncio.sleep(random.random())


async def _round(world: World, host: str, data: bytes) -> bool:
    """Send and compare; False when the connection did not last."""
    back = b""
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(_PATIENCE_S):
            reader, writer = await asyncio.open_connection(host, _PORT)
            while len(back) < len(data):
                writer.write(data[len(back) : len(back) + _SLICE_BYTES])
                expected = min(len(data), len(back) + _SLICE_BYTES)
                while len(back) < expected:
                    piece = await reader.read(65_536)
                    if not piece:
                        return False
                    back += piece
                await asyncio.sleep(0.05)
    except (OSError, TimeoutError):
        return False
    finally:
        if not data.startswith(back):
            world.check([Violation("network", f"{host} echoed {len(back)} bytes that were not sent")])
        if writer is not None:
            writer.close()
    return True
