# SPDX-License-Identifier: Apache-2.0
"""Metadata from one store to another: export, import, and whether two hold the same.

Walks trees with one record in memory at a time: what it takes depends on the longest list of children, not on the
size of the tree. Ephemeral records belong to living processes and are left out. An import never overwrites. The
numbers of sequential names go along: whoever makes ledger ids from them must not give one twice.
Carries.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Final, NamedTuple

from magnetar.errors import BadVersion, DamagedRecord, MetadataError, Refused
from magnetar.metadata.paths import ROOT, child_of, is_within
from magnetar.metadata.store import MUST_NOT_EXIST, MetadataStore, Record
from magnetar.metadata.transfer_format import (
    ExportedRecord,
    Sequence,
    Summary,
    check_head,
    decode,
    encode,
    extended,
    head,
)

# ZooKeeper's own records are part of the server, not of what it stores.
NOT_OURS: Final = "/zookeeper"
DIFFERENCES_MAX: Final = 1_000
_BURNED_AT_ONCE: Final = 100
PROBE: Final = "magnetar-sequence-"


class Moved(NamedTuple):
    records: int
    sequences: int
    # Ephemeral ones in an export, those that were there already in an import.
    left_out: int


class Difference(NamedTuple):
    path: str
    what: str


async def export_records(
    store: MetadataStore, write: Callable[[bytes], object], sequence_parents: Iterable[str], now_ms: int
) -> Moved:
    """Write every persistent record, then the sequences of these parents, then the summary."""
    checksum, records, left_out = 0, 0, 0

    def put(line: bytes) -> None:
        nonlocal checksum
        checksum = extended(checksum, line)
        write(line)

    put(head(now_ms))
    async for path, record in walk(store):
        if record.ephemeral:
            left_out += 1
            continue
        put(encode(ExportedRecord(path, record.value, record.version, record.modified_ms)))
        records += 1
    sequences = 0
    for parent in sequence_parents:
        if await store.exists(parent):
            put(encode(Sequence(parent, await following(store, parent))))
            sequences += 1
    write(encode(Summary(records, sequences, checksum)))
    return Moved(records, sequences, left_out)


async def import_records(
    store: MetadataStore, lines: Callable[[], Iterable[bytes]], where: str, *, merge: bool = False
) -> Moved:
    """Write what a checked file holds. Refused when the store has records, or, merging, a different one.

    `lines` is called twice: once to check the whole file, once to write it.
    """
    for _ in checked(lines(), where):
        pass
    if not merge:
        found = [name for name in await store.children(ROOT) if child_of(ROOT, name) != NOT_OURS]
        if found:
            raise Refused(
                f"The store is not empty (it has {child_of(ROOT, found[0])}); nothing was written. "
                "Import into an empty one, or add only what is missing with --merge"
            )
    records, sequences, left_out = 0, 0, 0
    for item in checked(lines(), where):
        if isinstance(item, ExportedRecord):
            if await _place(store, item):
                records += 1
            else:
                left_out += 1
        elif isinstance(item, Sequence):
            await raise_sequence(store, item.parent, item.following)
            sequences += 1
    return Moved(records, sequences, left_out)


async def differences(store: MetadataStore, lines: Iterable[bytes], where: str) -> list[Difference]:
    """What a store has otherwise than a file, up to a limit; an empty list means that they are the same.

    Both come in the same order, so they are read side by side.
    """
    found: list[Difference] = []
    exported = (item for item in checked(lines, where) if isinstance(item, ExportedRecord))
    wanted = next(exported, None)
    async for path, record in walk(store):
        if record.ephemeral:
            continue
        while wanted is not None and _place_in_walk(wanted.path) < _place_in_walk(path):
            found.append(Difference(wanted.path, "is missing in the store"))
            wanted = next(exported, None)
        if wanted is None or wanted.path != path:
            found.append(Difference(path, "is in the store only"))
        else:
            if wanted.value != record.value:
                found.append(Difference(path, "has another value in the store"))
            wanted = next(exported, None)
        if len(found) >= DIFFERENCES_MAX:
            return found
    while wanted is not None and len(found) < DIFFERENCES_MAX:
        found.append(Difference(wanted.path, "is missing in the store"))
        wanted = next(exported, None)
    return found


async def store_differences(one: MetadataStore, two: MetadataStore) -> list[Difference]:
    """What two stores have otherwise, up to a limit."""
    found: list[Difference] = []
    for here, there, compares in ((one, two, True), (two, one, False)):
        async for path, record in walk(here):
            if record.ephemeral:
                continue
            other = await there.get(path)
            if other is None:
                found.append(Difference(path, f"is in the {'first' if compares else 'second'} store only"))
            elif compares and other.value != record.value:
                found.append(Difference(path, "has another value in the second store"))
            if len(found) >= DIFFERENCES_MAX:
                return found
    return found


async def walk(store: MetadataStore, path: str = ROOT) -> AsyncIterator[tuple[str, Record]]:
    """Every record below a path, parents first, names in order."""
    for name in await store.children(path):
        child = child_of(path, name)
        if is_within(child, NOT_OURS):
            continue
        record = await store.get(child)
        if record is None:
            continue
        yield child, record
        async for found in walk(store, child):
            yield found


def _place_in_walk(path: str) -> list[str]:
    """Sorted by this, paths come as `walk` gives them."""
    return path.split("/")


def checked(lines: Iterable[bytes], where: str) -> Iterator[ExportedRecord | Sequence | Summary]:
    """The items of a file. DamagedRecord when a line, the order or the whole is not what was written."""
    checksum, records, sequences = 0, 0, 0
    ended = False
    for number, line in enumerate(lines, 1):
        place = f"{where}, line {number}"
        if ended:
            raise DamagedRecord(f"{place} comes after the end: two exports were put together")
        if number == 1:
            check_head(line, place)
        else:
            item = decode(line, place)
            if isinstance(item, Summary):
                ended = True
                if item != Summary(records, sequences, checksum):
                    raise DamagedRecord(f"{place} tells of other lines than those before it: some were lost or changed")
            records += isinstance(item, ExportedRecord)
            sequences += isinstance(item, Sequence)
            yield item
        checksum = extended(checksum, line)
    if not ended:
        raise DamagedRecord(f"{where} ends without its last line: the export was cut off")


async def following(store: MetadataStore, parent: str) -> int:
    """The number that the next sequential name below a parent gets; asking uses one up."""
    stored = await store.put(child_of(parent, PROBE), b"", ephemeral=True, sequential=True)
    await store.delete(stored.path)
    return int(stored.path[-10:]) + 1


async def raise_sequence(store: MetadataStore, parent: str, at_least: int) -> None:
    """Use numbers up until the next is at least this."""
    while (left := at_least - await following(store, parent)) > 0:
        # Some stores count the deletion as well, so not more than half of what is left at a time.
        await asyncio.gather(*(following(store, parent) for _ in range(max(1, min(_BURNED_AT_ONCE, left // 2)))))


async def _place(store: MetadataStore, item: ExportedRecord) -> bool:
    """Whether the record was written; False when the very same is there."""
    try:
        await store.put(item.path, item.value, expected_version=MUST_NOT_EXIST)
        return True
    except BadVersion:
        record = await store.get(item.path)
    if record is not None and record.value == item.value:
        return False
    raise MetadataError(f"{item.path} is in the store with another value; it stays as it is, and the import stops here")
