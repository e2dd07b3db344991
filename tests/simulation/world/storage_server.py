# SPDX-License-Identifier: Apache-2.0
"""A bookie's storage behind a simulated socket: the packets of BookKeeper's protocol that our ledger client sends.

Adds go to the storage in the order they came; every question is a task of its own, so answers overtake each other as
they do on a real bookie. Has no bounds of its own: what it is asked is drawn by a scenario.
Carries.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

from magnetar.bookie.storage import BookieStorage
from magnetar.errors import MagnetarError, NoSuchEntry
from magnetar.wire.bookkeeper import entry_set, v2, v3
from magnetar.wire.bookkeeper.codes import RequestFlag, ReturnCode, status_of
from magnetar.wire.bookkeeper.packet import PacketCutter, is_protobuf
from magnetar.wire.error_codes import codes_of
from magnetar.wire.proto import bookkeeper_pb2 as bk


async def serve_storage(storage: BookieStorage, port: int) -> None:
    """Returns when it listens; a node's sockets end with its process."""
    await asyncio.get_running_loop().create_server(lambda: _Connection(storage), "0.0.0.0", port)


class _Adds:
    """Answers version 2 adds of one ledger on one connection."""

    def __init__(self, connection: "_Connection", ledger_id: int) -> None:
        self._connection = connection
        self._ledger_id = ledger_id

    def on_added(self, bookie: str, first: int, last: int, code: int) -> None:
        self._connection.send(v2.encode_add_responses(code, self._ledger_id, first, last))


class _Add:
    """Answers one version 3 add."""

    def __init__(self, connection: "_Connection", request: bk.Request) -> None:
        self._connection = connection
        self._request = request

    def on_added(self, bookie: str, first: int, last: int, code: int) -> None:
        self._connection.send(v3.encode(v3.answer(self._request, status_of(code))))


class _Connection(asyncio.Protocol):
    def __init__(self, storage: BookieStorage) -> None:
        self._storage = storage
        self._cutter = PacketCutter()
        self._adds: dict[int, _Adds] = {}
        self._questions: dict[asyncio.Task[None], None] = {}
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        for question in self._questions:
            question.cancel()

    def data_received(self, data: bytes) -> None:
        for packet in self._cutter.feed(data):
            if is_protobuf(packet):
                self._serve_three(v3.decode_request(packet))
            else:
                self._serve_two(v2.decode_request(packet))

    def send(self, answer: bytes) -> None:
        if self._transport is not None:
            self._transport.write(answer)

    # --- version 2 --------------------------------------------------------------------------------------

    def _serve_two(self, request: v2.Request) -> None:
        match request:
            case v2.AddRequest():
                ledger_id, recovery = request.ledger_id, bool(request.flags & RequestFlag.RECOVERY_ADD)
                answers = self._adds.setdefault(ledger_id, _Adds(self, ledger_id))
                self._storage.add(
                    ledger_id, request.entry_id, request.entry, request.master_key, answers, recovery=recovery
                )
            case v2.ReadRequest():
                self._start(self._read(request))
            case v2.BatchReadRequest():
                self._start(self._read_batch(request))
            case _:
                raise AssertionError(f"not served here: {request}")

    async def _read(self, request: v2.ReadRequest) -> None:
        code, entry = 0, b""
        try:
            entry = await self._storage.read(request.ledger_id, request.entry_id, request.master_key)
        except (MagnetarError, OSError) as error:
            code = _code(error)
        self.send(v2.read_response_front(code, request.ledger_id, request.entry_id, len(entry)) + entry)

    async def _read_batch(self, request: v2.BatchReadRequest) -> None:
        code, entries = 0, list[bytes]()
        try:
            entries = await self._storage.read_batch(
                request.ledger_id, request.entry_id, request.entries_max, request.bytes_max
            )
        except (MagnetarError, OSError) as error:
            code = _code(error)
        ids = (request.ledger_id, request.entry_id, request.request_id)
        self.send(b"".join(v2.encode_batch_read_response(code, *ids, entries)))

    # --- version 3 --------------------------------------------------------------------------------------

    def _serve_three(self, request: bk.Request) -> None:
        if request.header.operation != bk.ADD_ENTRY:
            self._start(self._answer_three(request))
            return
        add = request.addRequest
        recovery = add.HasField("flag") and add.flag == bk.AddRequest.RECOVERY_ADD
        self._storage.add(add.ledgerId, add.entryId, add.body, add.masterKey, _Add(self, request), recovery=recovery)

    async def _answer_three(self, request: bk.Request) -> None:
        try:
            response = await self._served(request)
        except (MagnetarError, OSError) as error:
            response = v3.answer(request, status_of(_code(error)))
        self.send(v3.encode(response))

    async def _served(self, request: bk.Request) -> bk.Response:
        storage, operation = self._storage, request.header.operation
        response = v3.answer(request, bk.EOK)
        if operation == bk.READ_ENTRY:
            read = request.readRequest
            fences = read.HasField("flag") and read.flag == bk.ReadRequest.FENCE_LEDGER
            response.readResponse.body = await storage.read(
                read.ledgerId, read.entryId, read.masterKey if fences else None
            )
        elif operation == bk.READ_LAC:
            ledger_id = request.readLacRequest.ledgerId
            explicit = await storage.explicit_last_confirmed(ledger_id)
            _, last_entry = await storage.last_confirmed(ledger_id)
            if explicit is None and last_entry is None:
                raise NoSuchEntry(f"ledger {ledger_id} has no entry here")
            response.readLacResponse.lacBody = explicit or b""
            if last_entry is not None:
                response.readLacResponse.lastEntryBody = last_entry
        elif operation == bk.WRITE_LAC:
            asked = request.writeLacRequest
            await storage.write_last_confirmed(asked.ledgerId, asked.lac, asked.body, asked.masterKey)
        elif operation == bk.GET_LIST_OF_ENTRIES_OF_LEDGER:
            held = await storage.entry_ids(request.getListOfEntriesOfLedgerRequest.ledgerId)
            response.getListOfEntriesOfLedgerResponse.availabilityOfEntriesOfLedger = entry_set.encode(held)
        else:
            raise AssertionError(f"not served here: {bk.OperationType.Name(operation)}")
        return response

    def _start(self, question: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(question)
        self._questions[task] = None
        task.add_done_callback(lambda done: self._questions.pop(done, None))


def _code(error: MagnetarError | OSError) -> int:
    return int(codes_of(error).return_code if isinstance(error, MagnetarError) else ReturnCode.IO_ERROR)
