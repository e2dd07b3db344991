# SPDX-License-Identifier: Apache-2.0
"""Ledger records in the metadata store: made once, changed only by version, removed last.

Owns ids, paths and the handling of answers that never came: an unknown outcome is settled by reading back, a store that
is away for a moment is asked again, a bounded number of times. Never decides what a record should become.
Carries.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, NamedTuple, Protocol, TypeVar

from magnetar.config.ledger import LedgerSettings
from magnetar.errors import BadVersion, MetadataError, NoRecord, NoSuchLedger, OutcomeUnknown
from magnetar.ledger.paths import (
    AVAILABLE,
    ID_GENERATOR,
    LAYOUT,
    LAYOUT_VALUE,
    LONG_ID_GENERATOR,
    LONG_IDS_FROM,
    READONLY,
    ROOT,
    ledger_id_at,
    ledger_path,
    tree_depth,
)
from magnetar.ledger.record import LedgerRecord
from magnetar.ledger.record_format import decode_record, encode_record
from magnetar.metadata.store import MUST_NOT_EXIST, MetadataStore

Answer = TypeVar("Answer")

_HIGH_BITS_PREFIX: Final = "HOB-"


class Versioned(NamedTuple):
    """A record as the store holds it. Pass it back to change it."""

    record: LedgerRecord
    version: int


class Tokens(Protocol):
    def getrandbits(self, bits: int, /) -> int: ...


class LedgerCatalog:
    __slots__ = ("_high_bits", "_random", "_settings", "_store")

    def __init__(self, store: MetadataStore, random: Tokens, settings: LedgerSettings) -> None:
        self._store = store
        self._random = random
        self._settings = settings
        # The directory of long ids in use; None until looked up, -1 while ids are short.
        self._high_bits: int | None = None

    async def prepare(self) -> None:
        """Make the tree's own records where they are missing: what BookKeeper calls formatting, without erasing."""
        for path, value in ((LAYOUT, LAYOUT_VALUE), (AVAILABLE, b""), (READONLY, b"")):
            try:
                if not await self._store.exists(path):
                    await self._store.put(path, value, expected_version=MUST_NOT_EXIST)
            except BadVersion:
                continue

    async def reserve_id(self) -> int:
        """An id that no other ledger gets, whether it is used or not."""
        return await self._patiently(self._next_id)

    async def create(self, make: Callable[[int, int], LedgerRecord], ledger_id: int | None = None) -> Versioned:
        """A new ledger: `make(ledger_id, token)` gives its record.

        An id that is taken is skipped; one that was reserved and is taken nevertheless is BadVersion.
        """
        while True:
            chosen = await self.reserve_id() if ledger_id is None else ledger_id
            token = self._random.getrandbits(62)
            record = make(chosen, token)
            record.check()
            try:
                version = await self._put(record, MUST_NOT_EXIST)
            except BadVersion:
                if ledger_id is not None:
                    raise
                continue
            return Versioned(record, version)

    async def load(self, ledger_id: int) -> Versioned:
        """The record now; NoSuchLedger when the store proves that there is none."""

        async def read() -> Versioned:
            found = await self._store.get(ledger_path(ledger_id))
            if found is None:
                raise NoSuchLedger(f"There is no ledger {ledger_id}: it was never made, or was deleted.")
            return Versioned(decode_record(ledger_id, found.value), found.version)

        return await self._patiently(read)

    async def exists(self, ledger_id: int) -> bool:
        return await self._patiently(lambda: self._store.exists(ledger_path(ledger_id)))

    async def replace(self, known: Versioned, record: LedgerRecord) -> Versioned:
        """Write a changed record over the one that is known. BadVersion when it is not the stored one any more."""
        record.check()
        return Versioned(record, await self._put(record, known.version))

    async def delete(self, ledger_id: int) -> None:
        """Remove the record, whatever its version; bookies collect the entries later. NoSuchLedger when absent."""
        path = ledger_path(ledger_id)
        unsure = False
        for attempt in range(self._settings.metadata_retries_max + 1):
            try:
                await self._store.delete(path)
                return
            except NoRecord:
                if unsure:
                    return
                raise NoSuchLedger(f"There is no ledger {ledger_id} to delete.") from None
            except MetadataError as error:
                if not error.retryable or attempt == self._settings.metadata_retries_max:
                    raise
                unsure = unsure or isinstance(error, OutcomeUnknown)
                await self._pause(attempt)

    def watch(self, ledger_id: int, on_changed: Callable[[], None]) -> Callable[[], None]:
        """Tell when a ledger's record has changed; returns the call that ends it."""
        return self._store.watch(ledger_path(ledger_id), lambda change: on_changed())

    async def ledger_ids(self) -> AsyncIterator[int]:
        """Every ledger on record, in rising order. A ledger made or deleted meanwhile may be told or not."""
        for short in (True, False):
            for top in await self._children(ROOT):
                depth = tree_depth(top)
                if depth == (2 if short else 4):
                    async for ledger_id in self._below(f"{ROOT}/{top}", depth):
                        yield ledger_id

    # --- private ------------------------------------------------------------------------------

    async def _below(self, path: str, depth: int) -> AsyncIterator[int]:
        for name in await self._children(path):
            child = f"{path}/{name}"
            if depth > 1:
                async for ledger_id in self._below(child, depth - 1):
                    yield ledger_id
            elif (found := ledger_id_at(child)) is not None:
                yield found

    async def _children(self, path: str) -> list[str]:
        return await self._patiently(lambda: self._store.children(path))

    async def _put(self, record: LedgerRecord, expected: int) -> int:
        path = ledger_path(record.ledger_id)
        value = encode_record(record)
        for attempt in range(self._settings.metadata_retries_max + 1):
            try:
                return (await self._store.put(path, value, expected_version=expected)).version
            except OutcomeUnknown:
                if attempt == self._settings.metadata_retries_max:
                    raise
            except MetadataError as error:
                if not error.retryable or attempt == self._settings.metadata_retries_max:
                    raise
            await self._pause(attempt)
            # The put may have been carried out: then the store holds our bytes, and no later version than ours.
            stored = await self._patiently(lambda: self._store.get(path))
            if stored is not None and stored.value == value and stored.version == expected + 1:
                return stored.version
            if (MUST_NOT_EXIST if stored is None else stored.version) != expected:
                raise BadVersion(f"Ledger {record.ledger_id} was changed by another client.")
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _next_id(self) -> int:
        if self._high_bits is None:
            names = await self._store.children(LONG_ID_GENERATOR)
            highs = [int(name[len(_HIGH_BITS_PREFIX) :]) for name in names if name.startswith(_HIGH_BITS_PREFIX)]
            self._high_bits = max(highs, default=-1)
        if self._high_bits < 0:
            number = await self._sequence(f"{ID_GENERATOR}/ID-")
            if number < LONG_IDS_FROM:
                return number
            self._high_bits = 1
        while True:
            low = await self._sequence(f"{LONG_ID_GENERATOR}/{_HIGH_BITS_PREFIX}{self._high_bits:010d}/ID-")
            if low < LONG_IDS_FROM:
                return (self._high_bits << 32) + low
            self._high_bits += 1

    async def _sequence(self, prefix: str) -> int:
        stored = await self._store.put(prefix, b"", ephemeral=True, sequential=True)
        with contextlib.suppress(MetadataError):
            # It ends with the session anyway; only the number matters.
            await self._store.delete(stored.path)
        number = int(stored.path[len(prefix) :])
        return number if number >= 0 else LONG_IDS_FROM

    async def _patiently(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """Ask again while the store is away for a moment. Only for what may be asked twice."""
        attempt = 0
        while True:
            try:
                return await ask()
            except MetadataError as error:
                if not error.retryable or attempt >= self._settings.metadata_retries_max:
                    raise
            await self._pause(attempt)
            attempt += 1

    async def _pause(self, attempt: int) -> None:
        await asyncio.sleep(self._settings.metadata_retry_delay_ms * min(2**attempt, 32) / 1000)
