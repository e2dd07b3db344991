# SPDX-License-Identifier: Apache-2.0
"""What the journal of a server that was killed holds and nothing else does: what its next start has to replay."""

import asyncio
import re
import struct
from pathlib import Path

from benchmarks.servers import MagnetarServer, Server
from magnetar.bookie.journal_replay import JournalReplay
from magnetar.bookie.last_mark import MARK_FILE_NAME, decode_mark
from magnetar.config.bookie import BookieSettings
from magnetar.runtime.real_disk import RealDisk

_TAIL_BYTES = 2**20
_REPLAYED = re.compile(r"(\d+) journal records were replayed")


async def records_held(directory: Path) -> list[int]:
    """The bytes of each record of ours behind the last mark."""
    mark_path = directory / MARK_FILE_NAME
    mark = decode_mark(mark_path.read_bytes()) if mark_path.exists() else None
    disk = RealDisk(str(directory))
    replay = JournalReplay(disk, ".", mark, payload_bytes_max=2 * BookieSettings().entry_bytes_max)
    try:
        return [len(record.payload) async for record in replay.records()]
    finally:
        await disk.close()


def bookkeeper_bytes_held(directory: Path) -> int:
    """Bytes of BookKeeper's journal files behind its last mark."""
    file_id, offset = struct.unpack(">QQ", (directory / MARK_FILE_NAME).read_bytes())
    files = {int(path.stem, 16): path for path in directory.glob("*.txn")}
    held = sum(_used_bytes(path) for found, path in files.items() if found >= file_id)
    return held - (offset if file_id in files else 0)


def _used_bytes(path: Path) -> int:
    """Without the zeros at its end, which were allocated only."""
    end = path.stat().st_size
    with path.open("rb") as file:
        while end:
            start = max(0, end - _TAIL_BYTES)
            file.seek(start)
            used = len(file.read(end - start).rstrip(b"\0"))
            if used:
                return start + used
            end = start
    return 0


class Killed:
    """A server that was killed and not started again yet. `journal_mb` is what its start has to replay."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._records: int | None = None
        (directory,) = {path.parent for path in server.data_directory.rglob("*.txn")}
        if isinstance(server, MagnetarServer):
            held = asyncio.run(records_held(directory))
            self._records, held_bytes = len(held), sum(held)
        else:
            held_bytes = bookkeeper_bytes_held(directory)
        self.journal_mb = held_bytes / 2**20

    def check_replayed(self) -> None:
        """After its start: ours says in its log how many records it replayed, and it was all of them."""
        if isinstance(self._server, MagnetarServer):
            said = _REPLAYED.findall(self._server.log_path.read_text(errors="replace"))
            assert [int(count) for count in said[-1:]] == [self._records], f"{self._records} records: {said}"
