# SPDX-License-Identifier: Apache-2.0
"""The list of ledgers that lost a copy, shared by auditor and workers: BookKeeper's tree of marks and locks.

A mark names the bookies whose copies are missing; marks of several auditors merge. A lock is an ephemeral record: it
keeps two workers from copying the same ledger at once, and only saves work, because every change of a ledger's record
is guarded by version. Never decides what is missing and never copies.
Carries.
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, NamedTuple

from google.protobuf import text_format

from magnetar.errors import BadVersion, DamagedRecord, MetadataError, NoRecord
from magnetar.ledger.paths import (
    REPAIR_DISABLED,
    REPAIR_LAYOUT,
    REPAIR_LEDGERS,
    REPAIR_LOST_BOOKIE_DELAY,
    repair_lock_path,
    repair_path,
    repaired_ledger_at,
)
from magnetar.metadata.store import MUST_NOT_EXIST, MetadataStore
from magnetar.runtime.clock import WallClock
from magnetar.wire.proto.ledger_formats_pb2 import (
    LedgerRereplicationLayoutFormat,
    LockDataFormat,
    UnderreplicatedLedgerFormat,
)

# Levels of directories above a mark.
_DEPTH: Final = 4
_LAYOUT: Final = LedgerRereplicationLayoutFormat(type="BASIC", version=1)


class Mark(NamedTuple):
    """A ledger on the list."""

    ledger_id: int
    missing: tuple[str, ...]
    marked_ms: int
    version: int


def decode_mark(ledger_id: int, value: bytes, version: int) -> Mark:
    """Raises DamagedRecord."""
    try:
        message = text_format.Parse(value.decode(), UnderreplicatedLedgerFormat())
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise DamagedRecord(f"The mark of ledger {ledger_id} cannot be read: {error}") from error
    return Mark(ledger_id, tuple(message.replica), message.ctime, version)


class RepairList:
    __slots__ = ("_clock", "_locked", "_owner", "_store")

    def __init__(self, store: MetadataStore, clock: WallClock, owner: str) -> None:
        self._store = store
        self._clock = clock
        self._owner = owner
        # The ledgers that workers of this process hold the lock of, as far as they know.
        self._locked: set[int] = set()

    async def prepare(self) -> None:
        with contextlib.suppress(BadVersion):
            value = text_format.MessageToString(_LAYOUT).encode()
            await self._store.put(REPAIR_LAYOUT, value, expected_version=MUST_NOT_EXIST)

    # --- marks --------------------------------------------------------------------------------

    async def mark(self, ledger_id: int, missing: Sequence[str]) -> None:
        """Put a ledger on the list, or add to what is missing of it."""
        path = repair_path(ledger_id)
        while True:
            present = await self.look(ledger_id)
            if present is not None and set(missing) <= set(present.missing):
                return
            message = UnderreplicatedLedgerFormat(ctime=present.marked_ms if present else self._clock.now_ms())
            message.replica.extend(dict.fromkeys((*(present.missing if present else ()), *missing)))
            value = text_format.MessageToString(message, as_utf8=True).encode()
            expected = present.version if present else MUST_NOT_EXIST
            try:
                await self._store.put(path, value, expected_version=expected)
                return
            except (BadVersion, NoRecord):
                continue

    async def look(self, ledger_id: int) -> Mark | None:
        record = await self._store.get(repair_path(ledger_id))
        if record is None:
            return None
        return decode_mark(ledger_id, record.value, record.version)

    async def marked(self) -> AsyncIterator[int]:
        """Every ledger on the list; one that comes or goes meanwhile may be told or not."""
        async for path in self._below(REPAIR_LEDGERS, _DEPTH):
            ledger_id = repaired_ledger_at(path)
            if ledger_id is not None:
                yield ledger_id

    async def finish(self, mark: Mark) -> None:
        """Take a repaired ledger off the list, unless something was added to its mark meanwhile."""
        path = repair_path(mark.ledger_id)
        with contextlib.suppress(NoRecord, BadVersion):
            await self._store.delete(path, expected_version=mark.version)
        for _ in range(_DEPTH):
            path = path.rpartition("/")[0]
            try:
                await self._store.delete(path)
            except MetadataError:
                # It has other children, or somebody was faster; an empty directory harms nobody.
                return

    async def _below(self, path: str, depth: int) -> AsyncIterator[str]:
        for name in await self._store.children(path):
            child = f"{path}/{name}"
            if depth == 0:
                yield child
            else:
                async for found in self._below(child, depth - 1):
                    yield found

    # --- locks --------------------------------------------------------------------------------

    async def lock(self, ledger_id: int) -> bool:
        """Whether this worker may repair the ledger now. The lock ends with `unlock` or with the session.

        A lock in our name that nobody here holds is ours too: the answer to an earlier attempt was lost, or the attempt
        to let go of it. It would stay as long as the session, and keep everybody from the ledger.
        """
        path = repair_lock_path(ledger_id)
        try:
            await self._store.put(path, self._lock_value(), expected_version=MUST_NOT_EXIST, ephemeral=True)
        except BadVersion:
            held = await self._store.get(path)
            if held is None or held.value != self._lock_value() or ledger_id in self._locked:
                return False
        self._locked.add(ledger_id)
        return True

    async def unlock(self, ledger_id: int) -> None:
        if ledger_id not in self._locked:
            return
        self._locked.remove(ledger_id)
        path = repair_lock_path(ledger_id)
        with contextlib.suppress(MetadataError):
            # After a lost session the lock may be another worker's by now.
            held = await self._store.get(path)
            if held is not None and held.value == self._lock_value():
                await self._store.delete(path, expected_version=held.version)

    def _lock_value(self) -> bytes:
        return text_format.MessageToString(LockDataFormat(bookieId=self._owner)).encode()

    # --- switches -----------------------------------------------------------------------------

    async def is_enabled(self) -> bool:
        return not await self._store.exists(REPAIR_DISABLED)

    async def enable(self) -> None:
        with contextlib.suppress(NoRecord):
            await self._store.delete(REPAIR_DISABLED)

    async def disable(self) -> None:
        """Nothing is marked or copied any more, by anyone, until it is enabled."""
        with contextlib.suppress(BadVersion):
            await self._store.put(REPAIR_DISABLED, b"", expected_version=MUST_NOT_EXIST)

    async def lost_bookie_delay_s(self) -> int | None:
        """How long a bookie may stay away, where an operator has set it; in seconds, as BookKeeper stores it."""
        record = await self._store.get(REPAIR_LOST_BOOKIE_DELAY)
        return int(record.value) if record is not None and record.value.isdigit() else None

    def watch_delay(self, on_set: Callable[[], None]) -> Callable[[], None]:
        """Tell when somebody sets the delay, also to what it was; returns the call that ends it."""
        return self._store.watch(REPAIR_LOST_BOOKIE_DELAY, lambda change: on_set())

    async def ask_for_audit(self) -> None:
        """Have the auditor look at once, by setting the delay to what it is: so BookKeeper's shell does."""
        await self.set_lost_bookie_delay_s(await self.lost_bookie_delay_s() or 0)

    async def set_lost_bookie_delay_s(self, delay_s: int) -> None:
        await self._store.put(REPAIR_LOST_BOOKIE_DELAY, b"%d" % delay_s)
