# SPDX-License-Identifier: Apache-2.0
"""A lost member's entries written to another bookie: read from the copies left, byte for byte, digests checked.

Adds carry the recovery flag, because the ledger may be fenced. No progress is stored: a copy that fails is begun
again from its start, perhaps to another bookie; what lies about then is garbage that the bookie collects.
Carries.
"""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from magnetar.errors import BookieUnavailable, MagnetarError
from magnetar.ledger.channel import NO_ANSWER, BookieChannel
from magnetar.ledger.parts import LedgerParts
from magnetar.ledger.record import LedgerRecord
from magnetar.ledger.replica_reads import ReplicaReads
from magnetar.wire.bookkeeper.entry import EntryPacker
from magnetar.wire.error_codes import error_of_return_code

# How much is read at one go.
_RUN_BYTES: Final = 1024 * 1024


class FragmentCopy:
    __slots__ = ("_error", "_in_flight", "_in_flight_max", "_packer", "_parts", "_progress", "_record", "_replicas")

    def __init__(
        self, record: LedgerRecord, parts: LedgerParts, in_flight_max: int, avoided: Collection[str] = ()
    ) -> None:
        self._record = record
        self._parts = parts
        self._packer = EntryPacker(record.ledger_id, record.digest, record.password)
        # Every copy that is left lends a hand, except the lost ones, which would cost a deadline each.
        plain = parts._replace(settings=replace(parts.settings, sticky_reads=False))
        self._replicas = ReplicaReads(self._packer, plain, avoided)
        self._in_flight_max = in_flight_max
        self._in_flight = 0
        self._progress = asyncio.Event()
        self._error: MagnetarError | None = None

    async def copy(self, entry_ids: Sequence[int], target: str) -> None:
        """Until every one of these entries is durable on the target. What a read or an add raises ends it."""
        channel = self._parts.channels(target)
        at = 0
        while at < len(entry_ids):
            run = self._run(entry_ids, at)
            for entry in await self._replicas.read(self._record, entry_ids[at], entry_ids[at] + run - 1, _RUN_BYTES):
                await self._room(self._in_flight_max - 1)
                self._send(channel, entry_ids[at], entry)
                at += 1
        await self._room(0)

    def on_added(self, bookie: str, first: int, last: int, code: int) -> None:
        self._in_flight -= last - first + 1
        if code == NO_ANSWER:
            self._error = BookieUnavailable(f"{bookie} did not take entry {first} of ledger {self._record.ledger_id}.")
        elif code != 0:
            text = f"{bookie} refuses entry {first} of ledger {self._record.ledger_id} with code {code}."
            self._error = error_of_return_code(code, text)
        self._progress.set()

    def _run(self, entry_ids: Sequence[int], at: int) -> int:
        """How many ids from here on are neighbours, at most as many as may be in flight."""
        length = 1
        while (
            length < self._in_flight_max
            and at + length < len(entry_ids)
            and entry_ids[at + length] == entry_ids[at] + length
        ):
            length += 1
        return length

    def _send(self, channel: BookieChannel, entry_id: int, entry: bytes) -> None:
        self._in_flight += 1
        channel.add(self._record.ledger_id, entry_id, entry, self._packer.master_key, self, recovery=True)

    async def _room(self, in_flight: int) -> None:
        while self._in_flight > in_flight and self._error is None:
            self._progress.clear()
            try:
                async with asyncio.timeout(self._parts.settings.add_timeout_ms / 1000):
                    await self._progress.wait()
            except TimeoutError:
                self._error = BookieUnavailable(f"Copies of ledger {self._record.ledger_id} are not answered.")
        if self._error is not None:
            raise self._error
