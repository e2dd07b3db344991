# SPDX-License-Identifier: Apache-2.0
"""LedgerIndex: where each entry lies, and what is known of each ledger.

One per ledger directory. Two implementations: RocksDB (`rocks_index.py`) and a plain sorted one on Disk
(`plain_index.py`) for simulation and fixtures. Everything in it but fences and keys can be derived from the entry logs,
so a lost index is rebuilt, with every ledger fenced. Both pass tests/contracts/test_ledger_index.py. Carries.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple

ROW: Final = Struct(">qqQI")
"""One packed row: ledger, entry, log id and offset in one number (`location_of`), bytes of the entry."""
ROW_KEY_BYTES: Final = 16

_OFFSET_BITS: Final = 32
_OFFSET_MASK: Final = (1 << _OFFSET_BITS) - 1


def location_of(log_id: int, offset: int) -> int:
    return log_id << _OFFSET_BITS | offset


class Place(NamedTuple):
    """Where one entry lies in the entry logs of its directory."""

    entry_id: int
    location: int
    entry_bytes: int

    @property
    def log_id(self) -> int:
        return self.location >> _OFFSET_BITS

    @property
    def offset(self) -> int:
        return self.location & _OFFSET_MASK


class Span:
    """What one read of a log covers of a ledger: grows from a first place to a last one that lies behind it."""

    __slots__ = ("_limit", "first", "last")

    def __init__(self, first: Place, bytes_max: int) -> None:
        self.first = self.last = first
        # One number holds log and offset, so one comparison keeps to the log; what the records add is not counted.
        self._limit = min(first.location + bytes_max, first.location | _OFFSET_MASK)

    def take(self, place: Place) -> bool:
        """Whether it reaches to this place, too, which is of a later entry than the last one was."""
        if not self.last.location < place.location or place.location + place.entry_bytes > self._limit:
            return False
        self.last = place
        return True


class Move(NamedTuple):
    """An entry that compaction copied from one location to another."""

    ledger_id: int
    entry_id: int
    source: int
    target: int


class LedgerIndex(ABC):
    """Changes are seen at once by every later call, and are durable after `sync`; calls take effect in their order.

    Damaged when what is stored cannot be read. After an OSError the index must not be trusted or synced again.
    """

    @abstractmethod
    async def put_places(self, rows: bytes) -> None:
        """Add packed rows (`ROW`), in any order; the newest place of an entry holds."""

    @abstractmethod
    async def move_places(self, moves: Sequence[Move]) -> int:
        """Change the location of each entry that is still at its source; returns how many were."""

    @abstractmethod
    async def places(self, ledger_id: int, first_entry_id: int, count_max: int) -> list[Place]:
        """Places of a ledger from this entry on, rising."""

    @abstractmethod
    async def locations(self, entries: Sequence[tuple[int, int]]) -> list[int | None]:
        """Where each of these lies, by ledger and entry; None for one that is not here."""

    @abstractmethod
    async def span(self, ledger_id: int, entry_id: int, count_max: int, bytes_max: int) -> Span | None:
        """From this entry's place to that of a later one, where a read of about `bytes_max` of the log brings more of
        this ledger than of others; `count_max` entries of this one's size at most. None when the entry is not here.
        """

    @abstractmethod
    async def last_entry_id(self, ledger_id: int) -> int | None: ...

    @abstractmethod
    async def ledgers(self, ledger_ids: Sequence[int]) -> dict[int, bytes]:
        """The stored states of those of these ledgers that this index knows."""

    async def ledger(self, ledger_id: int) -> bytes | None:
        """A ledger's stored state; None when this index does not know the ledger."""
        return (await self.ledgers((ledger_id,))).get(ledger_id)

    @abstractmethod
    async def put_ledgers(self, states: Mapping[int, bytes]) -> None: ...

    @abstractmethod
    async def ledger_ids(self) -> list[int]:
        """Every ledger that has a state, rising."""

    @abstractmethod
    async def delete_ledger(self, ledger_id: int, *, keeping: bytes | None = None) -> None:
        """Forget all places of a ledger and its state; or, in the same step, keep this state of it."""

    @abstractmethod
    async def note(self, name: str) -> bytes | None: ...

    @abstractmethod
    async def put_note(self, name: str, value: bytes) -> None:
        """Keep a small named value: the number of the last checkpoint, the ledgers deleted for good."""

    @abstractmethod
    async def sync(self) -> None: ...

    @abstractmethod
    async def clear(self) -> None:
        """Forget everything, durably: the first step of a rebuild."""

    @abstractmethod
    async def close(self) -> None: ...
