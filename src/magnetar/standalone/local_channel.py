# SPDX-License-Identifier: Apache-2.0
"""A bookie in the same process, as the ledger client sees bookies: plain delegation, nothing encoded.

Carries.
"""

from magnetar.bookie.storage import BookieStorage
from magnetar.ledger.channel import AddListener, BookieChannel, LastConfirmed


class LocalBookieChannel(BookieChannel):
    def __init__(self, storage: BookieStorage) -> None:
        self.bookie = storage.bookie
        self._storage = storage
        # The hot calls go straight to the storage.
        self.add = storage.add  # type: ignore[method-assign]
        self.add_run = storage.add_run  # type: ignore[method-assign]

    def add(
        self,
        ledger_id: int,
        entry_id: int,
        entry: bytes,
        master_key: bytes,
        listener: AddListener,
        recovery: bool = False,
    ) -> None:
        self._storage.add(ledger_id, entry_id, entry, master_key, listener, recovery)

    async def read(self, ledger_id: int, entry_id: int, *, fence_key: bytes | None = None) -> bytes:
        return await self._storage.read(ledger_id, entry_id, fence_key=fence_key)

    async def read_batch(self, ledger_id: int, first: int, count_max: int, bytes_max: int) -> list[bytes]:
        return await self._storage.read_batch(ledger_id, first, count_max, bytes_max)

    async def last_confirmed(self, ledger_id: int, *, fence_key: bytes | None = None) -> LastConfirmed:
        return LastConfirmed(*await self._storage.last_confirmed(ledger_id, fence_key=fence_key))

    async def write_last_confirmed(self, ledger_id: int, entry_id: int, body: bytes, master_key: bytes) -> None:
        await self._storage.write_last_confirmed(ledger_id, entry_id, body, master_key)

    async def entry_ids(self, ledger_id: int) -> list[int]:
        return await self._storage.entry_ids(ledger_id)

    def close(self) -> None:
        """The storage belongs to its bookie."""
