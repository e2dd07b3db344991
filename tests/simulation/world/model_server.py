# SPDX-License-Identifier: Apache-2.0
"""A ModelBookie behind a socket, speaking BookKeeper's protocol: the other end for tests of the TCP channel.

Answers version 2 and version 3 packets; a connection keeps to the version of its first packet, as Apache's bookie does.
Carries.
"""

import asyncio
from typing import cast

from magnetar.errors import BookieUnavailable, MagnetarError
from magnetar.wire.bookkeeper import entry_set, v2, v3
from magnetar.wire.bookkeeper.codes import LAST_ADD_CONFIRMED, RequestFlag, ReturnCode, status_of
from magnetar.wire.bookkeeper.packet import PacketCutter, is_protobuf
from magnetar.wire.error_codes import codes_of
from magnetar.wire.proto import bookkeeper_pb2 as bk
from tests.simulation.world.model_bookie import ModelBookie, ModelLedger


class ModelServer:
    def __init__(self, bookie: ModelBookie) -> None:
        self.bookie = bookie
        self.connections: list[ModelConnection] = []
        self.accepted = 0
        self._changed = asyncio.Event()
        self.port = 0
        self._server: asyncio.Server | None = None

    async def start(self, port: int = 0) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: ModelConnection(self), "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def until_connected(self, count: int) -> None:
        while len(self.connections) < count:
            self._changed.clear()
            await self._changed.wait()

    def on_connected(self, connection: "ModelConnection") -> None:
        self.connections.append(connection)
        self.accepted += 1
        self._changed.set()

    def cut(self) -> None:
        """Every connection is gone, without a word."""
        for connection in list(self.connections):
            assert connection.transport is not None
            connection.transport.abort()

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self.cut()
            await self._server.wait_closed()
            self._server = None


class ModelConnection(asyncio.Protocol):
    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self._bookie = server.bookie
        self._cutter = PacketCutter()
        self._is_version_3: bool | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._server.on_connected(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._server.connections.remove(self)
        for task in self._tasks:
            task.cancel()

    def data_received(self, data: bytes) -> None:
        for packet in self._cutter.feed(data):
            if self._is_version_3 is None:
                self._is_version_3 = is_protobuf(packet)
            assert self._is_version_3 == is_protobuf(packet), "two versions on one connection"
            task = asyncio.get_running_loop().create_task(self._serve(packet))
            self._tasks[task] = None
            task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _serve(self, packet: bytes) -> None:
        try:
            await self._bookie.reach()
            answer = self._answer_3(packet) if self._is_version_3 else self._answer_2(packet)
            await self._bookie.answer()
        except BookieUnavailable:
            return
        assert self.transport is not None
        self.transport.write(answer)

    def _answer_2(self, packet: bytes) -> bytes:
        request = v2.decode_request(packet)
        bookie = self._bookie
        match request:
            case v2.AddRequest():
                recovery = bool(request.flags & RequestFlag.RECOVERY_ADD)
                code = bookie.add(request.ledger_id, request.entry_id, request.entry, request.master_key, recovery)
                return v2.encode_add_response(code, request.ledger_id, request.entry_id)
            case v2.ReadRequest():
                try:
                    entry = self._read(request.ledger_id, request.entry_id, request.master_key)
                except MagnetarError as error:
                    code = codes_of(error).return_code
                    return v2.read_response_front(code, request.ledger_id, request.entry_id)
                return v2.read_response_front(0, request.ledger_id, request.entry_id, len(entry)) + entry
            case v2.BatchReadRequest():
                ids = (request.ledger_id, request.entry_id, request.request_id)
                try:
                    entries = self._batch(request)
                except MagnetarError as error:
                    return b"".join(v2.encode_batch_read_response(codes_of(error).return_code, *ids))
                return b"".join(v2.encode_batch_read_response(0, *ids, entries))
            case _:
                raise AssertionError(f"not served here: {request}")

    def _read(self, ledger_id: int, entry_id: int, fence_key: bytes | None) -> bytes:
        if fence_key is not None:
            self._bookie.fence(ledger_id, fence_key)
        if entry_id == LAST_ADD_CONFIRMED:
            last = self._bookie.confirmed(ledger_id).last_entry
            return last if last is not None else self._bookie.entry(ledger_id, entry_id)
        return self._bookie.entry(ledger_id, entry_id)

    def _batch(self, request: v2.BatchReadRequest) -> list[bytes]:
        entries = [self._bookie.entry(request.ledger_id, request.entry_id)]
        held = self._bookie.ledgers[request.ledger_id].entries
        for entry_id in range(request.entry_id + 1, request.entry_id + request.entries_max):
            entry = held.get(entry_id)
            if entry is None or sum(map(len, entries)) + len(entry) > request.bytes_max:
                break
            entries.append(entry)
        return entries

    def _answer_3(self, packet: bytes) -> bytes:
        request = v3.decode_request(packet)
        try:
            return v3.encode(self._served(request))
        except MagnetarError as error:
            return v3.encode(v3.answer(request, status_of(codes_of(error).return_code)))

    def _served(self, request: bk.Request) -> bk.Response:
        bookie, operation = self._bookie, request.header.operation
        response = v3.answer(request, bk.EOK)
        if operation == bk.ADD_ENTRY:
            add = request.addRequest
            recovery = add.HasField("flag") and add.flag == bk.AddRequest.RECOVERY_ADD
            return v3.answer(
                request, status_of(bookie.add(add.ledgerId, add.entryId, add.body, add.masterKey, recovery))
            )
        if operation == bk.READ_ENTRY:
            read = request.readRequest
            fences = read.HasField("flag") and read.flag == bk.ReadRequest.FENCE_LEDGER
            key = read.masterKey if fences else None
            response.readResponse.body = self._read(read.ledgerId, read.entryId, key)
        elif operation == bk.READ_LAC:
            found = bookie.confirmed(request.readLacRequest.ledgerId)
            response.readLacResponse.lacBody = bookie.ledgers[request.readLacRequest.ledgerId].explicit_body
            if found.last_entry is not None:
                response.readLacResponse.lastEntryBody = found.last_entry
        elif operation == bk.WRITE_LAC:
            written = request.writeLacRequest
            ledger = bookie.ledgers.setdefault(written.ledgerId, ModelLedger(written.masterKey))
            if ledger.fenced:
                return v3.answer(request, status_of(ReturnCode.FENCED))
            ledger.explicit_lac, ledger.explicit_body = written.lac, written.body
        elif operation == bk.GET_LIST_OF_ENTRIES_OF_LEDGER:
            ledger_id = request.getListOfEntriesOfLedgerRequest.ledgerId
            if ledger_id not in bookie.ledgers:
                return v3.answer(request, status_of(ReturnCode.NO_LEDGER))
            held = sorted(bookie.ledgers[ledger_id].entries)
            response.getListOfEntriesOfLedgerResponse.availabilityOfEntriesOfLedger = entry_set.encode(held)
        return response
