# SPDX-License-Identifier: Apache-2.0
"""The records of one managed ledger in the metadata store: the log's own, and one per durable cursor.

Owns the paths, which are Pulsar's, and the guarded write: a record is replaced only in the version that its owner
saw, so that an owner who was replaced cannot write any more (R16). A write whose outcome is unknown is tried again;
if the store then has our very bytes one version on, it was carried out. Never decides what a record says.
Carries.
"""

from typing import Final, NamedTuple

from magnetar.errors import BadVersion, NoRecord, OutcomeUnknown
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

    __slots__ = ("_path", "_store", "_unsure", "version")

    def __init__(self, store: MetadataStore, path: str, version: int = MUST_NOT_EXIST) -> None:
        self._store = store
        self._path = path
        # Bytes that may have been written although no answer came.
        self._unsure: bytes | None = None
        self.version = version

    async def read(self) -> Versioned | None:
        """The record as it is now; later writes replace this version."""
        record = await self._store.get(self._path)
        self._unsure = None
        if record is None:
            self.version = MUST_NOT_EXIST
            return None
        self.version = record.version
        return Versioned(record.value, record.version, record.created_ms)

    async def write(self, value: bytes) -> None:
        """Replace the known version. BadVersion when another owner has written; OutcomeUnknown when no one can say."""
        for _ in range(_TRIES_MAX):
            try:
                stored = await self._store.put(self._path, value, expected_version=self.version)
            except OutcomeUnknown:
                self._unsure = value
                continue
            except BadVersion:
                if self._unsure is None or not await self._was_carried_out():
                    raise
                if self._unsure == value:
                    self._unsure = None
                    return
                self._unsure = None
                continue
            self.version = stored.version
            self._unsure = None
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

    async def _was_carried_out(self) -> bool:
        """True when the write whose answer was lost is there; its version is then known."""
        record = await self._store.get(self._path)
        if record is None or record.version != self.version + 1 or record.value != self._unsure:
            return False
        self.version = record.version
        return True


class Catalog:
    __slots__ = ("_path", "_store", "name", "record")

    def __init__(self, store: MetadataStore, name: str) -> None:
        self.name = name
        self._store = store
        self._path = f"{ROOT}/{name}"
        self.record = GuardedRecord(store, self._path)

    def cursor(self, cursor_name: str) -> GuardedRecord:
        return GuardedRecord(self._store, f"{self._path}/{encode_name(cursor_name)}")

    async def cursor_names(self) -> list[str]:
        return [decode_name(name) for name in await self._store.children(self._path)]


async def names_below(store: MetadataStore, prefix: str) -> list[str]:
    """Names of managed ledgers directly below a prefix such as `tenant/namespace/persistent`."""
    return [f"{prefix}/{name}" for name in await store.children(f"{ROOT}/{prefix}")]
