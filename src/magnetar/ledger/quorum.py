# SPDX-License-Identifier: Apache-2.0
"""How far: which bookies hold an entry, how many must answer, and up to where a ledger is confirmed.

`Quorum` is the arithmetic of ensemble, write and ack quorum. `AckWindow` turns answers per entry and bookie, in any
order and possibly missing, into one number: the last add confirmed. Bookies are named by their index in the ensemble.
Knows no bytes, no time and no metadata.

Invariant: the last add confirmed never passes an entry with fewer than ack-quorum answers from the present ensemble,
and does not move while an ensemble change is under way (R6).
Decides.
"""

from collections.abc import Iterable
from typing import NamedTuple


class Quorum(NamedTuple):
    """Entry e lies on members (e + i) mod ensemble_size for i in 0..write_quorum-1; ack_quorum of them confirm it."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int

    def is_valid(self) -> bool:
        return self.ensemble_size >= self.write_quorum >= self.ack_quorum >= 1

    def write_set(self, entry_id: int) -> tuple[int, ...]:
        size = self.ensemble_size
        start = entry_id % size
        return tuple((start + i) % size for i in range(self.write_quorum))

    def holds(self, member: int, entry_id: int) -> bool:
        return (member - entry_id) % self.ensemble_size < self.write_quorum

    @property
    def absences_needed(self) -> int:
        """So many explicit negatives of a write set prove that no ack quorum ever held an entry."""
        return self.write_quorum - self.ack_quorum + 1

    def is_covered(self, answered: Iterable[int]) -> bool:
        """Whether every ack quorum of every write set contains a member that answered.

        Once the members that answered are fenced, no ack quorum can form without one of them.
        """
        known = set(answered)
        return all(
            sum(1 for member in self.write_set(start) if member not in known) < self.ack_quorum
            for start in range(self.ensemble_size)
        )

    def may_confirm_without(self, failed: Iterable[int]) -> bool:
        """Whether every write set still has an ack quorum when these members answer nothing any more."""
        lost = set(failed)
        return all(
            sum(1 for member in self.write_set(start) if member not in lost) >= self.ack_quorum
            for start in range(self.ensemble_size)
        )


class AckWindow:
    """The entries pushed and not yet confirmed, and who has answered for each."""

    __slots__ = ("_acks", "_held", "_one_confirms", "_striped", "confirmed", "pushed", "quorum")

    def __init__(self, quorum: Quorum, confirmed: int = -1) -> None:
        self.quorum = quorum
        self.confirmed = confirmed
        self.pushed = confirmed
        # Entry → bit mask of the members that hold it; only entries after `confirmed`.
        self._acks: dict[int, int] = {}
        self._held = False
        self._striped = quorum.ensemble_size != quorum.write_quorum
        self._one_confirms = quorum.ack_quorum == 1 and not self._striped

    # --- inputs -------------------------------------------------------------------------------

    def on_acked(self, member: int, first: int, last: int) -> bool:
        """This member holds entries first..last; says whether the last add confirmed has moved."""
        confirmed = self.confirmed
        if last > self.pushed:
            last = self.pushed
        if last <= confirmed:
            return False
        acks = self._acks
        if self._one_confirms and first <= confirmed + 1 and not acks and not self._held:
            self.confirmed = last
            return True
        bit = 1 << member
        striped = self._striped
        for entry_id in range(max(first, confirmed + 1), last + 1):
            if not striped or self.quorum.holds(member, entry_id):
                acks[entry_id] = acks.get(entry_id, 0) | bit
        return not self._held and first <= confirmed + 1 and self._advance()

    def hold(self) -> None:
        """An ensemble change begins: answers are noted, nothing is confirmed."""
        self._held = True

    def on_replaced(self, members: Iterable[int]) -> None:
        """Other bookies stand at these indices now: what the former ones hold no longer counts."""
        keep = ~sum(1 << member for member in members)
        self._acks = {entry_id: mask & keep for entry_id, mask in self._acks.items()}

    def release(self) -> bool:
        """The ensemble change is on record, or was given up; says whether the last add confirmed has moved."""
        self._held = False
        return self._advance()

    # --- questions ----------------------------------------------------------------------------

    @property
    def is_held(self) -> bool:
        return self._held

    def entries_for(self, member: int) -> list[int]:
        """Unconfirmed entries that this member must hold and has not answered for."""
        bit = 1 << member
        return [
            entry_id
            for entry_id in range(self.confirmed + 1, self.pushed + 1)
            if self.quorum.holds(member, entry_id) and not self._acks.get(entry_id, 0) & bit
        ]

    def silent_members(self, until: int) -> list[int]:
        """Members that have not answered for an unconfirmed entry up to `until`, which keeps them all waiting."""
        silent: set[int] = set()
        for entry_id in range(self.confirmed + 1, until + 1):
            mask = self._acks.get(entry_id, 0)
            if mask.bit_count() < self.quorum.ack_quorum:
                silent.update(member for member in self.quorum.write_set(entry_id) if not mask >> member & 1)
        return sorted(silent)

    def check(self) -> None:
        assert -1 <= self.confirmed <= self.pushed
        for entry_id, mask in self._acks.items():
            assert self.confirmed < entry_id <= self.pushed
            assert all(
                self.quorum.holds(member, entry_id) for member in range(self.quorum.ensemble_size) if mask >> member & 1
            )
        if not self._held:
            assert self._acks.get(self.confirmed + 1, 0).bit_count() < self.quorum.ack_quorum

    # --- private ------------------------------------------------------------------------------

    def _advance(self) -> bool:
        acks = self._acks
        needed = self.quorum.ack_quorum
        entry_id = self.confirmed + 1
        while acks.get(entry_id, 0).bit_count() >= needed:
            del acks[entry_id]
            entry_id += 1
        if entry_id == self.confirmed + 1:
            return False
        self.confirmed = entry_id - 1
        return True
