# SPDX-License-Identifier: Apache-2.0
"""Ledgers that say whose they are, while no record of that owner knows them.

Owners are managed ledgers, their cursors, the buckets of delayed messages that cursors name, the schemas of topics,
compaction, and snapshots of transactions. Of a topic that is still there the compacted ledger and the segments of
snapshots are never orphans: the next run of compaction and the topic's owner delete what an earlier one left.

Our own owners leave none, whatever call they die at; other brokers do, and so does an owner that was replaced and
dies while it still makes a ledger. For checks by an operator: it reads every ledger's record. A ledger is an orphan
only when two looks agree (R13): before and after its managed ledger's records were read it was there, and they do not
name it.
Carries.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from magnetar.errors import DamagedRecord, NoSuchLedger
from magnetar.ledger.ledgers import Ledgers
from magnetar.managed_ledger.catalog import Catalog
from magnetar.managed_ledger.cursor_record import NO_LEDGER, CursorRecord
from magnetar.managed_ledger.ledger_record import LedgerRecord
from magnetar.metadata.store import MetadataStore
from magnetar.names import SCHEMAS_ROOT, TopicName
from magnetar.wire.proto.schema_storage_pb2 import SchemaLocator

_COMPONENT: Final = "component"
_OWNER: Final = "pulsar/managed-ledger"
_CURSOR: Final = "pulsar/cursor"
_SCHEMA: Final = "pulsar/schemaId"
_COMPACTED: Final = "pulsar/compactedTopic"
# Properties of cursors that say in which ledgers delayed messages are.
_BUCKETS: Final = "#pulsar.internal.delayed.bucket_"


class Orphan(NamedTuple):
    ledger_id: int
    # What it was made for: a managed ledger by its name, a schema or a compacted topic by theirs.
    owner: str
    # The cursor, if it is a cursor's.
    cursor: str = ""
    component: str = "managed-ledger"


async def orphans(store: MetadataStore, ledgers: Ledgers) -> AsyncIterator[Orphan]:
    """Every orphan there is, by rising id. Nothing is deleted here."""
    known: dict[tuple[str, str], frozenset[int] | None] = {}
    async for ledger_id in ledgers.catalog.ledger_ids():
        claim = await _claim(ledgers, ledger_id)
        if claim is None:
            continue
        place = claim.component, claim.owner
        named = known.get(place, frozenset())
        if named is not None and ledger_id not in named:
            # A ledger made since the last look is named by now: look again before anything is said.
            named = known[place] = await _NAMED[claim.component](store, claim.owner)
        if named is not None and ledger_id not in named and await ledgers.exists(ledger_id):
            yield claim


async def _claim(ledgers: Ledgers, ledger_id: int) -> Orphan | None:
    try:
        custom = (await ledgers.catalog.load(ledger_id)).record.custom or {}
    except NoSuchLedger:
        return None
    component = custom.get(_COMPONENT, b"").decode(errors="replace")
    owner = custom.get(_OWNERS.get(component, ""))
    if owner is None:
        return None
    return Orphan(ledger_id, owner.decode(), custom.get(_CURSOR, b"").decode(), component)


async def _named_ledgers(store: MetadataStore, name: str) -> frozenset[int]:
    catalog = Catalog(store, name)
    found = await catalog.record.read()
    if found is None:
        return frozenset()
    record = LedgerRecord(found.value)
    named = {span.ledger_id for span in record.spans()} | {*record.deleting}
    if record.reserved is not None:
        named.add(record.reserved)
    for cursor_name in await catalog.cursor_names():
        cursor = await catalog.cursor(cursor_name).read()
        if cursor is None:
            continue
        state = CursorRecord.decode(cursor.value)
        named |= {state.ledger_id, *state.deleting, NO_LEDGER if state.reserved is None else state.reserved}
        buckets = {name: value for name, value in state.user_properties.items() if name.startswith(_BUCKETS)}
        named |= {int(value) for value in buckets.values() if value.isdecimal()}
    return frozenset(named)


async def _ledgers_of_schema(store: MetadataStore, name: str) -> frozenset[int]:
    found = await store.get(f"{SCHEMAS_ROOT}/{name}")
    if found is None:
        return frozenset()
    try:
        locator = SchemaLocator.FromString(found.value)
    except DecodeError as error:
        raise DamagedRecord(f"the record of schema {name} is no schema locator: {error}") from error
    return frozenset(entry.position.ledgerId for entry in locator.index)


async def _ledgers_of_compaction(store: MetadataStore, topic: str) -> frozenset[int] | None:
    """None while the topic is there: compaction looks after its own."""
    found = await Catalog(store, TopicName.parse(topic).persistence_name).record.read()
    return frozenset() if found is None else None


async def _ledgers_of_snapshots(store: MetadataStore, name: str) -> frozenset[int] | None:
    """None while the log is there: its owner looks after the segments of its transactions."""
    return frozenset() if await Catalog(store, name).record.read() is None else None


_OWNERS: Final = {
    "managed-ledger": _OWNER,
    "delayed-index-bucket": _OWNER,
    "transaction-snapshot-segment": _OWNER,
    "schema": _SCHEMA,
    "compacted-topic": _COMPACTED,
}
_NAMED: Final[dict[str, Callable[[MetadataStore, str], Awaitable[frozenset[int] | None]]]] = {
    "managed-ledger": _named_ledgers,
    "delayed-index-bucket": _named_ledgers,
    "transaction-snapshot-segment": _ledgers_of_snapshots,
    "schema": _ledgers_of_schema,
    "compacted-topic": _ledgers_of_compaction,
}
