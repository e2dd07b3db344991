# SPDX-License-Identifier: Apache-2.0
"""The ledgers of one bookie: their states read when needed, their changes journaled before they are answered.

Owns the way of a fence, of an explicit last add confirmed and of a ledger's first touch. A state that is found set in
memory is not yet durable: whoever finds it waits for the same sync as whoever set it.
Carries.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from magnetar.bookie.journal import Journal
from magnetar.bookie.journal_format import RecordKind
from magnetar.bookie.ledger_directory import LedgerDirectory
from magnetar.bookie.ledger_state import MASTER_KEY_BYTES_MAX, LedgerState, decode_state
from magnetar.bookie.ledger_table import LedgerTable
from magnetar.errors import (
    BadCommand,
    Damaged,
    EntryUnknown,
    LedgerFenced,
    LedgerInLimbo,
    NoSuchLedger,
    WrongMasterKey,
)

# An explicit confirmation is two numbers and a digest.
CONFIRMATION_BYTES_MAX: Final = 4096
_STATES_AT_ONCE: Final = 1_000

_IDS: Final = Struct(">qq")
_LEDGER_ID: Final = Struct(">q")


class Ledgers:
    def __init__(self, table: LedgerTable, directories: Sequence[LedgerDirectory], journals: Sequence[Journal]) -> None:
        self.table = table
        self.states = table.states
        self._directories = directories
        self._journals = journals

    def journal_of(self, ledger_id: int) -> Journal:
        return self._journals[ledger_id % len(self._journals)]

    def shares(self, ledger_ids: list[int], entries: list[bytes]) -> list[tuple[Journal, list[bytes]]]:
        """The journals that get some of these entries, the ledger of each being named, and which."""
        journals = self._journals
        if len(journals) == 1:
            return [(journals[0], entries)]
        shares: dict[int, list[bytes]] = {}
        for ledger_id, entry in zip(ledger_ids, entries, strict=True):
            shares.setdefault(ledger_id % len(journals), []).append(entry)
        return [(journals[number], share) for number, share in shares.items()]

    async def state(self, ledger_id: int) -> LedgerState | None:
        """A ledger's state, from memory or index; None when this bookie does not know the ledger. EntryUnknown."""
        state = self.states.get(ledger_id)
        if state is not None or self.table.is_deleted(ledger_id):
            return state
        try:
            await self.load((ledger_id,))
        except (OSError, Damaged) as error:
            raise EntryUnknown(f"the state of ledger {ledger_id} cannot be read: {error}") from error
        return self.states.get(ledger_id)

    async def load(self, ledger_ids: Sequence[int]) -> None:
        """Bring into memory what the indexes know of these ledgers."""
        parts = len(self._directories)
        for part, directory in enumerate(self._directories):
            own = [ledger_id for ledger_id in ledger_ids if ledger_id % parts == part]
            found = await directory.index.ledgers(own) if own else {}
            for ledger_id, data in found.items():
                # Somebody may have loaded, changed or deleted it meanwhile.
                if ledger_id not in self.states and not self.table.is_deleted(ledger_id):
                    self.table.keep(decode_state(ledger_id, data))

    async def known(self, ledger_id: int) -> LedgerState:
        """A ledger's state. NoSuchLedger is a proof; EntryUnknown when ledgers may have been lost here."""
        state = await self.state(ledger_id)
        if state is not None:
            return state
        if self.table.unsure and not self.table.is_deleted(ledger_id):
            raise LedgerInLimbo(f"ledger {ledger_id} is not on this bookie, which has lost data")
        raise NoSuchLedger(f"ledger {ledger_id} is not on this bookie")

    def begin(self, ledger_id: int, master_key: bytes) -> LedgerState:
        """A ledger's first touch: its key is journaled before anything else of it."""
        self.journal_of(ledger_id).append(RecordKind.LEDGER, _LEDGER_ID.pack(ledger_id) + master_key)
        state = self.table.begin(ledger_id, master_key)
        if self.table.unsure:
            # It may have been here before, with entries and a fence that are lost.
            state.enter_limbo()
        return state

    async def fence(self, ledger_id: int, master_key: bytes) -> None:
        """Take no more ordinary adds of a ledger; returns when that is durable. Also for a ledger not seen before."""
        state = await self._touched(ledger_id, master_key)
        journal = self.journal_of(ledger_id)
        if state.fence():
            self.table.note_change(state)
            journal.append(RecordKind.FENCED, _LEDGER_ID.pack(ledger_id))
        if not state.fence_durable:
            await journal.durable()
            state.fence_durable = True

    async def write_last_confirmed(self, ledger_id: int, entry_id: int, body: bytes, master_key: bytes) -> None:
        if len(body) > CONFIRMATION_BYTES_MAX:
            raise BadCommand(f"a confirmation of {len(body)} bytes is larger than {CONFIRMATION_BYTES_MAX}")
        state = await self._touched(ledger_id, master_key)
        journal = self.journal_of(ledger_id)
        if state.raise_explicit(entry_id, body):
            self.table.note_change(state)
            journal.append(RecordKind.LAST_CONFIRMED, _IDS.pack(ledger_id, entry_id) + body)
        await journal.durable()

    async def in_limbo(self) -> list[int]:
        """Ledgers whose entries may have been lost here, rising."""
        found = {ledger_id for ledger_id, state in self.states.items() if state.limbo}
        for directory in self._directories:
            unseen = [ledger_id for ledger_id in await directory.index.ledger_ids() if ledger_id not in self.states]
            for start in range(0, len(unseen), _STATES_AT_ONCE):
                page = await directory.index.ledgers(unseen[start : start + _STATES_AT_ONCE])
                found |= {ledger_id for ledger_id, data in page.items() if decode_state(ledger_id, data).limbo}
        return sorted(ledger_id for ledger_id in found if not self.table.is_deleted(ledger_id))

    async def leave_limbo(self, ledger_id: int, master_key: bytes) -> None:
        """Everything that belongs here is here: absences may be claimed. Durable with the next checkpoint."""
        state = await self.known(ledger_id)
        state.leave_limbo(master_key)
        self.table.note_change(state)

    async def _touched(self, ledger_id: int, master_key: bytes) -> LedgerState:
        if ledger_id < 0 or len(master_key) > MASTER_KEY_BYTES_MAX:
            raise BadCommand(f"ledger {ledger_id} with a master key of {len(master_key)} bytes is not possible")
        state = await self.state(ledger_id)
        if self.table.is_deleted(ledger_id):
            raise LedgerFenced(f"ledger {ledger_id} was deleted")
        if state is None:
            return self.begin(ledger_id, master_key)
        if not state.accept_key(master_key):
            raise WrongMasterKey(f"the master key does not fit ledger {ledger_id}")
        return state
