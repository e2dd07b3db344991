# SPDX-License-Identifier: Apache-2.0
"""Whoever takes bytes takes them when he is called: what their owner writes over them afterwards is not stored.

One test for every door that bytes go in by: a ledger's writer over each kind of channel, plain and encrypted, a managed
ledger with and without a ledger to write to, and a client's producer.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from magnetar.bookie.records import LARGE_ENTRY_BYTES
from magnetar.bookie.storage import BookieStorage
from magnetar.client.message_id import MessageId
from magnetar.client.options import CompressionType
from magnetar.config.ledger import ChannelSettings
from magnetar.ledger.bookies import Address
from magnetar.ledger.channel import BookieChannel
from magnetar.ledger.ledgers import Ledgers
from magnetar.ledger.placement import RandomPlacement
from magnetar.ledger.tcp_channel import TcpChannels
from magnetar.metadata.memory import MemoryTree
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.disk import Buffer
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.runtime.tasks import Tasks
from magnetar.standalone.local_channel import LocalBookieChannel
from magnetar.testing import LocalPulsar
from magnetar.wire.bookkeeper.codes import ReturnCode
from magnetar.wire.bookkeeper.digest import DigestType
from tests.conformance.certificates import Authority
from tests.conftest import RunOnLoop
from tests.unit.bookie.ports import bookie_on_a_port
from tests.unit.ledger.cluster import PASSWORD, QUICK, Confirmations, bodies
from tests.unit.managed_ledger.owners import World, read_all

WAYS = ("in the same process", "version 2", "version 3", "version 2 and TLS", "version 3 and TLS")
SIZES = (0, 1, 100, 4_096, LARGE_ENTRY_BYTES - 100, LARGE_ENTRY_BYTES + 100, 60_000)


class Owner:
    """Has one piece of memory for each part that it sends, and uses it for something else at once."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.sent: list[bytes] = []
        self._lent: list[bytearray] = []

    def parts(self) -> list[Buffer]:
        """The parts of one entry; `sent` keeps what they say now."""
        body = self.random.randbytes(self.random.choice(SIZES))
        cuts = sorted(self.random.randrange(len(body) + 1) for _ in range(self.random.randrange(3)))
        pieces = [bytearray(body[start:end]) for start, end in zip((0, *cuts), (*cuts, len(body)), strict=True)]
        self.sent.append(body)
        self._lent += pieces
        return [piece if self.random.random() < 0.5 else memoryview(piece) for piece in pieces]

    def write_over(self) -> None:
        for piece in self._lent:
            piece[:] = b"\xff" * len(piece)
        self._lent.clear()


@asynccontextmanager
async def way_to(
    storage: BookieStorage, port: int, tasks: Tasks, way: str, trust_file: str
) -> AsyncIterator[BookieChannel]:
    async def address(bookie: str) -> Address:
        return Address("127.0.0.1", port)

    if way == "in the same process":
        yield LocalBookieChannel(storage)
        return
    settings = ChannelSettings(
        use_v2_protocol="version 2" in way, tls_trust_file=trust_file if "TLS" in way else "", request_timeout_ms=20_000
    )
    channels = TcpChannels(address, tasks, settings)
    try:
        yield channels("b1")
    finally:
        channels.close()


@asynccontextmanager
async def client_of_one_bookie(way: str, tmp_path: Path) -> AsyncIterator[tuple[Ledgers, BookieStorage]]:
    authority = Authority(tmp_path)
    certificate, key = authority.sign("bookie")
    crashes: list[BaseException] = []
    tasks = Tasks("test", lambda name, error: crashes.append(error))
    tls: dict[str, Any] = {"tls_certificate_file": certificate, "tls_key_file": key} if "TLS" in way else {}
    async with (
        bookie_on_a_port(SimulatedDisk(), bookie_id="b1", http_enabled=False, **tls) as bookie,
        way_to(bookie.storage, bookie.endpoints[0].port, tasks, way, str(authority.file)) as channel,
    ):
        placement = RandomPlacement(lambda: ["b1"], Random(0))
        store = MemoryTree().open_session()
        try:
            yield Ledgers(store, lambda _: channel, placement, SystemClock(), Random(0), tasks, QUICK), bookie.storage
        finally:
            await tasks.close()
    assert not crashes


@pytest.mark.parametrize("way", WAYS)
def test_a_ledger_has_what_was_appended_and_not_what_its_buffers_say_later(
    way: str, tmp_path: Path, loop_run: RunOnLoop
) -> None:
    """F47: every digest, single entries and runs, parts of every size; in the bookie's memory and in its entry logs."""

    async def scenario() -> None:
        async with asyncio.timeout(60), client_of_one_bookie(way, tmp_path) as (ledgers, storage):
            for digest in DigestType:
                owner, listener = Owner(int(digest)), Confirmations()
                writer = await ledgers.create(
                    ensemble_size=1,
                    write_quorum=1,
                    ack_quorum=1,
                    digest=digest,
                    password=PASSWORD,
                    custom_metadata={},
                    listener=listener,
                )
                for _ in range(12):
                    if owner.random.random() < 0.5:
                        writer.append(owner.parts())
                    else:
                        writer.append_run([owner.parts() for _ in range(owner.random.randrange(1, 5))])
                    owner.write_over()
                    if owner.random.random() < 0.3:
                        await asyncio.sleep(0)
                await listener.until_confirmed(len(owner.sent) - 1)
                await writer.close()
                for _ in range(2):
                    reader = await ledgers.open(writer.ledger_id, password=PASSWORD)
                    assert await bodies(reader) == owner.sent
                    assert reader.record.length == sum(map(len, owner.sent))
                    await storage.checkpoint()

    loop_run(scenario())


def test_a_log_has_what_was_appended_while_it_had_no_ledger_to_write_to(loop_run: RunOnLoop) -> None:
    """F47: entries wait for the next ledger, and their buffers are used again meanwhile."""

    async def scenario() -> None:
        world = World()
        owner = world.owner()
        ledger = await owner.open()
        first = ledger.ledgers.last.ledger_id
        world.cluster.bookies["b1"].refuse_add = lambda ledger_id, entry_id, recovery: (
            int(ReturnCode.IO_ERROR) if ledger_id == first and entry_id >= 3 and not recovery else None
        )
        lent = Owner(1)
        for _ in range(40):
            ledger.append(lent.parts())
            owner.publisher.waiting.append(lent.sent[-1])
            lent.write_over()
            if lent.random.random() < 0.5:
                await asyncio.sleep(0)
        await owner.publisher.rest()
        assert len(ledger.ledgers) > 1
        assert list((await read_all(ledger)).values()) == lent.sent
        await owner.close()
        world.check()

    loop_run(scenario())


async def _stored(pulsar: LocalPulsar, count: int) -> Sequence[bytes]:
    async with pulsar.client() as client, await client.create_reader("t", MessageId.earliest) as reader:
        return [(await reader.read_next(20_000)).data() for _ in range(count)]


@pytest.mark.parametrize(
    "options",
    [
        {"batching_enabled": False},
        {"batching_enabled": True, "batching_max_publish_delay_ms": 60_000},
        {"batching_enabled": False, "compression_type": CompressionType.LZ4},
        {"batching_enabled": False, "chunking_enabled": True, "chunk_bytes_max": 1_000},
    ],
    ids=["plain", "batched", "compressed", "chunked"],
)
def test_a_message_says_what_it_said_when_it_was_submitted(options: dict[str, Any], loop_run: RunOnLoop) -> None:
    """F47: a producer is given memory that its owner uses again before there is a receipt."""

    async def scenario() -> None:
        owner = Owner(2)
        async with asyncio.timeout(30), LocalPulsar(transport="memory") as pulsar:
            async with pulsar.client() as client:
                producer = await client.create_producer("t", **options)
                receipts = []
                for _ in range(10):
                    content = bytearray(owner.random.randbytes(owner.random.choice(SIZES[1:4])))
                    owner.sent.append(bytes(content))
                    receipts.append(await producer.submit(content))
                    content[:] = b"\xff" * len(content)
                await producer.flush()
                for receipt in receipts:
                    await receipt
            assert await _stored(pulsar, len(owner.sent)) == owner.sent

    loop_run(scenario())
