# SPDX-License-Identifier: Apache-2.0
"""Self-test of disk, crash and checkers: small stores that append to a synced log and acknowledge what is durable.

A store keeps one log per life; at start it reads the logs of its earlier lives up to the first damaged record.
Producers pipeline a few messages, and after a broken connection send again what was not acknowledged.

Planted bug: `ack-before-sync` acknowledges what is only queued.
"""

import asyncio
import struct
from zlib import crc32

from magnetar.runtime.disk import SyncedLog
from magnetar.runtime.simulated_faults import Latency
from tests.simulation.world.checkers.liveness import nothing_overdue
from tests.simulation.world.checkers.messages import Sent, no_acked_loss, no_ghost, no_unexplained_copy, order
from tests.simulation.world.history import Operation
from tests.simulation.world.node import Node
from tests.simulation.world.registry import scenario
from tests.simulation.world.world import World

_PORT = 7000
_STORES = 2
_SECONDS = 20.0
_WINDOW = 4
_PATIENCE_S = 2.0
_HEAD = struct.Struct(">II")
_LINE_MAX = 1024


@scenario("journal")
async def journal(world: World) -> None:
    await publish_and_check(world, _SECONDS)


async def publish_and_check(world: World, seconds: float) -> None:
    stores = [world.node(f"store-{number}") for number in range(_STORES)]
    for store in stores:
        store.disk.kernel.faults.write_latency = Latency(0.05, 0.05)
        store.disk.kernel.faults.sync_latency = Latency(0.5, 1.0)
        store.start(lambda node: _Store(node).serve())
    producers = [_Producer(world.node(f"producer-{number}"), stores[number]) for number in range(_STORES)]
    world.nemesis.targets = stores
    await world.nemesis.run(seconds)
    world.nemesis.heal()
    for producer in producers:
        producer.stopping = True
    async with asyncio.timeout(120):
        for producer in producers:
            await producer.stopped.wait()
        for store in stores:
            await _scan(world, store)
    history = world.history
    world.check(no_acked_loss(history) + order(history) + no_ghost(history) + no_unexplained_copy(history))
    world.check(nothing_overdue(history, patience_s=60.0))


class _Store:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._records: list[tuple[tuple[int, int], str]] = []
        self._log: SyncedLog | None = None
        self._path = ""
        self._waiting: list[tuple[int, int, str, asyncio.StreamWriter]] = []
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lives = 0
        self._added = 0

    async def serve(self) -> None:
        disk = self._node.disk
        await disk.make_directory("logs")
        await self._recover()
        self._path = f"logs/{self._lives:06d}"
        self._log = await disk.open_synced_log(
            self._path, on_synced=self._on_synced, on_failed=self._on_failed, preallocate_bytes=4096
        )
        await asyncio.start_server(self._talk, "0.0.0.0", _PORT)
        await self._failed

    async def _recover(self) -> None:
        disk = self._node.disk
        for name in await disk.list("logs"):
            content = await disk.read_file(f"logs/{name}", bytes_max=1 << 24)
            self._lives = int(name) + 1
            for index, payload in enumerate(_parse(content)):
                self._records.append(((int(name), index), payload))

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                command, _, text = line.decode().rstrip("\n").partition(" ")
                if command == "add":
                    self._add(text, writer)
                else:
                    writer.write(
                        "".join(
                            f"{first} {second} {payload}\n" for (first, second), payload in self._durable()
                        ).encode()
                    )
                    writer.write(b"end\n")
        except (ConnectionError, asyncio.LimitOverrunError, ValueError):
            pass
        finally:
            writer.close()

    def _durable(self) -> list[tuple[tuple[int, int], str]]:
        return self._records[: len(self._records) - len(self._waiting)]

    def _add(self, payload: str, writer: asyncio.StreamWriter) -> None:
        assert self._log is not None
        body = payload.encode()
        record = _HEAD.pack(len(body), crc32(body)) + body
        try:
            end = self._log.append([record], len(record))
        except OSError:
            writer.close()
            return
        self._records.append(((self._lives, self._added), payload))
        self._added += 1
        self._waiting.append((end - len(record), end, payload, writer))
        if "ack-before-sync" in self._node.world.planted:
            self._acknowledge(end)

    def _on_synced(self, position: int) -> None:
        self._acknowledge(position)

    def _acknowledge(self, position: int) -> None:
        world = self._node.world
        while self._waiting and self._waiting[0][1] <= position:
            start, end, payload, writer = self._waiting.pop(0)
            place = self._records[len(self._records) - len(self._waiting) - 1][0]
            world.durable_acks.acknowledged(self._node.name, self._node.disk, self._path, start, end)
            if not writer.is_closing():
                writer.write(f"ok {place[0]} {place[1]} {payload}\n".encode())

    def _on_failed(self, error: OSError) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)


class _Producer:
    def __init__(self, node: Node, store: Node) -> None:
        self._node = node
        self._history = node.world.history
        self._topic = store.name
        self._random = node.random("messages")
        self._unacknowledged: list[tuple[int, str]] = []
        self._attempts: dict[str, Operation] = {}
        self._sequence = 0
        self.stopping = False
        self.stopped = asyncio.Event()
        node.start(self._run)

    async def _run(self, node: Node) -> None:
        while not (self.stopping and not self._unacknowledged):
            try:
                reader, writer = await asyncio.open_connection(self._topic, _PORT)
            except OSError:
                await asyncio.sleep(0.05)
                continue
            try:
                await self._publish(reader, writer)
            except (OSError, TimeoutError, asyncio.IncompleteReadError):
                await asyncio.sleep(0.01 + 0.1 * self._random.random())
            finally:
                writer.close()
                for _, payload in self._unacknowledged:
                    if payload in self._attempts:
                        self._history.info(self._attempts.pop(payload), "connection lost")
        self.stopped.set()
        await asyncio.get_running_loop().create_future()

    async def _publish(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for sequence, payload in self._unacknowledged:
            self._send(writer, sequence, payload)
        while True:
            while not self.stopping and len(self._unacknowledged) < _WINDOW:
                payload = f"{self._node.name}:{self._sequence}:{'x' * self._random.randrange(300)}"
                self._unacknowledged.append((self._sequence, payload))
                self._send(writer, self._sequence, payload)
                self._sequence += 1
            if not self._unacknowledged:
                return
            async with asyncio.timeout(_PATIENCE_S):
                line = (await reader.readline()).decode()
            if not line.endswith("\n"):
                raise ConnectionResetError("the store closed the connection")
            _, life, index, payload = line.rstrip("\n").split(" ", 3)
            self._acknowledged(payload, (int(life), int(index)))
            await asyncio.sleep(0.03 * self._random.random())

    def _send(self, writer: asyncio.StreamWriter, sequence: int, payload: str) -> None:
        value = Sent(self._topic, self._node.name, sequence, payload)
        self._attempts[payload] = self._history.invoke(self._node.name, "send", value)
        writer.write(f"add {payload}\n".encode())

    def _acknowledged(self, payload: str, position: tuple[int, int]) -> None:
        assert self._unacknowledged[0][1] == payload, "acknowledged out of order"
        self._unacknowledged.pop(0)
        self._history.ok(self._attempts.pop(payload), position)


async def _scan(world: World, store: Node) -> None:
    operation = world.history.invoke("scan", "scan", store.name)
    while True:
        try:
            reader, writer = await asyncio.open_connection(store.name, _PORT)
            writer.write(b"scan all\n")
            found = []
            while (line := (await reader.readline()).decode()) != "end\n":
                if not line.endswith("\n"):
                    raise ConnectionResetError("the store closed the connection")
                life, index, payload = line.rstrip("\n").split(" ", 2)
                found.append(((int(life), int(index)), payload))
            writer.close()
        except OSError:
            await asyncio.sleep(0.1)
        else:
            world.history.ok(operation, found)
            return


def _parse(content: bytes) -> list[str]:
    """The records up to the first that is not whole."""
    found = []
    offset = 0
    while offset + _HEAD.size <= len(content):
        length, checksum = _HEAD.unpack_from(content, offset)
        body = content[offset + _HEAD.size : offset + _HEAD.size + length]
        if not length or len(body) < length or length > _LINE_MAX or crc32(body) != checksum:
            break
        found.append(body.decode())
        offset += _HEAD.size + length
    return found
