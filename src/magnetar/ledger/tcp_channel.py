# SPDX-License-Identifier: Apache-2.0
"""A bookie over TCP: BookKeeper's protocol, pipelined, with a bound on what is outstanding and a deadline for each.

Entries go over version 2, which is small and fast; what only version 3 knows goes over a second connection, because a
bookie decides the version by a connection's first packet. Replies of a read from the socket are told in runs: one call
for many entries. A cut fails everything outstanding with an unknown outcome; nothing is ever sent again from here.
Carries.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, NamedTuple, TypeVar

from magnetar.config.ledger import ChannelSettings
from magnetar.errors import BadCommand, BookieUnavailable, TooManyRequests
from magnetar.ledger.bookies import Address
from magnetar.ledger.channel import NO_ANSWER, AddListener, BookieChannel, LastConfirmed
from magnetar.ledger.link_greeting import PLAIN, Greeting, greeting_of
from magnetar.ledger.tcp_link import TcpLink
from magnetar.runtime.tasks import Tasks
from magnetar.wire.bookkeeper import entry_set, v2, v3
from magnetar.wire.bookkeeper.codes import LAST_ADD_CONFIRMED, RequestFlag, ReturnCode, code_of
from magnetar.wire.bookkeeper.entry import last_add_confirmed_of
from magnetar.wire.error_codes import error_of_return_code
from magnetar.wire.proto import bookkeeper_pb2 as bk

_RECOVERY: Final = int(RequestFlag.RECOVERY_ADD)
_TOO_MANY: Final = int(ReturnCode.TOO_MANY_REQUESTS)
# The number in the body of an explicit last add confirmed, after the ledger id.
_LAC_AT: Final = slice(8, 16)

_log = logging.getLogger(__name__)


class Waiter(NamedTuple):
    """Who waits for an add. The same entry sent twice waits twice: `behind` is the one before."""

    listener: AddListener
    generation: int
    entry_bytes: int
    behind: "Waiter | None"


class HeldAdd(NamedTuple):
    """An add that is sent when others have been answered."""

    ledger_id: int
    entry_id: int
    entry: bytes
    master_key: bytes
    listener: AddListener
    recovery: bool


Key = tuple[int, int]
Answer = TypeVar("Answer")


class TcpChannel(BookieChannel):
    __slots__ = (
        "_adds",
        "_batches",
        "_entries",
        "_generation",
        "_held",
        "_number",
        "_others",
        "_outstanding_bytes",
        "_reads",
        "_settings",
        "_timer",
        "_transactions",
        "bookie",
        "held_bytes",
    )

    def __init__(
        self,
        bookie: str,
        address: Callable[[str], Awaitable[Address]],
        tasks: Tasks,
        settings: ChannelSettings,
        greeting: Greeting = PLAIN,
    ) -> None:
        if greeting.tls is not None:
            # BookKeeper starts TLS by a packet of version 3, and a connection keeps to its first packet's version.
            settings = replace(settings, use_v2_protocol=False)
        self.bookie = bookie
        self._settings = settings
        self._entries = TcpLink(
            bookie, address, tasks, settings, self._on_entry_packets, self._on_entries_lost, greeting
        )
        self._others = TcpLink(
            bookie, address, tasks, settings, self._on_other_packets, self._on_others_lost, greeting, version_three=True
        )
        # (ledger, entry) → who waits, oldest first, so that the deadline looks at the front only.
        self._adds: dict[Key, Waiter] = {}
        self._reads: dict[Key, list[asyncio.Future[bytes]]] = {}
        self._batches: dict[int, asyncio.Future[list[bytes]]] = {}
        self._transactions: dict[int, asyncio.Future[bk.Response]] = {}
        self._number = 0
        self._outstanding_bytes = 0
        # Adds beyond what may be outstanding, in the order they came.
        self._held: deque[HeldAdd] = deque()
        self.held_bytes = 0
        # Counts deadlines passed; an add that is two behind has waited at least one whole deadline.
        self._generation = 0
        self._timer: asyncio.TimerHandle | None = None

    # --- adding -------------------------------------------------------------------------------

    def add(
        self,
        ledger_id: int,
        entry_id: int,
        entry: bytes,
        master_key: bytes,
        listener: AddListener,
        recovery: bool = False,
    ) -> None:
        if self._held or not self._has_room(len(entry)):
            self._hold(HeldAdd(ledger_id, entry_id, entry, master_key, listener, recovery))
            return
        self._send_add(ledger_id, entry_id, entry, master_key, listener, recovery)

    def _has_room(self, size: int) -> bool:
        settings = self._settings
        return not self._adds or (
            len(self._adds) < settings.outstanding_requests_max
            and self._outstanding_bytes + size <= settings.outstanding_bytes_max
        )

    def _hold(self, add: HeldAdd) -> None:
        """Many writers share a bookie: that all of them together are ahead of it is no failure of the bookie."""
        size = len(add.entry)
        if self.held_bytes + size > self._settings.held_bytes_max:
            entry_id = add.entry_id
            asyncio.get_running_loop().call_soon(add.listener.on_added, self.bookie, entry_id, entry_id, _TOO_MANY)
            return
        self._held.append(add)
        self.held_bytes += size

    def _send_held(self) -> None:
        held = self._held
        while held and self._has_room(len(held[0].entry)):
            add = held.popleft()
            self.held_bytes -= len(add.entry)
            self._send_add(*add)

    def _send_add(
        self, ledger_id: int, entry_id: int, entry: bytes, master_key: bytes, listener: AddListener, recovery: bool
    ) -> None:
        size = len(entry)
        key = (ledger_id, entry_id)
        self._adds[key] = Waiter(listener, self._generation, size, self._adds.get(key))
        self._outstanding_bytes += size
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(
                self._settings.request_timeout_ms / 1000, self._on_deadline
            )
        if self._settings.use_v2_protocol:
            self._entries.send(v2.add_front(size, master_key, _RECOVERY if recovery else 0), entry)
        else:
            self._others.send(v3.encode(self._add_request(ledger_id, entry_id, entry, master_key, recovery)))

    def _on_add_answers(self, answers: list[v2.AddResponse]) -> None:
        """Tell runs of neighbours with one owner and one outcome by one call each."""
        owner: AddListener | None = None
        first = last = code = 0
        for answer in answers:
            listener = self._waited((answer.ledger_id, answer.entry_id))
            if listener is None:
                continue
            if listener is owner and answer.entry_id == last + 1 and answer.code == code:
                last = answer.entry_id
                continue
            if owner is not None:
                owner.on_added(self.bookie, first, last, code)
            owner, code = listener, answer.code
            first = last = answer.entry_id
        if owner is not None:
            owner.on_added(self.bookie, first, last, code)
        if self._held:
            self._send_held()

    def _waited(self, key: Key) -> AddListener | None:
        waiter = self._adds.pop(key, None)
        if waiter is None:
            return None
        if waiter.behind is not None:
            self._adds[key] = waiter.behind
        self._outstanding_bytes -= waiter.entry_bytes
        return waiter.listener

    def _on_deadline(self) -> None:
        self._generation += 1
        overdue: list[Key] = []
        for key, waiter in self._adds.items():
            if waiter.generation > self._generation - 2:
                break
            overdue.append(key)
        self._timer = None
        if len(self._adds) > len(overdue):
            self._timer = asyncio.get_running_loop().call_later(
                self._settings.request_timeout_ms / 1000, self._on_deadline
            )
        self._on_add_answers([v2.AddResponse(NO_ANSWER, *key) for key in overdue])

    # --- reading ------------------------------------------------------------------------------

    async def read(self, ledger_id: int, entry_id: int, *, fence_key: bytes | None = None) -> bytes:
        if not self._settings.use_v2_protocol:
            return await self._read_v3(ledger_id, entry_id, fence_key)
        self._check_room()
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        key = (ledger_id, entry_id)
        self._reads.setdefault(key, []).append(answer)
        self._entries.send(v2.encode_read(ledger_id, entry_id, fence_key))
        try:
            return await self._in_time(answer)
        finally:
            waiting = self._reads.get(key, [])
            if answer in waiting:
                waiting.remove(answer)
                if not waiting:
                    del self._reads[key]

    async def read_batch(self, ledger_id: int, first: int, count_max: int, bytes_max: int) -> list[bytes]:
        if not self._settings.use_v2_protocol:
            # Version 3 has no batch reads.
            return [await self.read(ledger_id, first)]
        self._check_room()
        answer: asyncio.Future[list[bytes]] = asyncio.get_running_loop().create_future()
        self._number += 1
        number = self._number
        self._batches[number] = answer
        self._entries.send(v2.encode_batch_read(ledger_id, first, number, count_max, bytes_max))
        try:
            return await self._in_time(answer)
        finally:
            self._batches.pop(number, None)

    async def last_confirmed(self, ledger_id: int, *, fence_key: bytes | None = None) -> LastConfirmed:
        if fence_key is not None:
            entry = await self.read(ledger_id, LAST_ADD_CONFIRMED, fence_key=fence_key)
            return LastConfirmed(last_add_confirmed_of(entry), entry)
        request = self._request(bk.READ_LAC)
        request.readLacRequest.ledgerId = ledger_id
        answer = (await self._transact(request, f"ledger {ledger_id}")).readLacResponse
        last_entry = answer.lastEntryBody or None
        confirmed = int.from_bytes(answer.lacBody[_LAC_AT], "big", signed=True) if answer.lacBody else -1
        if last_entry is not None:
            confirmed = max(confirmed, last_add_confirmed_of(last_entry))
        return LastConfirmed(confirmed, last_entry)

    async def last_confirmed_beyond(self, ledger_id: int, previous: int, timeout_ms: int) -> LastConfirmed:
        """A long poll: the bookie answers when its number moves. The time to answer is added to the time to wait."""
        request = self._request(bk.READ_ENTRY)
        request.readRequest.ledgerId = ledger_id
        request.readRequest.entryId = LAST_ADD_CONFIRMED
        request.readRequest.flag = bk.ReadRequest.ENTRY_PIGGYBACK
        request.readRequest.previousLAC = previous
        request.readRequest.timeOut = timeout_ms
        answer = (await self._transact(request, f"ledger {ledger_id}", wait_ms=timeout_ms)).readResponse
        confirmed = answer.maxLAC if answer.HasField("maxLAC") else LAST_ADD_CONFIRMED
        return LastConfirmed(confirmed, None)

    async def force(self, ledger_id: int) -> None:
        request = self._request(bk.FORCE_LEDGER)
        request.forceLedgerRequest.ledgerId = ledger_id
        await self._transact(request, f"ledger {ledger_id}")

    async def space(self) -> tuple[int, int]:
        """All the bookie's space, and what it has left."""
        request = self._request(bk.GET_BOOKIE_INFO)
        info = bk.GetBookieInfoRequest
        request.getBookieInfoRequest.requested = info.FREE_DISK_SPACE | info.TOTAL_DISK_CAPACITY
        answer = (await self._transact(request, "its space")).getBookieInfoResponse
        return answer.totalDiskCapacity, answer.freeDiskSpace

    async def write_last_confirmed(self, ledger_id: int, entry_id: int, body: bytes, master_key: bytes) -> None:
        request = self._request(bk.WRITE_LAC)
        request.writeLacRequest.ledgerId = ledger_id
        request.writeLacRequest.lac = entry_id
        request.writeLacRequest.masterKey = master_key
        request.writeLacRequest.body = body
        await self._transact(request, f"ledger {ledger_id}")

    async def entry_ids(self, ledger_id: int) -> list[int]:
        request = self._request(bk.GET_LIST_OF_ENTRIES_OF_LEDGER)
        request.getListOfEntriesOfLedgerRequest.ledgerId = ledger_id
        answer = (await self._transact(request, f"ledger {ledger_id}")).getListOfEntriesOfLedgerResponse
        return entry_set.decode(answer.availabilityOfEntriesOfLedger, self._settings.listed_entries_max)

    def close(self) -> None:
        self._entries.close()
        self._others.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        gone = BookieUnavailable(f"The channel to {self.bookie} was closed.")
        self._on_entries_lost(gone)
        self._on_others_lost(gone)

    # --- private ------------------------------------------------------------------------------

    def _check_room(self) -> None:
        waiting = len(self._reads) + len(self._batches) + len(self._transactions)
        if waiting >= self._settings.outstanding_requests_max:
            raise TooManyRequests(f"{waiting} requests to {self.bookie} wait for an answer already.")

    def _request(self, operation: bk.OperationType.ValueType) -> bk.Request:
        self._number += 1
        return v3.request(operation, self._number)

    def _add_request(
        self, ledger_id: int, entry_id: int, entry: bytes, master_key: bytes, recovery: bool
    ) -> bk.Request:
        request = self._request(bk.ADD_ENTRY)
        request.addRequest.ledgerId = ledger_id
        request.addRequest.entryId = entry_id
        request.addRequest.masterKey = master_key
        request.addRequest.body = entry
        if recovery:
            request.addRequest.flag = bk.AddRequest.RECOVERY_ADD
        return request

    async def _read_v3(self, ledger_id: int, entry_id: int, fence_key: bytes | None) -> bytes:
        request = self._request(bk.READ_ENTRY)
        request.readRequest.ledgerId = ledger_id
        request.readRequest.entryId = entry_id
        if fence_key is not None:
            request.readRequest.flag = bk.ReadRequest.FENCE_LEDGER
            request.readRequest.masterKey = fence_key
        return (await self._transact(request, f"entry {entry_id} of ledger {ledger_id}")).readResponse.body

    async def _transact(self, request: bk.Request, about: str, *, wait_ms: int = 0) -> bk.Response:
        self._check_room()
        number = request.header.txnId
        answer: asyncio.Future[bk.Response] = asyncio.get_running_loop().create_future()
        self._transactions[number] = answer
        self._others.send(v3.encode(request), wait_ms=wait_ms)
        try:
            response = await self._in_time(answer, wait_ms)
        finally:
            self._transactions.pop(number, None)
        code = code_of(response.status)
        if code != ReturnCode.OK:
            raise error_of_return_code(code, f"{self.bookie} answers {code.name} for {about}.")
        return response

    async def _in_time(self, answer: "asyncio.Future[Answer]", wait_ms: int = 0) -> Answer:
        timeout_ms = self._settings.request_timeout_ms + wait_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await answer
        except TimeoutError:
            raise BookieUnavailable(f"{self.bookie} did not answer in {timeout_ms} ms.") from None

    def _on_entry_packets(self, packets: list[bytes]) -> None:
        added: list[v2.AddResponse] = []
        for packet in packets:
            try:
                answer = v2.decode_response(packet)
            except BadCommand as error:
                _log.warning("%s answers with what cannot be read: %s", self.bookie, error)
                continue
            if isinstance(answer, v2.AddResponse):
                added.append(answer)
            elif isinstance(answer, v2.ReadResponse):
                self._on_read(answer)
            elif isinstance(answer, v2.BatchReadResponse):
                self._on_batch(answer)
        if added:
            self._on_add_answers(added)

    def _on_read(self, answer: v2.ReadResponse) -> None:
        key = (answer.ledger_id, answer.entry_id)
        waiting = self._reads.get(key)
        if not waiting:
            return
        future = waiting.pop(0)
        if not waiting:
            del self._reads[key]
        self._resolve(future, answer.code, answer.entry, key)

    def _on_batch(self, answer: v2.BatchReadResponse) -> None:
        future = self._batches.pop(answer.request_id, None)
        if future is None:
            return
        code = answer.code
        if code == 0 and not answer.entries:
            code = int(ReturnCode.IO_ERROR)
        self._resolve(future, code, answer.entries, (answer.ledger_id, answer.entry_id))

    def _resolve(self, future: "asyncio.Future[Answer]", code: int, answer: Answer, key: Key) -> None:
        if future.done():
            return
        if code == 0:
            future.set_result(answer)
        else:
            about = f"{self.bookie} answers code {code} for entry {key[1]} of ledger {key[0]}."
            future.set_exception(error_of_return_code(code, about))

    def _on_other_packets(self, packets: list[bytes]) -> None:
        added: list[v2.AddResponse] = []
        for packet in packets:
            try:
                response = v3.decode_response(packet)
            except BadCommand as error:
                _log.warning("%s answers with what cannot be read: %s", self.bookie, error)
                continue
            if response.HasField("addResponse"):
                about = response.addResponse
                added.append(v2.AddResponse(code_of(response.status), about.ledgerId, about.entryId))
                continue
            future = self._transactions.get(response.header.txnId)
            if future is not None and not future.done():
                future.set_result(response)
        if added:
            self._on_add_answers(added)

    def _on_entries_lost(self, error: BookieUnavailable) -> None:
        for waiting in self._reads.values():
            for read in waiting:
                _fail(read, error)
        for batch in self._batches.values():
            _fail(batch, error)
        self._reads.clear()
        self._batches.clear()
        if self._settings.use_v2_protocol:
            self._fail_adds()

    def _on_others_lost(self, error: BookieUnavailable) -> None:
        for future in self._transactions.values():
            _fail(future, error)
        if not self._settings.use_v2_protocol:
            self._fail_adds()

    def _fail_adds(self) -> None:
        # Those who are told may add again at once: only what waits now is failed.
        held, self._held = self._held, deque()
        self.held_bytes = 0
        failed: list[v2.AddResponse] = []
        for key, waiter in self._adds.items():
            waiting: Waiter | None = waiter
            while waiting is not None:
                failed.append(v2.AddResponse(NO_ANSWER, *key))
                waiting = waiting.behind
        self._on_add_answers(failed)
        for add in held:
            add.listener.on_added(self.bookie, add.entry_id, add.entry_id, NO_ANSWER)


def _fail(future: "asyncio.Future[Answer]", error: BookieUnavailable) -> None:
    if not future.done():
        future.set_exception(BookieUnavailable(str(error)))


class TcpChannels:
    """The channels to every bookie, made when first asked for, used in turn: what `Ledgers` takes as its channels."""

    __slots__ = ("_address", "_asked", "_channels", "_greeting", "_settings", "_tasks")

    def __init__(self, address: Callable[[str], Awaitable[Address]], tasks: Tasks, settings: ChannelSettings) -> None:
        self._address = address
        self._tasks = tasks
        self._settings = settings
        self._greeting = greeting_of(settings)
        self._channels: dict[tuple[str, int], TcpChannel] = {}
        self._asked = 0

    @property
    def held_bytes(self) -> int:
        """Of copies that wait behind slow bookies, over all of them."""
        return sum(channel.held_bytes for channel in self._channels.values())

    async def free_bytes(self, bookie: str) -> int:
        return (await self(bookie).space())[1]

    def __call__(self, bookie: str) -> TcpChannel:
        self._asked += 1
        key = (bookie, self._asked % self._settings.connections_per_bookie)
        channel = self._channels.get(key)
        if channel is None:
            channel = TcpChannel(bookie, self._address, self._tasks, self._settings, self._greeting)
            self._channels[key] = channel
        return channel

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
