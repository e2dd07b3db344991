# SPDX-License-Identifier: Apache-2.0
"""The records of one managed ledger in the metadata store: the log's own, and one per durable cursor.

Owns the paths, which are Pulsar's, and the guarded write: a record is replaced only in the version that its owner
saw, so that an owner who was replaced cannot write any more (R16). A write whose outcome is unknown is tried again;
if the store then has our very bytes one version on, it was carried out. Never decides what a record says.
Carries.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from magnetar.errors import BadVersion, MetadataError, NoRecord, OutcomeUnknown
from magnetar.managed_ledger.record_packing import PLAIN, RecordPacking
from magnetar.metadata.store import MUST_NOT_EXIST, MetadataStore
from magnetar.names import decode_name, encode_name

ROOT: Final = "/managed-ledgers"
# Every try may lose its answer; then the outcome is the caller's question.
_TRIES_MAX: Final = 3


class Versioned(NamedTuple):
    value: bytes
    version: int
    created_ms: int


class GuardedRecord:
    """One record and the version in which we know it."""

    __slots__ = ("_pack", "_path", "_store", "_unsure", "version")

    def __init__(
        self, store: MetadataStore, path: str, version: int = MUST_NOT_EXIST, *, pack: Callable[[bytes], bytes] = bytes
    ) -> None:
        self._store = store
        # From a plain record to the form in which it is stored.
        self._pack = pack
        self._path = path
        # Values that may stand one version on although no answer came: it was lost, or no one waited for it any more.
        self._unsure: list[bytes] = []
        self.version = version

    async def read(self) -> Versioned | None:
        """The record as it is now; later writes replace this version."""
        record = await self._store.get(self._path)
        self._unsure = []
        if record is None:
            self.version = MUST_NOT_EXIST
            return None
        self.version = record.version
        return Versioned(record.value, record.version, record.created_ms)

    async def write(self, value: bytes) -> None:
        """Replace the known version. BadVersion when another owner has written; OutcomeUnknown when no one can say."""
        value = self._pack(value)
        for _ in range(_TRIES_MAX):
            doubtful = self._unsure
            self._unsure = [*doubtful, value]
            try:
                stored = await self._store.put(self._path, value, expected_version=self.version)
            except OutcomeUnknown:
                continue
            except BadVersion:
                self._unsure = doubtful
                found = await self._carried_out() if doubtful else None
                if found is None:
                    raise
                if found == value:
                    return
                continue
            except MetadataError:
                self._unsure = doubtful
                raise
            self.version = stored.version
            self._unsure = []
            return
        raise OutcomeUnknown(f"The metadata store did not say whether {self._path} was written")

    async def delete(self) -> None:
        """Delete the known version; nothing happens when there is none."""
        for _ in range(_TRIES_MAX):
            try:
                await self._store.delete(self._path, expected_version=self.version)
            except NoRecord:
                return
            except OutcomeUnknown:
                continue
            return
        raise OutcomeUnknown(f"The metadata store did not say whether {self._path} was deleted")

    async def _carried_out(self) -> bytes | None:
        """Which of the writes without an answer is there; its version is then known and nothing is unsure any more."""
        record = await self._store.get(self._path)
        if record is None or record.version != self.version + 1 or record.value not in self._unsure:
            return None
        self.version = record.version
        self._unsure = []
        return record.value


class Catalog:
    __slots__ = ("_packing", "_path", "_store", "name", "record")

    def __init__(self, store: MetadataStore, name: str, packing: RecordPacking = PLAIN) -> None:
        self.name = name
        self._store = store
        self._packing = packing
        self._path = f"{ROOT}/{name}"
        self.record = GuardedRecord(store, self._path, pack=packing.pack_ledger_record)

    async def look(self) -> Versioned | None:
        """The log's record as it is now; what `record` knows of it stays."""
        return await GuardedRecord(self._store, self._path).read()

    def watch(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Tell of changes of the log's own record; returns the call that ends it."""
        return self._store.watch(self._path, lambda change: listener() if change.path == self._path else None)

    def cursor(self, cursor_name: str) -> GuardedRecord:
        path = f"{self._path}/{encode_name(cursor_name)}"
        return GuardedRecord(self._store, path, pack=self._packing.pack_cursor_record)

    async def cursor_names(self) -> list[str]:
        return [decode_name(name) for name in await self._store.children(self._path)]


async def names_below(store: MetadataStore, prefix: str) -> list[str]:
    """Names of managed ledgers directly below a prefix such as `tenant/namespace/persistent`."""
    return [f"{prefix}/{name}" for name in await store.children(f"{ROOT}/{prefix}")]
