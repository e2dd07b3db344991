# SPDX-License-Identifier: Apache-2.0
"""A bookie as the protocol describes it, in memory, behind the BookieChannel seam: for tests of the ledger client.

Knows fencing, master keys, gaps, explicit last add confirmed and limbo. Each request may be delayed, refused, lost on
the way in, or answered by nothing; each of these is drawn from a `Weather` or set by hand. `BookieChannel` objects made
by `channel()` share the bookie, so several clients see one state. Never writes a disk: what it holds is durable.
Carries.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from magnetar.errors import (
    BookieUnavailable,
    EntryUnknown,
    LedgerFenced,
    NoSuchEntry,
    NoSuchLedger,
    WrongMasterKey,
)
from magnetar.ledger.channel import NO_ANSWER, AddListener, BookieChannel, LastConfirmed
from magnetar.wire.bookkeeper.codes import ReturnCode
from magnetar.wire.bookkeeper.entry import last_add_confirmed_of


@dataclass
class Weather:
    """What may happen to a request; all draws come from `random`, so a seed repeats them."""

    random: Random = field(default_factory=lambda: Random(0))
    delay_max_ms: float = 0.0
    lost_requests: float = 0.0
    lost_answers: float = 0.0

    def delay_s(self) -> float:
        return self.random.random() * self.delay_max_ms / 1000

    def loses_request(self) -> bool:
        return self.lost_requests > 0 and self.random.random() < self.lost_requests

    def loses_answer(self) -> bool:
        return self.lost_answers > 0 and self.random.random() < self.lost_answers


@dataclass
class ModelLedger:
    master_key: bytes
    entries: dict[int, bytes] = field(default_factory=dict)
    fenced: bool = False
    explicit_lac: int = -1
    explicit_body: bytes = b""


class ModelBookie:
    """One storage server's state and faults."""

    def __init__(self, name: str, weather: Weather | None = None) -> None:
        self.name = name
        self.weather = weather or Weather()
        self.ledgers: dict[int, ModelLedger] = {}
        self.is_up = True
        # Requests wait until it is set again; answers to what was waiting come then.
        self.is_stalled = False
        # After data loss: it will not say that anything is absent.
        self.in_limbo = False
        self.read_only = False
        # Set by hand: the code with which an add is refused, or None.
        self.refuse_add: Callable[[int, int, bool], int | None] = lambda ledger_id, entry_id, recovery: None
        # Told of every request as it arrives, with the client's name and the kind of request.
        self.on_request: Callable[[str, str], None] | None = None
        self.adds = 0
        self.reads = 0
        self._resumed = asyncio.Event()

    def channel(self, client: str = "") -> "ModelChannel":
        return ModelChannel(self, client)

    def stall(self) -> None:
        self.is_stalled = True
        self._resumed.clear()

    def resume(self) -> None:
        self.is_stalled = False
        self._resumed.set()

    async def reach(self) -> None:
        """The way in."""
        delay = self.weather.delay_s()
        if delay:
            await asyncio.sleep(delay)
        if self.is_stalled:
            await self._resumed.wait()
        if not self.is_up or self.weather.loses_request():
            raise BookieUnavailable(f"{self.name} cannot be reached.")

    async def answer(self) -> None:
        """The way out: what was done stays done."""
        delay = self.weather.delay_s()
        if delay:
            await asyncio.sleep(delay)
        if not self.is_up or self.weather.loses_answer():
            raise BookieUnavailable(f"{self.name} did not answer.")

    # --- what the storage does ----------------------------------------------------------------

    def add(self, ledger_id: int, entry_id: int, entry: bytes, master_key: bytes, recovery: bool) -> int:
        self.adds += 1
        refusal = self.refuse_add(ledger_id, entry_id, recovery)
        if refusal is not None:
            return refusal
        if self.read_only and not recovery:
            return ReturnCode.READ_ONLY
        ledger = self.ledgers.setdefault(ledger_id, ModelLedger(master_key))
        if ledger.master_key != master_key:
            return ReturnCode.UNAUTHORIZED
        if ledger.fenced and not recovery:
            return ReturnCode.FENCED
        ledger.entries[entry_id] = entry
        return ReturnCode.OK

    def fence(self, ledger_id: int, master_key: bytes) -> None:
        ledger = self.ledgers.setdefault(ledger_id, ModelLedger(master_key))
        if ledger.master_key != master_key:
            raise WrongMasterKey(f"{self.name}: another password made ledger {ledger_id}.")
        ledger.fenced = True

    def entry(self, ledger_id: int, entry_id: int) -> bytes:
        self.reads += 1
        ledger = self.ledgers.get(ledger_id)
        if ledger is not None and entry_id in ledger.entries:
            return ledger.entries[entry_id]
        if self.in_limbo:
            raise EntryUnknown(f"{self.name} is in limbo: it cannot say whether it held entry {entry_id}.")
        if ledger is None:
            raise NoSuchLedger(f"{self.name} holds nothing of ledger {ledger_id}.")
        raise NoSuchEntry(f"{self.name} does not hold entry {entry_id} of ledger {ledger_id}.")

    def confirmed(self, ledger_id: int) -> LastConfirmed:
        ledger = self.ledgers.get(ledger_id)
        if ledger is None or not ledger.entries:
            if self.in_limbo:
                raise EntryUnknown(f"{self.name} is in limbo: it cannot say how far ledger {ledger_id} goes.")
            if ledger is None:
                raise NoSuchLedger(f"{self.name} holds nothing of ledger {ledger_id}.")
            return LastConfirmed(ledger.explicit_lac, None)
        last = ledger.entries[max(ledger.entries)]
        return LastConfirmed(max(ledger.explicit_lac, last_add_confirmed_of(last)), last)


class ModelChannel(BookieChannel):
    """One client's way to a ModelBookie. Adds of one channel arrive in the order they were sent, as over TCP."""

    def __init__(self, bookie: ModelBookie, client: str) -> None:
        self.bookie = bookie.name
        self.client = client
        self._model = bookie
        # Set by hand: kinds of request ("add", "read", "last_confirmed", …) that this client loses on the way in.
        self.lost: set[str] = set()
        # Set by hand: so many entries are given without waiting, as by a bookie of the same process.
        self.at_hand_max = 0
        self._open_gate = asyncio.Event()
        self._open_gate.set()
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._arrived: asyncio.Future[None] | None = None
        self._closed = False

    def hold(self) -> None:
        """This client's requests wait on the way in, until `let_go`."""
        self._open_gate.clear()

    def let_go(self) -> None:
        self._open_gate.set()

    async def _reach(self, kind: str) -> None:
        await self._open_gate.wait()
        if self._model.on_request is not None:
            self._model.on_request(self.client, kind)
        if kind in self.lost:
            raise BookieUnavailable(f"{self.bookie} cannot be reached.")
        await self._model.reach()

    def add(
        self,
        ledger_id: int,
        entry_id: int,
        entry: bytes,
        master_key: bytes,
        listener: AddListener,
        recovery: bool = False,
    ) -> None:
        loop = asyncio.get_running_loop()
        before, self._arrived = self._arrived, loop.create_future()
        task = loop.create_task(
            self._carry_add(before, self._arrived, ledger_id, entry_id, entry, master_key, listener, recovery)
        )
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _carry_add(
        self,
        before: asyncio.Future[None] | None,
        arrived: asyncio.Future[None],
        ledger_id: int,
        entry_id: int,
        entry: bytes,
        master_key: bytes,
        listener: AddListener,
        recovery: bool,
    ) -> None:
        code: int = NO_ANSWER
        try:
            try:
                await self._reach("add")
                if before is not None:
                    await asyncio.shield(before)
                code = self._model.add(ledger_id, entry_id, entry, master_key, recovery)
            finally:
                if not arrived.done():
                    arrived.set_result(None)
            await self._model.answer()
        except BookieUnavailable:
            code = NO_ANSWER
        if not self._closed:
            listener.on_added(self.bookie, entry_id, entry_id, code)

    async def read(self, ledger_id: int, entry_id: int, *, fence_key: bytes | None = None) -> bytes:
        await self._reach("read")
        if fence_key is not None:
            self._model.fence(ledger_id, fence_key)
        try:
            return self._model.entry(ledger_id, entry_id)
        finally:
            await self._model.answer()

    async def read_batch(self, ledger_id: int, first: int, count_max: int, bytes_max: int) -> list[bytes]:
        await self._reach("read_batch")
        # Counts, and says what is wrong.
        self._model.entry(ledger_id, first)
        entries = self._run(ledger_id, first, max(1, count_max), bytes_max)
        await self._model.answer()
        return entries

    def at_hand(self, ledger_id: int, first: int, count_max: int, bytes_max: int) -> list[bytes]:
        if not self._model.is_up:
            raise BookieUnavailable(f"{self.bookie} cannot be reached.")
        if ledger_id not in self._model.ledgers or not self.at_hand_max:
            return []
        return self._run(ledger_id, first, min(count_max, self.at_hand_max), bytes_max)

    def _run(self, ledger_id: int, first: int, count_max: int, bytes_max: int) -> list[bytes]:
        entries: list[bytes] = []
        held = self._model.ledgers[ledger_id].entries
        for entry_id in range(first, first + count_max):
            entry = held.get(entry_id)
            if entry is None or (entries and sum(map(len, entries)) + len(entry) > bytes_max):
                break
            entries.append(entry)
        return entries

    async def last_confirmed(self, ledger_id: int, *, fence_key: bytes | None = None) -> LastConfirmed:
        await self._reach("last_confirmed")
        if fence_key is not None:
            self._model.fence(ledger_id, fence_key)
        try:
            return self._model.confirmed(ledger_id)
        finally:
            await self._model.answer()

    async def write_last_confirmed(self, ledger_id: int, entry_id: int, body: bytes, master_key: bytes) -> None:
        await self._reach("write_last_confirmed")
        ledger = self._model.ledgers.setdefault(ledger_id, ModelLedger(master_key))
        if ledger.master_key != master_key:
            raise WrongMasterKey(f"{self.bookie}: another password made ledger {ledger_id}.")
        if ledger.fenced:
            raise LedgerFenced(f"{self.bookie}: ledger {ledger_id} is fenced.")
        if entry_id > ledger.explicit_lac:
            ledger.explicit_lac, ledger.explicit_body = entry_id, body
        await self._model.answer()

    async def entry_ids(self, ledger_id: int) -> list[int]:
        await self._reach("entry_ids")
        ledger = self._model.ledgers.get(ledger_id)
        if ledger is None:
            raise NoSuchLedger(f"{self.bookie} holds nothing of ledger {ledger_id}.")
        await self._model.answer()
        return sorted(ledger.entries)

    def close(self) -> None:
        """As a cut connection: what was sent may arrive, its answers do not."""
        self._closed = True
