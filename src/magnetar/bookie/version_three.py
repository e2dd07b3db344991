# SPDX-License-Identifier: Apache-2.0
"""What a bookie answers to a version 3 request other than an add: reads, long polls, confirmations, lists, free space.

Owns the meaning of each operation's fields. Raises what the storage raises; the connection knows the codes.
Carries.
"""

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from magnetar.bookie.storage import BookieStorage
from magnetar.errors import BadCommand, BookieReadOnly, NoSuchEntry, WrongMasterKey
from magnetar.wire.bookkeeper import entry_set, v3
from magnetar.wire.bookkeeper.codes import LAST_ADD_CONFIRMED
from magnetar.wire.proto import bookkeeper_pb2 as bk


class Space(NamedTuple):
    total_bytes: int
    free_bytes: int


class VersionThree:
    def __init__(
        self, storage: BookieStorage, space: Callable[[], Awaitable[Space]], *, long_poll_timeout_max_ms: int
    ) -> None:
        self._storage = storage
        self._space = space
        self._long_poll_timeout_max_ms = long_poll_timeout_max_ms
        self._answers: Final = {
            int(bk.READ_ENTRY): self._read,
            int(bk.READ_LAC): self._read_last_confirmed,
            int(bk.WRITE_LAC): self._write_last_confirmed,
            int(bk.GET_BOOKIE_INFO): self._bookie_info,
            int(bk.FORCE_LEDGER): self._force,
            int(bk.GET_LIST_OF_ENTRIES_OF_LEDGER): self._entry_ids,
        }

    async def answer(self, request: bk.Request) -> bk.Response:
        """The whole response. BadCommand for what this bookie does not do, such as TLS."""
        serve = self._answers.get(request.header.operation)
        if serve is None:
            raise BadCommand(f"{bk.OperationType.Name(request.header.operation)} is not served here")
        response = v3.answer(request, bk.EOK)
        await serve(request, response)
        return response

    async def _read(self, request: bk.Request, response: bk.Response) -> None:
        asked = request.readRequest
        fence_key = None
        if asked.HasField("flag") and asked.flag == bk.ReadRequest.FENCE_LEDGER:
            if not asked.HasField("masterKey"):
                raise WrongMasterKey(f"fencing ledger {asked.ledgerId} takes its master key")
            fence_key = asked.masterKey
        if asked.HasField("previousLAC"):
            await self._long_poll(asked, response.readResponse, fence_key)
            return
        response.readResponse.body = await self._storage.read(asked.ledgerId, asked.entryId, fence_key)
        if fence_key is None:
            response.readResponse.maxLAC = (await self._storage.last_confirmed(asked.ledgerId))[0]

    async def _long_poll(self, asked: bk.ReadRequest, said: bk.ReadResponse, fence_key: bytes | None) -> None:
        """Wait until the last add confirmed is beyond the one that the reader knows, then read."""
        storage, ledger_id, previous = self._storage, asked.ledgerId, asked.previousLAC
        if asked.HasField("timeOut"):
            timeout_ms = min(max(asked.timeOut, 0), self._long_poll_timeout_max_ms)
            confirmed, _ = await storage.last_confirmed_beyond(ledger_id, previous, timeout_ms)
        else:
            confirmed, _ = await storage.last_confirmed(ledger_id)
        said.maxLAC = confirmed
        if not (asked.HasField("flag") and asked.flag == bk.ReadRequest.ENTRY_PIGGYBACK):
            said.body = await storage.read(ledger_id, asked.entryId, fence_key)
            return
        if asked.entryId != LAST_ADD_CONFIRMED:
            raise BadCommand(f"a long poll that brings an entry along asks for entry {asked.entryId}, not for the last")
        if confirmed > previous:
            try:
                said.body = await storage.read(ledger_id, previous + 1)
                said.entryId = previous + 1
            except NoSuchEntry:
                # It may lie on other bookies of a striped ledger: the number alone is worth an answer.
                said.entryId = asked.entryId

    async def _read_last_confirmed(self, request: bk.Request, response: bk.Response) -> None:
        ledger_id = request.readLacRequest.ledgerId
        explicit = await self._storage.explicit_last_confirmed(ledger_id)
        _, last_entry = await self._storage.last_confirmed(ledger_id)
        if explicit is None and last_entry is None:
            raise NoSuchEntry(f"ledger {ledger_id} has no entry here")
        if explicit is not None:
            response.readLacResponse.lacBody = explicit
        if last_entry is not None:
            response.readLacResponse.lastEntryBody = last_entry

    async def _write_last_confirmed(self, request: bk.Request, response: bk.Response) -> None:
        asked = request.writeLacRequest
        if self._storage.is_read_only:
            raise BookieReadOnly("this bookie is read-only")
        await self._storage.write_last_confirmed(asked.ledgerId, asked.lac, asked.body, asked.masterKey)

    async def _force(self, request: bk.Request, response: bk.Response) -> None:
        """What was answered is durable already."""
        if self._storage.is_read_only:
            raise BookieReadOnly("this bookie is read-only")

    async def _bookie_info(self, request: bk.Request, response: bk.Response) -> None:
        requested = request.getBookieInfoRequest.requested
        space = await self._space()
        if requested & bk.GetBookieInfoRequest.TOTAL_DISK_CAPACITY:
            response.getBookieInfoResponse.totalDiskCapacity = space.total_bytes
        if requested & bk.GetBookieInfoRequest.FREE_DISK_SPACE:
            response.getBookieInfoResponse.freeDiskSpace = space.free_bytes

    async def _entry_ids(self, request: bk.Request, response: bk.Response) -> None:
        ledger_id = request.getListOfEntriesOfLedgerRequest.ledgerId
        held = entry_set.encode(await self._storage.entry_ids(ledger_id))
        response.getListOfEntriesOfLedgerResponse.availabilityOfEntriesOfLedger = held
