# SPDX-License-Identifier: Apache-2.0
"""Where an abandoned ledger ends: what the answers of its bookies prove, and what they leave open (R3, R4, R5).

`CoverageRound` ends when no ack quorum can form without a bookie that answered, and so is fenced; `EntryRound` when one
bookie holds the entry, or so many prove its absence that no ack quorum ever held it. Everything else proves nothing: an
error, a mismatch, silence. When all have answered and nothing is proven the round is stuck, and recovery fails, to be
tried again; it never guesses.
Asks nobody itself: `recoverer.py` does. The machine is drawn in docs/machines/recovery.md.
Decides.
"""

from enum import Enum

from magnetar.errors import DigestMismatch, MagnetarError, NoSuchEntry, NoSuchLedger
from magnetar.ledger.channel import LastConfirmed
from magnetar.ledger.quorum import Quorum
from magnetar.wire.bookkeeper.entry import EntryPacker, last_add_confirmed_of


class Verdict(Enum):
    OPEN = "more answers are needed"
    PROVEN = "the ledger is fenced, or the entry exists"
    ABSENT = "no ack quorum ever held the entry"
    STUCK = "all have answered, nothing is proven"


def proves_absence(error: MagnetarError) -> bool:
    """Only an explicit negative does."""
    return isinstance(error, NoSuchEntry | NoSuchLedger)


def confirmed_in(answer: LastConfirmed, packer: EntryPacker) -> int:
    """The last add confirmed in an answer. Only a number under a digest counts: a lower one costs a few reads more."""
    if answer.last_entry is None:
        return -1
    try:
        packer.unpack(answer.last_entry, None)
    except DigestMismatch:
        return -1
    return last_add_confirmed_of(answer.last_entry)


class CoverageRound:
    """Reads of the last add confirmed, fencing or not, to every member of the last ensemble."""

    __slots__ = ("_answered", "_first_entry", "_last_add_confirmed", "_quorum", "_unknown")

    def __init__(self, quorum: Quorum, first_entry: int) -> None:
        self._quorum = quorum
        self._first_entry = first_entry
        self._answered: dict[int, None] = {}
        self._unknown: dict[int, MagnetarError] = {}
        self._last_add_confirmed = -1

    def on_answered(self, member: int, last_add_confirmed: int) -> None:
        """The member knows this last add confirmed, or -1; it is fenced durably when it was asked to."""
        self._answered[member] = None
        self._last_add_confirmed = max(self._last_add_confirmed, last_add_confirmed)

    def on_unknown(self, member: int, error: MagnetarError) -> None:
        self._unknown[member] = error

    @property
    def verdict(self) -> Verdict:
        if self._quorum.is_covered(self._answered):
            return Verdict.PROVEN
        waiting = self._quorum.ensemble_size - len(self._answered) - len(self._unknown)
        return Verdict.OPEN if waiting else Verdict.STUCK

    @property
    def start(self) -> int:
        """The entry up to which the ledger is known to be confirmed: nothing before the last segment is in doubt."""
        return max(self._last_add_confirmed, self._first_entry - 1)

    @property
    def unknown(self) -> dict[int, MagnetarError]:
        return self._unknown


class EntryRound:
    """Recovery reads of one entry, to its whole write set."""

    __slots__ = ("_absent", "_found", "_quorum", "_unknown")

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum
        self._found = False
        self._absent: dict[int, None] = {}
        self._unknown: dict[int, MagnetarError] = {}

    def on_found(self, member: int) -> None:
        """The member gave the entry, and its digest is right."""
        self._found = True

    def on_error(self, member: int, error: MagnetarError) -> None:
        if proves_absence(error):
            self._absent[member] = None
        else:
            self._unknown[member] = error

    @property
    def verdict(self) -> Verdict:
        if self._found:
            return Verdict.PROVEN
        if len(self._absent) >= self._quorum.absences_needed:
            return Verdict.ABSENT
        waiting = self._quorum.write_quorum - len(self._absent) - len(self._unknown)
        return Verdict.OPEN if waiting else Verdict.STUCK

    @property
    def unknown(self) -> dict[int, MagnetarError]:
        return self._unknown
