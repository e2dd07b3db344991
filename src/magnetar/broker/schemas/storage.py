# SPDX-License-Identifier: Apache-2.0
"""Where the versions of schemas are kept: one small ledger for each, and a locator in the metadata store.

As upstream has it: the record /schemas/{tenant}/{namespace}/{topic} says for every version in which entry it lies and
what the hash of its definition is; a version whose hash is empty is a deletion. The locator is written by the version
that was read, so of two writers one begins again. Definitions are read when they are asked for, and kept, a bounded
number of them; one that cannot be read fails the calls that need it and no others. Never judges a schema.
Carries.
"""

import contextlib
import logging
from collections import OrderedDict
from typing import NamedTuple

from google.protobuf.message import DecodeError

from magnetar.broker.schemas.schema import Schema, SchemaType, StoredSchema, decode_stored, encode_stored
from magnetar.errors import BadVersion, DamagedRecord, MagnetarError, NoRecord, NoSuchLedger, PersistenceFailed
from magnetar.managed_ledger.side_ledgers import SideLedgers
from magnetar.metadata.cache import RecordCache
from magnetar.metadata.store import MetadataStore
from magnetar.names import SCHEMAS_ROOT
from magnetar.wire.proto.schema_storage_pb2 import IndexEntry, SchemaEntry, SchemaLocator

_log = logging.getLogger(__name__)


class VersionPlace(NamedTuple):
    """One version: where it lies, and the hash of its definition; empty for a deletion."""

    version: int
    ledger_id: int
    entry_id: int
    hash: bytes

    @property
    def is_deletion(self) -> bool:
        return not self.hash


class Locator(NamedTuple):
    """Every version that a name ever had, oldest first."""

    places: tuple[VersionPlace, ...]

    @property
    def live(self) -> tuple[VersionPlace, ...]:
        """The versions since the last deletion."""
        for index in range(len(self.places) - 1, -1, -1):
            if self.places[index].is_deletion:
                return self.places[index + 1 :]
        return self.places

    @property
    def next_version(self) -> int:
        return self.places[-1].version + 1 if self.places else 0


class SchemaStorage:
    def __init__(self, store: MetadataStore, ledgers: SideLedgers, *, cached_max: int) -> None:
        self._store = store
        self._ledgers = ledgers
        self._locators: RecordCache[SchemaLocator] = RecordCache(
            store, SCHEMAS_ROOT, decode=_decode, encode=SchemaLocator.SerializeToString
        )
        self._cached_max = cached_max
        self._cached: OrderedDict[VersionPlace, StoredSchema] = OrderedDict()

    async def locator(self, name: str) -> Locator:
        """What is known of a name; without places when it never had a schema."""
        kept = await self._locators.get(_path(name))
        return Locator(() if kept is None else _places(kept.value))

    async def read(self, name: str, place: VersionPlace) -> StoredSchema:
        """One version. PersistenceFailed, naming it, when its definition cannot be read now or at all."""
        stored = self._cached.get(place)
        if stored is not None:
            self._cached.move_to_end(place)
            return stored
        try:
            stored = decode_stored(place.version, await self._ledgers.read(place.ledger_id, place.entry_id))
        except MagnetarError as error:
            way_out = ". Delete the topic's schema to begin another" if isinstance(error, NoSuchLedger) else ""
            raise PersistenceFailed(
                f"Version {place.version} of the schema of {name} cannot be read"
                f" from entry {place.ledger_id}:{place.entry_id}: {error}{way_out}"
            ) from error
        self._cached[place] = stored
        if len(self._cached) > self._cached_max:
            self._cached.popitem(last=False)
        return stored

    async def append(self, name: str, known: Locator, stored: StoredSchema) -> None:
        """Add a version behind those of the locator that was read. BadVersion when another was faster."""
        kept = await self._locators.get(_path(name))
        before = SchemaLocator() if kept is None else kept.value
        _require_same(before, known)
        ledger_id = await self._write(name, before, stored)

        def following(present: SchemaLocator | None) -> SchemaLocator:
            _require_same(present or SchemaLocator(), known)
            return _following(present or SchemaLocator(), stored, ledger_id)

        try:
            await self._locators.update(_path(name), following)
        except MagnetarError as error:
            # Not when the outcome is unknown: then the locator may name the ledger.
            if not error.retryable:
                with contextlib.suppress(MagnetarError):
                    await self._delete_unnamed(name, ledger_id)
            raise

    async def delete(self, name: str) -> list[int]:
        """Forget a name with all its versions; returns the versions that were there. The locator goes first."""
        locator = await self.locator(name)
        if not locator.places:
            return []
        with contextlib.suppress(NoRecord):
            await self._store.delete(_path(name))
        self._locators.forget(_path(name))
        for place in locator.places:
            self._cached.pop(place, None)
            try:
                await self._ledgers.delete(place.ledger_id)
            except MagnetarError as error:
                _log.warning("schema of %s: ledger %d is not deleted: %s", name, place.ledger_id, error)
        return [place.version for place in locator.places]

    def close(self) -> None:
        self._locators.close()
        self._cached.clear()

    async def _delete_unnamed(self, name: str, ledger_id: int) -> None:
        """A write whose answer was lost may have been carried out, and another version may stand behind it."""
        self._locators.forget(_path(name))
        locator = await self.locator(name)
        if all(place.ledger_id != ledger_id for place in locator.places):
            await self._ledgers.delete(ledger_id)

    async def _write(self, name: str, before: SchemaLocator, stored: StoredSchema) -> int:
        entry = SchemaEntry(schema_data=encode_stored(name, stored), index=before.index)
        if not before.index:
            first = entry.index.add(version=stored.version, hash=_hash(stored))
            first.position.ledgerId = first.position.entryId = -1
        ledger_id = await self._ledgers.reserve_id()
        about = {"component": b"schema", "pulsar/schemaId": name.encode()}
        await self._ledgers.write(ledger_id, [entry.SerializeToString()], about)
        return ledger_id


def _path(name: str) -> str:
    return f"{SCHEMAS_ROOT}/{name}"


def _hash(stored: StoredSchema) -> bytes:
    return b"" if stored.is_deleted else stored.schema.hash


def _require_same(present: SchemaLocator, known: Locator) -> None:
    """What the caller judged by must still be what there is."""
    if _places(present) != known.places:
        raise BadVersion("another version of the schema was added meanwhile")


def _following(before: SchemaLocator, stored: StoredSchema, ledger_id: int) -> SchemaLocator:
    following = SchemaLocator()
    following.CopyFrom(before)
    newest = IndexEntry(version=stored.version, hash=_hash(stored))
    newest.position.ledgerId, newest.position.entryId = ledger_id, 0
    following.index.append(newest)
    following.info.CopyFrom(newest)
    return following


def _places(locator: SchemaLocator) -> tuple[VersionPlace, ...]:
    return tuple(
        VersionPlace(entry.version, entry.position.ledgerId, entry.position.entryId, entry.hash)
        for entry in locator.index
    )


def _decode(value: bytes) -> SchemaLocator:
    try:
        return SchemaLocator.FromString(value)
    except DecodeError as error:
        raise DamagedRecord(f"the record is no schema locator: {error}") from error


def deletion(version: int, stored_ms: int, user: str, last: SchemaType) -> StoredSchema:
    """The version that says: what came before, of this type, is deleted."""
    return StoredSchema(version, Schema(last), stored_ms, user, True)
