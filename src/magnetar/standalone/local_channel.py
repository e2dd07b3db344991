# SPDX-License-Identifier: Apache-2.0
"""A bookie in the same process, as the ledger client sees bookies: plain delegation, nothing encoded.

Single entries that come in one turn of the loop, of whatever ledgers, go to the storage together (0286): the first at
once, so that the journal takes them all at the turn's end, and the others as batches.
Carries.
"""

from typing import Final

from magnetar.bookie.entry_batches import entry_runs, ids_of
from magnetar.bookie.storage import BookieStorage
from magnetar.ledger.channel import AddListener, BookieChannel, LastConfirmed
from magnetar.runtime.turn_end import turn_end
from magnetar.wire.bookkeeper.entry import METADATA_BYTES
from magnetar.wire.bookkeeper.plain_adds import PlainAdds

# Answers to a batch come together, and the loop has other work too.
_BATCH_ENTRIES_MAX: Final = 128
# Of a larger one the bytes are what costs, and the journal begins to write them before the turn is over.
_GATHERED_BYTES_MAX: Final = 16 * 1024


class LocalBookieChannel(BookieChannel):
    def __init__(self, storage: BookieStorage) -> None:
        self.bookie = storage.bookie
        self._storage = storage
        self._turn_end = turn_end()
        # True from the first add of a turn until its end.
        self._is_gathering = False
        self._batch = _Batch(b"")

    def add(
        self,
        ledger_id: int,
        entry_id: int,
        entry: bytes,
        master_key: bytes,
        listener: AddListener,
        recovery: bool = False,
    ) -> None:
        if not self._is_gathering:
            self._is_gathering = True
            self._turn_end.call(self._end_turn)
            self._storage.add(ledger_id, entry_id, entry, master_key, listener, recovery)
            return
        batch = self._batch
        is_alone = (
            recovery
            or not METADATA_BYTES <= len(entry) <= _GATHERED_BYTES_MAX
            or ids_of(entry) != (ledger_id, entry_id)
        )
        if is_alone or not batch.takes(ledger_id, master_key, listener):
            self._hand_over()
            if is_alone:
                self._storage.add(ledger_id, entry_id, entry, master_key, listener, recovery)
                return
            batch = self._batch = _Batch(master_key)
        batch.listeners[ledger_id] = listener
        batch.entries.append(entry)
        if len(batch.entries) >= _BATCH_ENTRIES_MAX:
            self._hand_over()

    def add_run(
        self, ledger_id: int, first: int, entries: list[bytes], master_key: bytes, listener: AddListener
    ) -> None:
        if self._batch.entries:
            self._hand_over()
        self._storage.add_run(ledger_id, first, entries, master_key, listener)

    async def read(self, ledger_id: int, entry_id: int, *, fence_key: bytes | None = None) -> bytes:
        return await self._storage.read(ledger_id, entry_id, fence_key=fence_key)

    async def read_batch(self, ledger_id: int, first: int, count_max: int, bytes_max: int) -> list[bytes]:
        return await self._storage.read_batch(ledger_id, first, count_max, bytes_max)

    def at_hand(self, ledger_id: int, first: int, count_max: int, bytes_max: int) -> list[bytes]:
        return self._storage.run_at_hand(ledger_id, first, count_max, bytes_max)

    async def last_confirmed(self, ledger_id: int, *, fence_key: bytes | None = None) -> LastConfirmed:
        return LastConfirmed(*await self._storage.last_confirmed(ledger_id, fence_key=fence_key))

    async def write_last_confirmed(self, ledger_id: int, entry_id: int, body: bytes, master_key: bytes) -> None:
        await self._storage.write_last_confirmed(ledger_id, entry_id, body, master_key)

    async def entry_ids(self, ledger_id: int) -> list[int]:
        return await self._storage.entry_ids(ledger_id)

    def close(self) -> None:
        """The storage belongs to its bookie."""

    def _hand_over(self) -> None:
        batch = self._batch
        if batch.entries:
            self._batch = _Batch(batch.master_key)
            self._storage.add_batch(PlainAdds(batch.master_key, batch.entries), batch)

    def _end_turn(self) -> None:
        self._is_gathering = False
        self._hand_over()


class _Batch:
    """Entries of many ledgers under one master key, and who waits for each ledger's."""

    __slots__ = ("entries", "listeners", "master_key")

    def __init__(self, master_key: bytes) -> None:
        self.master_key = master_key
        self.entries: list[bytes] = []
        self.listeners: dict[int, AddListener] = {}

    def takes(self, ledger_id: int, master_key: bytes, listener: AddListener) -> bool:
        return master_key == self.master_key and self.listeners.get(ledger_id, listener) is listener

    def batch_listener(self, entries: list[bytes]) -> AddListener:
        return _BatchListener(entries, self.listeners)

    def ledger_listener(self, ledger_id: int) -> AddListener:
        return self.listeners[ledger_id]


class _BatchListener:
    """Is told of entries by their numbers, and tells each ledger's listener of its own."""

    __slots__ = ("_entries", "_listeners")

    def __init__(self, entries: list[bytes], listeners: dict[int, AddListener]) -> None:
        self._entries = entries
        self._listeners = listeners

    def on_added(self, bookie: str, first: int, last: int, code: int) -> None:
        listeners = self._listeners
        for ledger_id, first_entry, last_entry in entry_runs(self._entries, first, last):
            listeners[ledger_id].on_added(bookie, first_entry, last_entry, code)
