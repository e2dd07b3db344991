# SPDX-License-Identifier: Apache-2.0
"""Writes a snapshot of the embedded store: chunk by chunk beside the old one, synced, then renamed into its name.

A name without `.partial` therefore always belongs to a whole file. Never reads and never removes.
Carries.
"""

from collections.abc import Iterator

from magnetar.metadata.embedded_format import (
    SNAPSHOT_CHUNK_BYTES,
    FileHeader,
    FileKind,
    Item,
    SnapshotEnd,
    encode_header,
    encode_items,
    encode_record,
)
from magnetar.metadata.embedded_recovery import PARTIAL_SUFFIX, snapshot_path
from magnetar.metadata.tree import Effect
from magnetar.runtime.disk import Disk


async def write_snapshot(
    disk: Disk,
    directory: str,
    contents: Iterator[Effect],
    *,
    generation: int,
    store_id: int,
    sequence: int,
    next_session: int,
) -> int:
    """Make `contents` durable as the state after change `sequence`; returns the file's size in bytes."""
    path = snapshot_path(directory, generation)
    header = FileHeader(FileKind.SNAPSHOT, generation, store_id, sequence)
    file = await disk.open(path + PARTIAL_SUFFIX, create=True, truncate=True)
    try:
        first = encode_header(header)
        await file.write(0, [first])
        offset = len(first)
        for number, body in enumerate(_bodies(contents, next_session)):
            record = encode_record(header, offset, number, 0, body)
            await file.write(offset, [record])
            offset += len(record)
        await file.sync()
    finally:
        await file.close()
    await disk.rename(path + PARTIAL_SUFFIX, path)
    await disk.sync_directory(directory)
    return offset


def _bodies(contents: Iterator[Effect], next_session: int) -> Iterator[bytes]:
    """Record bodies of about a chunk each; encoding one is all the work between two writes."""
    count = chunk_bytes = 0
    chunk: list[bytes] = []
    for effect in contents:
        encoded = encode_items((effect,))
        chunk.append(encoded)
        chunk_bytes += len(encoded)
        count += 1
        if chunk_bytes >= SNAPSHOT_CHUNK_BYTES:
            yield b"".join(chunk)
            chunk_bytes = 0
            chunk.clear()
    end: Item = SnapshotEnd(count, next_session)
    yield b"".join([*chunk, encode_items((end,))])
