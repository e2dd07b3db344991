# SPDX-License-Identifier: Apache-2.0
"""One client's socket: packets in, answers out, and the place where its back-pressure acts.

Adds go straight to the storage, in the order they came; everything else is a task of its own, because it may wait for a
disk. Reading stops when too many adds wait for the journal or when the client does not take its answers; too many
questions at once are refused. Bad input is answered with the protocol's own code; only a stream that cannot be cut into
packets any more ends the connection.
Carries.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Protocol, cast

from magnetar.bookie.add_answers import BatchAnswers, LedgerAnswers, OldAnswer, ProtobufAnswer
from magnetar.bookie.guard import Guard
from magnetar.bookie.memory_reads import MemoryReads
from magnetar.bookie.storage import BookieStorage
from magnetar.bookie.version_three import VersionThree
from magnetar.config.bookie_server import BookieServerSettings
from magnetar.errors import BadCommand, MagnetarError
from magnetar.runtime.disk import Buffer
from magnetar.runtime.secret_bytes import secret_bytes
from magnetar.runtime.tasks import Tasks
from magnetar.runtime.turn_end import turn_end
from magnetar.wire.bookkeeper import v2, v3
from magnetar.wire.bookkeeper.codes import PROTOCOL_VERSION, RequestFlag, ReturnCode, status_of
from magnetar.wire.bookkeeper.packet import is_protobuf
from magnetar.wire.bookkeeper.plain_adds import PlainAdds
from magnetar.wire.bookkeeper.request_cutter import RequestCutter
from magnetar.wire.bookkeeper.shared_secret import PLUGIN, BookieSide
from magnetar.wire.error_codes import codes_of
from magnetar.wire.proto import bookkeeper_pb2 as bk

# What BookKeeper answers to whoever wants to authenticate where nobody has to.
NO_AUTHENTICATION: Final = "AuthDisabledPlugin"

_RECOVERY: Final = int(RequestFlag.RECOVERY_ADD)
_BAD_REQUEST: Final = int(ReturnCode.BAD_REQUEST)
_BAD_VERSION: Final = int(ReturnCode.BAD_VERSION)
_TOO_MANY: Final = int(ReturnCode.TOO_MANY_REQUESTS)

# What reads are counted as, in either version.
_READ: Final = "READ_ENTRY"

# A batch takes the loop for as long as a sync takes: those who add go first, if that is soon.
_BATCH_HELD_MAX_S: Final = 0.002

_log = logging.getLogger(__name__)


class ConnectionOwner(Protocol):
    """Whoever accepted the connection."""

    def on_connected(self, connection: "BookieConnection") -> bool: ...

    def on_disconnected(self, connection: "BookieConnection", tasks: Tasks) -> None: ...


class BookieConnection(asyncio.Protocol):
    """Invariant: `_adds` adds of `_adds_bytes` bytes wait for an answer; both are 0 when none does."""

    def __init__(
        self,
        storage: BookieStorage,
        version_three: VersionThree,
        settings: BookieServerSettings,
        owner: ConnectionOwner,
        frame_bytes_max: int,
        guard: Guard,
    ) -> None:
        self._storage = storage
        self._counts = storage.counts
        self._version_three = version_three
        self._settings = settings
        self._owner = owner
        self._guard = guard
        self._admission = BookieSide(guard.secret, secret_bytes) if guard.secret else None
        self._is_encrypted = False
        # What comes between the end of a TLS handshake and the moment that we hear of it.
        self._early: bytearray | None = None
        # Nothing is served to a stranger but the ways to stop being one.
        self._is_strange = guard.has_strangers
        self._loop = asyncio.get_running_loop()
        self._turn_end = turn_end()
        self._cutter = RequestCutter(frame_bytes_max)
        self._listeners: dict[int, LedgerAnswers] = {}
        self._adds = 0
        self._adds_bytes = 0
        self._out: list[Buffer] = []
        # Of those, entries that were given from memory.
        self._at_hand_bytes = 0
        self._is_writable = True
        self._reading_paused = False
        self._is_ending = False
        self._is_open = False
        # Whether it was let in and has asked for something.
        self.is_served = False
        self.peer = "?"
        self._memory_reads = MemoryReads(
            storage,
            held_max=settings.connection_reads_max,
            answer=self._answer_read,
            otherwise=self._start_plain_read,
            count=self._count_reads,
        )
        self._tasks = Tasks("bookie connection", self._on_crash, tasks_max=settings.connection_reads_max)
        self._transport: asyncio.Transport

    # --- asyncio.Protocol ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not derived from asyncio's classes.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=self._settings.connection_write_bytes_max)
        address = transport.get_extra_info("peername")
        self.peer = f"{address[0]}:{address[1]}" if isinstance(address, tuple) else str(address)
        self._is_open = True
        if not self._owner.on_connected(self):
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._early is not None:
            self._early += data
            return
        if self._is_strange:
            self._serve_stranger(self._cutter.feed(data))
            return
        self.is_served = True
        for request in self._cutter.cut(data):
            if isinstance(request, PlainAdds):
                # Nearly everything is a plain add of version 2, and those that came together go down together.
                self._adds += len(request.entries)
                self._adds_bytes += sum(map(len, request.entries))
                self._storage.add_batch(request, self)
            elif is_protobuf(request):
                self._serve_three(request)
            else:
                self._serve_two(request)
        if self._cutter.fault is not None:
            _log.warning("closing the connection of %s: %s", self.peer, self._cutter.fault)
            self._end_when_answered()
        self._adjust_reading()
        self._turn_end.run()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_open = False
        self._memory_reads.close()
        self._out.clear()
        self._owner.on_disconnected(self, self._tasks)

    def pause_writing(self) -> None:
        self._is_writable = False
        self._adjust_reading()

    def resume_writing(self) -> None:
        self._is_writable = True
        self._adjust_reading()

    # --- strangers ----------------------------------------------------------------------------

    def _serve_stranger(self, packets: list[bytes]) -> None:
        """A client proves one thing after the other, and waits for each answer: what comes with it is refused too."""
        for packet in packets:
            try:
                request = v3.decode_request(packet) if is_protobuf(packet) else v2.decode_request(packet)
            except BadCommand as error:
                self._refuse_two(packet, error)
                continue
            if isinstance(request, v2.AuthRequest):
                self._admit(request.message, None)
            elif not isinstance(request, bk.Request):
                self.send(v2.encode_refusal(packet, int(ReturnCode.UNAUTHORIZED)))
            elif request.header.operation == bk.AUTH:
                self._admit(request.authRequest, request)
            elif request.header.operation == bk.START_TLS:
                self._start_tls(request)
            else:
                self.send(v3.encode(v3.answer(request, bk.EUA)))
        if self._cutter.fault is not None:
            self._end_when_answered()

    def _admit(self, message: bk.AuthMessage, request: bk.Request | None) -> None:
        """One step of the proof, in the version it came in. A wrong one ends the connection."""
        said = None
        if self._admission is not None and (self._is_encrypted or not self._guard.tls_required):
            said = self._admission.on_message(message.authPluginName, message.payload)
        if said is None:
            _log.warning("refusing %s: it does not prove that it may ask", self.peer)
            if request is not None:
                self.send(v3.encode(v3.answer(request, bk.EUA)))
            self._end_when_answered()
            return
        answer = bk.AuthMessage(authPluginName=PLUGIN, payload=said)
        if request is None:
            self.send(v2.encode_auth(answer))
        else:
            response = v3.answer(request, bk.EOK)
            response.authResponse.CopyFrom(answer)
            self.send(v3.encode(response))
        self._look_at_stranger()

    def _look_at_stranger(self) -> None:
        self._is_strange = bool(
            (self._admission is not None and not self._admission.is_admitted)
            or (self._guard.tls_required and not self._is_encrypted)
        )

    def _start_tls(self, request: bk.Request) -> None:
        if self._guard.tls is None or self._is_encrypted:
            self.send(v3.encode(v3.answer(request, bk.EBADREQ)))
            return
        self._transport.pause_reading()
        self.send(v3.encode(v3.answer(request, bk.EOK)))
        self._flush()
        self._early = bytearray()
        self._tasks.start(self._encrypt(self._guard.tls), "TLS")

    async def _encrypt(self, context: ssl.SSLContext) -> None:
        try:
            made = await self._loop.start_tls(self._transport, self, context, server_side=True)
        except OSError as error:
            _log.info("%s does not finish its TLS handshake: %s", self.peer, error)
            self._transport.abort()
            return
        assert made is not None
        self._transport = made
        made.set_write_buffer_limits(high=self._settings.connection_write_bytes_max)
        self._is_encrypted = True
        self._look_at_stranger()
        early, self._early = self._early, None
        if early:
            self.data_received(bytes(early))

    # --- answers ------------------------------------------------------------------------------

    def send(self, *buffers: Buffer) -> None:
        """Queue an answer; it leaves together with everything else that this turn of the loop produced."""
        if not self._is_open:
            return
        if not self._out:
            self._turn_end.call(self._flush)
        self._out += buffers

    def answer_adds(self, answer: bytes, count: int, code: int) -> None:
        """Sizes are kept as a sum: each answer takes its share of it, and the last one the rest."""
        if code == 0:
            self._counts.adds_ok += count
        else:
            self._counts.adds_failed += count
        self._adds_bytes -= self._adds_bytes * count // self._adds
        self._adds -= count
        self.send(answer)
        if self._is_ending:
            self._end_when_answered()
        elif self._reading_paused:
            self._adjust_reading()

    def batch_listener(self, entries: list[bytes]) -> BatchAnswers:
        return BatchAnswers(self, entries)

    def ledger_listener(self, ledger_id: int) -> LedgerAnswers:
        """One for all adds of a ledger, so that those which follow each other are answered together."""
        found = self._listeners.get(ledger_id)
        if found is None:
            if len(self._listeners) >= self._settings.connection_ledgers_max:
                # The oldest made goes; adds that wait keep it alive.
                del self._listeners[next(iter(self._listeners))]
            found = self._listeners[ledger_id] = LedgerAnswers(self, ledger_id)
        return found

    def close(self) -> None:
        """Say what there is to say, then go."""
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    # --- version 2 ----------------------------------------------------------------------------

    def _serve_two(self, packet: bytes) -> None:
        try:
            request = v2.decode_request(packet)
        except BadCommand as error:
            self._refuse_two(packet, error)
            return
        if isinstance(request, v2.AddRequest):
            self._adds += 1
            self._adds_bytes += len(request.entry)
            version, flags, key, ledger_id, entry_id, entry = request
            old = version != PROTOCOL_VERSION
            answer = OldAnswer(self, request) if old else self.ledger_listener(ledger_id)
            self._storage.add(ledger_id, entry_id, entry, key, answer, not old and flags & _RECOVERY != 0)
        elif isinstance(request, v2.ReadRequest):
            if request.master_key is None:
                self._memory_reads.ask(request)
            else:
                self._start_read(request)
        elif isinstance(request, v2.BatchReadRequest):
            ids = (request.ledger_id, request.entry_id, request.request_id)
            refusals = v2.encode_batch_read_response(_TOO_MANY, *ids)
            self._start(partial(self._read_batch, request), _READ, refusals)
        else:
            self.send(v2.encode_auth(no_authentication()))

    def _answer_read(self, request: v2.ReadRequest, entry: bytes) -> bool:
        """Give an entry that was in memory, as far as the client takes its answers."""
        if self._at_hand_bytes > self._settings.connection_write_bytes_max:
            return False
        self._at_hand_bytes += len(entry)
        front = v2.read_response_front(0, request.ledger_id, request.entry_id, len(entry), request.version)
        self.send(front, entry)
        return True

    def _count_reads(self, entries: int, size: int) -> None:
        """So many were given from memory, of so many bytes together."""
        counts = self._counts
        counts.bytes_read += size
        for reads in (counts.read_entry, counts.requests[_READ], counts.operations[_READ]):
            reads.ok.observe(0, entries)

    def _start_read(self, request: v2.ReadRequest) -> None:
        self._start(partial(self._read, request), _READ, (_too_many_reads(request),))

    def _start_plain_read(self, request: v2.ReadRequest) -> bool:
        return self._start(partial(self._read_plainly, request), _READ, (_too_many_reads(request),))

    async def _read_plainly(self, request: v2.ReadRequest) -> int:
        try:
            return await self._read(request)
        finally:
            self._memory_reads.on_read(request.ledger_id)

    async def _read(self, request: v2.ReadRequest) -> int:
        ledger_id, entry_id = request.ledger_id, request.entry_id
        code = 0
        entry = b""
        try:
            entry = await self._storage.read(ledger_id, entry_id, request.master_key)
        except (MagnetarError, OSError) as error:
            code = code_of_error(error)
        self.send(v2.read_response_front(code, ledger_id, entry_id, len(entry), request.version), entry)
        return code

    async def _read_batch(self, request: v2.BatchReadRequest) -> int:
        settings = self._settings
        code = 0
        entries: list[bytes] = []
        count_max = min(max(request.entries_max, 1), settings.batch_read_entries_max)
        bytes_max = min(request.bytes_max, settings.batch_read_bytes_max)
        try:
            if request.master_key is not None:
                await self._storage.fence(request.ledger_id, request.master_key)
            await self._storage.adds.let_pass(_BATCH_HELD_MAX_S)
            entries = await self._storage.read_batch(request.ledger_id, request.entry_id, count_max, bytes_max)
        except (MagnetarError, OSError) as error:
            code = code_of_error(error)
        ids = (request.ledger_id, request.entry_id, request.request_id)
        self.send(*v2.encode_batch_read_response(code, *ids, entries))
        return code

    def _refuse_two(self, packet: bytes, error: BadCommand) -> None:
        version, _, _ = v2.read_packet_header(packet)
        _log.info("refusing a packet of %s: %s", self.peer, error)
        self.send(v2.encode_refusal(packet, _BAD_VERSION if version > PROTOCOL_VERSION else _BAD_REQUEST))

    # --- version 3 ----------------------------------------------------------------------------

    def _serve_three(self, packet: bytes) -> None:
        try:
            request = v3.decode_request(packet)
        except BadCommand as error:
            header = v3.read_header(packet)
            if header is None:
                self._refuse_two(packet, error)
            else:
                _log.info("refusing a packet of %s: %s", self.peer, error)
                self.send(v3.encode(v3.refusal(header, bk.EBADREQ)))
            return
        operation = request.header.operation
        if request.header.version != bk.VERSION_THREE:
            self.send(v3.encode(v3.answer(request, bk.EBADVERSION)))
        elif operation == bk.ADD_ENTRY:
            self._add_three(request)
        elif operation == bk.START_TLS:
            self._start_tls(request)
        elif operation == bk.AUTH:
            response = v3.answer(request, bk.EOK)
            response.authResponse.CopyFrom(no_authentication())
            self.send(v3.encode(response))
        else:
            name = bk.OperationType.Name(operation)
            refusal = v3.encode(v3.answer(request, bk.ETOOMANYREQUESTS))
            self._start(partial(self._answer_three, request), name, (refusal,))

    def _add_three(self, request: bk.Request) -> None:
        """An add that may be answered before it is durable is answered when it is: that promises more, and costs
        nothing where groups are synced anyway.
        """
        add = request.addRequest
        self._adds += 1
        self._adds_bytes += len(add.body)
        recovery = add.HasField("flag") and add.flag == bk.AddRequest.RECOVERY_ADD
        answer = ProtobufAnswer(self, request)
        self._storage.add(add.ledgerId, add.entryId, add.body, add.masterKey, answer, recovery)

    async def _answer_three(self, request: bk.Request) -> int:
        try:
            response = await self._version_three.answer(request)
        except (MagnetarError, OSError) as error:
            response = v3.answer(request, status_of(code_of_error(error)))
        self.send(v3.encode(response))
        return response.status

    # --- leaves -------------------------------------------------------------------------------

    def _start(self, question: Callable[[], Awaitable[int]], name: str, refusal: Sequence[bytes]) -> bool:
        """Whether it is under way now."""
        counts = self._counts
        if len(self._tasks) >= self._settings.connection_reads_max:
            counts.reads_rejected += 1
            if name in counts.requests:
                counts.requests[name].failed.observe(0)
            self.send(*refusal)
            return False
        if self._is_open:
            self._tasks.start(self._timed(question, name), name)
        return self._is_open

    async def _timed(self, question: Callable[[], Awaitable[int]], name: str) -> None:
        since = self._loop.time()
        ok = False
        counts = self._counts
        counts.questions += 1
        counts.questions_peak.note(counts.questions)
        try:
            ok = await question() == 0
        finally:
            counts.questions -= 1
            took_ms = (self._loop.time() - since) * 1000
            for by_name in (counts.requests, counts.operations):
                if name in by_name:
                    by_name[name].observe(took_ms, ok=ok)

    def _flush(self) -> None:
        out, self._out = self._out, []
        self._at_hand_bytes = 0
        if out and self._is_open:
            self._transport.writelines(out)

    def _end_when_answered(self) -> None:
        """Nothing more is understood from this client, but the adds that came before are answered."""
        self._is_ending = True
        if not self._adds:
            self.close()
        elif not self._reading_paused:
            self._reading_paused = True
            self._transport.pause_reading()

    def _adjust_reading(self) -> None:
        settings = self._settings
        if not self._is_open or self._is_ending:
            return
        if not self._reading_paused:
            if (
                not self._is_writable
                or self._adds >= settings.connection_adds_max
                or self._adds_bytes >= settings.connection_adds_bytes_max
            ):
                self._reading_paused = True
                self._transport.pause_reading()
        elif (
            self._is_writable
            and self._adds <= settings.connection_adds_max // 2
            and self._adds_bytes <= settings.connection_adds_bytes_max // 2
        ):
            self._reading_paused = False
            self._transport.resume_reading()

    def _on_crash(self, name: str, error: BaseException) -> None:
        _log.error("closing the connection of %s: %s failed", self.peer, name)
        self._transport.abort()


def _too_many_reads(request: v2.ReadRequest) -> bytes:
    return v2.read_response_front(_TOO_MANY, request.ledger_id, request.entry_id, 0, request.version)


def no_authentication() -> bk.AuthMessage:
    return bk.AuthMessage(authPluginName=NO_AUTHENTICATION, payload=NO_AUTHENTICATION.encode())


def code_of_error(error: MagnetarError | OSError) -> int:
    """A disk's own error promises nothing about what it holds."""
    return int(codes_of(error).return_code if isinstance(error, MagnetarError) else ReturnCode.IO_ERROR)
