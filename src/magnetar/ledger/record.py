# SPDX-License-Identifier: Apache-2.0
"""What the metadata store knows of one ledger, and the only ways in which that may change (R7).

OPEN → IN_RECOVERY → CLOSED, and OPEN → CLOSED by its writer. A closed ledger's last entry never changes; only the
bookies that hold it may. Values: every change gives a new record. `catalog.py` stores them by version.
Decides.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from magnetar.ledger.quorum import Quorum
from magnetar.ledger.segments import (
    Segment,
    Segments,
    check_segments,
    with_ensemble,
    with_replacements,
    without_empty_tail,
)
from magnetar.wire.bookkeeper.digest import DigestType
from magnetar.wire.bookkeeper.ledger_metadata import CURRENT_VERSION


class LedgerState(Enum):
    OPEN = "open"
    IN_RECOVERY = "in recovery"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """One ledger as it stands in the store at one version."""

    ledger_id: int
    quorum: Quorum
    segments: Segments
    digest: DigestType
    password: bytes
    state: LedgerState = LedgerState.OPEN
    # Known only when closed; -1 and 0 for an empty ledger.
    last_entry: int = -1
    length: int = 0
    created_ms: int = 0
    # Drawn by the creator: tells its own record from another's when the outcome of a create is unknown.
    token: int = 0
    custom: Mapping[str, bytes] | None = None
    # The stored form (1 to 3), and the message that was read, so that fields unknown to us are written back.
    form: int = CURRENT_VERSION
    origin: bytes = field(default=b"", compare=False, repr=False)

    @property
    def is_open(self) -> bool:
        return self.state is LedgerState.OPEN

    @property
    def is_closed(self) -> bool:
        return self.state is LedgerState.CLOSED

    @property
    def last_segment(self) -> Segment:
        return self.segments[-1]

    def bookies(self) -> list[str]:
        """Every bookie that holds a part of this ledger, in order of appearance."""
        return list(dict.fromkeys(bookie for segment in self.segments for bookie in segment.ensemble))

    def with_ensemble(self, first_entry: int, ensemble: tuple[str, ...]) -> "LedgerRecord":
        assert not self.is_closed
        return replace(self, segments=with_ensemble(self.segments, first_entry, ensemble))

    def with_replacements(self, first_entry: int, replacements: Mapping[int, str]) -> "LedgerRecord":
        return replace(self, segments=with_replacements(self.segments, first_entry, replacements))

    def in_recovery(self) -> "LedgerRecord":
        assert self.is_open
        return replace(self, state=LedgerState.IN_RECOVERY)

    def closed(self, last_entry: int, length: int) -> "LedgerRecord":
        assert not self.is_closed
        return replace(
            self,
            state=LedgerState.CLOSED,
            last_entry=last_entry,
            length=length,
            segments=without_empty_tail(self.segments, last_entry),
        )

    def check(self) -> None:
        """AssertionError when no ledger can have such a record."""
        assert self.quorum.is_valid(), f"{self.quorum} cannot be"
        check_segments(self.segments, self.quorum.ensemble_size)
