# SPDX-License-Identifier: Apache-2.0
"""The ledgers whose state is in memory, those that changed, and those that are gone for good.

Owns which states a checkpoint has to store and which may be forgotten because the index has them. A ledger that was
deleted stays known as deleted, so that a late writer cannot bring it back to life.
Decides.
"""

from pyroaring import BitMap64

from magnetar.bookie.ledger_state import LedgerState
from magnetar.errors import DamagedRecord


class LedgerTable:
    """Invariant: a state that is not in `changed` equals what the index has."""

    __slots__ = (
        "_checkpoint",
        "_deleted",
        "_deleted_changed",
        "_idle_max",
        "_unsure_changed",
        "changed",
        "states",
        "unsure",
    )

    def __init__(self, *, idle_max: int) -> None:
        self._idle_max = idle_max
        self._checkpoint = 0
        self.states: dict[int, LedgerState] = {}
        self.changed: dict[int, LedgerState] = {}
        self._deleted = BitMap64()
        self._deleted_changed = False
        # True after data was lost and until every ledger that the metadata knows has a state here again.
        self.unsure = False
        self._unsure_changed = False

    def begin(self, ledger_id: int, master_key: bytes) -> LedgerState:
        """A ledger that this bookie has not seen before."""
        state = LedgerState(ledger_id, master_key)
        self.keep(state)
        self.changed[ledger_id] = state
        return state

    def keep(self, state: LedgerState) -> None:
        """A state as the index has it."""
        state.touched = self._checkpoint
        self.states[state.ledger_id] = state

    def note_change(self, state: LedgerState) -> None:
        self.changed[state.ledger_id] = state

    def delete(self, ledger_id: int) -> None:
        self.states.pop(ledger_id, None)
        self.changed.pop(ledger_id, None)
        if ledger_id >= 0:
            self._deleted.add(ledger_id)
            self._deleted_changed = True

    def is_deleted(self, ledger_id: int) -> bool:
        return ledger_id >= 0 and ledger_id in self._deleted

    def load_deleted(self, data: bytes) -> None:
        """What `tombstones` gave. Raises DamagedRecord."""
        try:
            self._deleted |= BitMap64.deserialize(data)
        except (ValueError, IndexError) as error:
            raise DamagedRecord(f"The index's list of deleted ledgers ({len(data)} bytes) cannot be read.") from error

    def has_changes(self) -> bool:
        return bool(self.changed) or self._deleted_changed or self._unsure_changed

    def doubt(self) -> None:
        """Something was lost: a ledger that is not known here may have been."""
        self.unsure = self._unsure_changed = True

    def stop_doubting(self) -> None:
        self.unsure = False
        self._unsure_changed = True

    def take_changed(self) -> dict[int, bytes]:
        """The changed states as they are now; they count as stored from here on, or are put back by `put_back`."""
        changed, self.changed = self.changed, {}
        return {ledger_id: state.encode() for ledger_id, state in changed.items()}

    def tombstones(self) -> bytes:
        """The deleted ledgers, packed."""
        data: bytes = self._deleted.serialize()
        return data

    def take_deleted(self) -> bytes | None:
        """The deleted ledgers, when there are new ones since the last time."""
        if not self._deleted_changed:
            return None
        self._deleted_changed = False
        return self.tombstones()

    def take_unsure(self) -> bytes | None:
        """Whether ledgers may be missing, when that has changed since the last time."""
        if not self._unsure_changed:
            return None
        self._unsure_changed = False
        return b"1" if self.unsure else b"0"

    def put_back(self, states: dict[int, bytes], *, deleted_too: bool) -> None:
        """Storing failed: what was taken is changed again."""
        for ledger_id in states:
            state = self.states.get(ledger_id)
            if state is not None:
                self.changed[ledger_id] = state
        self._deleted_changed = self._deleted_changed or deleted_too
        self._unsure_changed = True

    def forget_idle(self, busy: dict[int, None]) -> int:
        """After a checkpoint: forget states that nobody used since the one before, beyond the allowed number."""
        previous, self._checkpoint = self._checkpoint, self._checkpoint + 1
        excess = len(self.states) - self._idle_max
        if excess <= 0:
            return 0
        idle = [
            ledger_id
            for ledger_id, state in self.states.items()
            if state.touched < previous and ledger_id not in self.changed and ledger_id not in busy
        ]
        for ledger_id in idle[:excess]:
            del self.states[ledger_id]
        return min(excess, len(idle))
