# SPDX-License-Identifier: Apache-2.0
"""A whole bookie on free loopback ports, and a client that says exactly what it is told to."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from magnetar.bookie.bookie import Bookie, BookieParts
from magnetar.bookie.ledger_index import LedgerIndex
from magnetar.bookie.ledger_questions import LedgerQuestions
from magnetar.bookie.plain_index import PlainLedgerIndex
from magnetar.config.bookie import BookieSettings
from magnetar.config.bookie_server import BookieServerSettings
from magnetar.metadata.memory import MemoryStore, MemoryTree
from magnetar.metadata.store import MetadataStore
from magnetar.runtime.disk import Disk
from magnetar.runtime.metrics import Metrics
from magnetar.wire.bookkeeper import v2, v3
from magnetar.wire.bookkeeper.packet import PacketCutter
from magnetar.wire.proto import bookkeeper_pb2 as bk
from tests.unit.bookie.benches import ROOMY, FixedClock

FREE_PORTS = BookieServerSettings(port=0, http_port=0, registration_check_interval_ms=10)
INSTANCE = "instance-of-tests"


async def exists(ledger_id: int) -> bool:
    return True


@asynccontextmanager
async def bookie_on_a_port(
    disk: Disk,
    settings: BookieSettings = ROOMY,
    ports: BookieServerSettings = FREE_PORTS,
    *,
    store: MetadataStore | None = None,
    failures: list[BaseException] | None = None,
    ledgers: Iterable[int] = (),
    **changes: Any,
) -> AsyncIterator[Bookie]:
    async def index_in(directory: str) -> LedgerIndex:
        return await PlainLedgerIndex.open(disk, directory)

    async def existing() -> Iterable[int]:
        return ledgers

    failed: list[BaseException] = [] if failures is None else failures
    parts = BookieParts(
        disk=disk,
        store=store or MemoryStore(MemoryTree(FixedClock())),
        clock=FixedClock(),
        metrics=Metrics(),
        index_factory=index_in,
        questions=LedgerQuestions(existing, exists),
        fresh_instance_id=INSTANCE,
        on_failed=failed.append,
    )
    bookie = await Bookie.open(parts, settings, replace(ports, **changes))
    try:
        yield bookie
    finally:
        await bookie.close()
    assert failures is not None or not failed


class RawClient:
    """One connection; packets go out as they are and come back as they are."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._cutter = PacketCutter()
        self._packets: list[bytes] = []

    @classmethod
    async def connect(cls, bookie: Bookie) -> "RawClient":
        reader, writer = await asyncio.open_connection("127.0.0.1", bookie.endpoints[0].port)
        return cls(reader, writer)

    def send(self, *data: bytes) -> None:
        self._writer.writelines(data)

    async def packet(self) -> bytes | None:
        """The next packet; None when the bookie has ended the connection."""
        async with asyncio.timeout(30):
            while not self._packets:
                data = await self._reader.read(65536)
                if not data:
                    return None
                self._packets += self._cutter.feed(data)
        return self._packets.pop(0)

    async def answer_2(self) -> v2.Response:
        packet = await self.packet()
        assert packet is not None
        return v2.decode_response(packet)

    async def answer_3(self) -> bk.Response:
        packet = await self.packet()
        assert packet is not None
        return v3.decode_response(packet)

    async def ask_3(self, request: bk.Request) -> bk.Response:
        self.send(v3.encode(request))
        return await self.answer_3()

    def close(self) -> None:
        self._writer.close()
