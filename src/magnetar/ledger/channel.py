# SPDX-License-Identifier: Apache-2.0
"""BookieChannel: what the ledger client asks of one bookie.

Two implementations: over TCP (`tcp_channel.py`), and one that the assembler builds straight from a bookie's storage in
the same process (standalone, fixtures). Same contract suite, same bounds, same errors.

An entry is the packed form that BookKeeper stores and sends: header, digest, body (`wire/bookkeeper/entry.py`). Bookies
never look inside the body.
Carries.
"""

from abc import ABC, abstractmethod
from typing import Final, NamedTuple, Protocol

NO_ANSWER: Final = -1
"""What a channel itself tells an AddListener when the connection broke or time ran out: the outcome is unknown."""


class AddListener(Protocol):
    def on_added(self, bookie: str, first: int, last: int, code: int) -> None:
        """Entries first..last of this listener's ledger have this outcome on this bookie.

        Code is the bookie protocol's (`wire/bookkeeper/codes.py`) or NO_ANSWER; 0 means durable. A range is told only
        where all its entries share the outcome. Replies come in any order and may be missing.
        """


class LastConfirmed(NamedTuple):
    """What a bookie knows of an open ledger: the last add confirmed, explicit or piggy-backed, and its last entry."""

    last_add_confirmed: int
    last_entry: bytes | None


class BookieChannel(ABC):
    bookie: str

    @abstractmethod
    def add(
        self,
        ledger_id: int,
        entry_id: int,
        entry: bytes,
        master_key: bytes,
        listener: AddListener,
        recovery: bool = False,
    ) -> None:
        """Send one entry; never waits. The reply comes to the listener, later, also for what fails at once."""

    def add_run(
        self, ledger_id: int, first: int, entries: list[bytes], master_key: bytes, listener: AddListener
    ) -> None:
        """Send consecutive entries, from this id on; as `add` for each."""
        for entry_id, entry in enumerate(entries, first):
            self.add(ledger_id, entry_id, entry, master_key, listener)

    @abstractmethod
    async def read(self, ledger_id: int, entry_id: int, *, fence_key: bytes | None = None) -> bytes:
        """One packed entry. With fence_key the ledger is fenced durably first.

        NoSuchLedger and NoSuchEntry are proofs of absence; EntryUnknown and BookieUnavailable are not.
        """

    @abstractmethod
    async def read_batch(self, ledger_id: int, first: int, count_max: int, bytes_max: int) -> list[bytes]:
        """Consecutive packed entries from first on, at least one; fewer than asked where one is missing."""

    def at_hand(self, ledger_id: int, first: int, count_max: int, bytes_max: int) -> list[bytes]:
        """Those of a batch that need no waiting, from first on; none where `read_batch` must be asked."""
        return []

    @abstractmethod
    async def last_confirmed(self, ledger_id: int, *, fence_key: bytes | None = None) -> LastConfirmed: ...

    async def last_confirmed_beyond(self, ledger_id: int, previous: int, timeout_ms: int) -> LastConfirmed:
        """As last_confirmed, when it is beyond the previous one or the time is up; a channel that cannot wait answers
        at once.
        """
        return await self.last_confirmed(ledger_id)

    async def force(self, ledger_id: int) -> None:  # noqa: B027 - nothing to do is an answer
        """Make durable whatever was added of a ledger. What a channel reports as added is: there is nothing to do."""

    @abstractmethod
    async def write_last_confirmed(self, ledger_id: int, entry_id: int, body: bytes, master_key: bytes) -> None:
        """Tell the bookie the explicit last add confirmed of an idle writer."""

    @abstractmethod
    async def entry_ids(self, ledger_id: int) -> list[int]:
        """The ids of the entries that this bookie holds of a ledger, rising."""

    @abstractmethod
    def close(self) -> None: ...
