# SPDX-License-Identifier: Apache-2.0
"""The bytes of one simulated file: as the running system sees them, as they lie on the medium, and what is between.

Owns the rule of what a power loss may leave. Never waits and never fails by itself: errors and delays are the kernel's
(`simulated_kernel.py`). Decides.
"""

from enum import Enum
from random import Random
from typing import NamedTuple

SECTOR_SIZES = (512, 4096)


class Write(NamedTuple):
    offset: int
    data: bytes


class Resize(NamedTuple):
    length: int


class Loss(Enum):
    """What a power loss did to the operations of one file that no sync had covered."""

    NOTHING_KEPT = "nothing-kept"
    ALL_KEPT = "all-kept"
    PREFIX_KEPT = "prefix-kept"
    TORN_WRITE = "torn-write"
    SECTORS_KEPT = "sectors-kept"
    ZEROS_KEPT = "zeros-kept"


class Pages:
    """Operations are numbered from 0; a mark is the number of the next one."""

    __slots__ = ("_applied", "_pending", "durable", "harmed", "visible")

    def __init__(self, content: bytes = b"") -> None:
        self.visible = bytearray(content)
        self.durable = bytearray(content)
        self._pending: list[Write | Resize] = []
        self._applied = 0
        # Where bytes were damaged and not written since.
        self.harmed: set[int] = set()

    def __len__(self) -> int:
        return len(self.visible)

    def write(self, offset: int, data: bytes) -> None:
        self._pending.append(Write(offset, data))
        _apply(self.visible, self._pending[-1])
        if self.harmed:
            self.harmed.difference_update(range(offset, offset + len(data)))

    def write_through(self, offset: int, data: bytes) -> None:
        """Written and durable at once, for itself alone: earlier writes stay where they are, earlier growth is kept."""
        pending = self._take(self.mark())
        for operation in (*pending, Write(offset, data)):
            if isinstance(operation, Resize) or operation.data is data:
                _apply(self.durable, operation)
            else:
                self._pending.append(operation)
        _apply(self.visible, Write(offset, data))

    def write_lost(self, offset: int, data: bytes) -> None:
        """The device says that it wrote, and did not: right in memory, absent on the medium."""
        _apply(self.visible, Write(offset, data))

    def write_elsewhere(self, offset: int, data: bytes, landed: int) -> None:
        """The device writes to a wrong place: right in memory until that page is read again."""
        _apply(self.visible, Write(offset, data))
        self._pending.append(Write(landed, data))

    def resize(self, length: int) -> None:
        self._pending.append(Resize(length))
        _apply(self.visible, self._pending[-1])

    def mark(self) -> int:
        return self._applied + len(self._pending)

    def sync(self, mark: int) -> None:
        """Make the operations before the mark durable."""
        for operation in self._take(mark):
            _apply(self.durable, operation)

    def forget(self, mark: int) -> None:
        """A sync failed: the system takes the pages for clean and will never write them. Readable until evicted."""
        self._take(mark)

    def is_clean(self) -> bool:
        return not self._pending

    def evict(self) -> None:
        """Clean pages may leave memory at any time; the next reader sees the medium."""
        if not self._pending:
            self.visible = bytearray(self.durable)

    def is_durable(self, start: int, end: int) -> bool:
        return len(self.durable) >= end and self.durable[start:end] == self.visible[start:end]

    def lose_power(self, random: Random) -> Loss | None:
        """Keep a legal part of what was not synced; None when everything was."""
        pending = self._take(self.mark())
        loss = random.choice(tuple(Loss)) if pending else None
        if loss is Loss.ALL_KEPT:
            _apply_all(self.durable, pending)
        elif loss is Loss.PREFIX_KEPT:
            _apply_all(self.durable, pending[: random.randrange(len(pending) + 1)])
        elif loss is Loss.TORN_WRITE:
            last = random.randrange(len(pending))
            _apply_all(self.durable, pending[:last])
            torn = pending[last]
            _apply(self.durable, _torn(torn, random) if isinstance(torn, Write) else torn)
        elif loss is Loss.SECTORS_KEPT:
            self._keep_sectors(pending, random)
        elif loss is Loss.ZEROS_KEPT and len(self.visible) > len(self.durable):
            self.durable.extend(bytes(len(self.visible) - len(self.durable)))
        self.visible = bytearray(self.durable)
        return loss

    def damage(self, offset: int, data: bytes) -> None:
        """Change bytes at rest, behind everyone's back."""
        self.harmed.update(range(offset, offset + len(data)))
        for content in (self.visible, self.durable):
            end = min(len(content), offset + len(data))
            if end > offset:
                content[offset:end] = data[: end - offset]

    def _take(self, mark: int) -> list[Write | Resize]:
        count = max(0, mark - self._applied)
        taken = self._pending[:count]
        del self._pending[:count]
        self._applied += len(taken)
        return taken

    def _keep_sectors(self, pending: list[Write | Resize], random: Random) -> None:
        size = random.choice(SECTOR_SIZES)
        chance = random.random()
        length = len(self.visible)
        for index, operation in enumerate(pending):
            if isinstance(operation, Resize):
                if random.random() < chance:
                    _apply(self.durable, operation)
                continue
            whole = operation if index + 1 < len(pending) else _torn(operation, random)
            for piece in _sectors(whole, size):
                if random.random() < chance:
                    _apply(self.durable, piece)
        if len(self.durable) < length and random.random() < 0.5:
            self.durable.extend(bytes(length - len(self.durable)))


def _apply(content: bytearray, operation: Write | Resize) -> None:
    if isinstance(operation, Resize):
        if operation.length < len(content):
            del content[operation.length :]
        else:
            content.extend(bytes(operation.length - len(content)))
        return
    offset, data = operation
    if offset > len(content):
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def _apply_all(content: bytearray, operations: list[Write | Resize]) -> None:
    for operation in operations:
        _apply(content, operation)


def _torn(write: Write, random: Random) -> Write:
    return Write(write.offset, write.data[: random.randrange(len(write.data) + 1)])


def _sectors(write: Write, size: int) -> list[Write]:
    pieces = []
    start, end = write.offset, write.offset + len(write.data)
    while start < end:
        stop = min(end, start - start % size + size)
        pieces.append(Write(start, write.data[start - write.offset : stop - write.offset]))
        start = stop
    return pieces
