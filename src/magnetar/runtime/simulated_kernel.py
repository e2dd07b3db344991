# SPDX-License-Identifier: Apache-2.0
"""The kernel and the device under a simulated disk: names, pages, quota, injected faults, crashes and damage.

Everything happens at once here: who waits, and for how long, is the affair of the disk, its files and its logs. What is
random comes from the Random passed in. Decides.
"""

import errno
from collections import Counter
from math import inf
from random import Random
from typing import NamedTuple

from magnetar.runtime.simulated_faults import Call, DiskCall, DiskFaults
from magnetar.runtime.simulated_names import Directory, Names
from magnetar.runtime.simulated_pages import SECTOR_SIZES, Loss, Pages


class Fate(NamedTuple):
    """What a call will come to: after delay_s (infinite: never) it takes effect, or fails with the error."""

    delay_s: float
    error: OSError | None


class Image(NamedTuple):
    """What the medium held at some time: directories and files by path."""

    directories: tuple[str, ...]
    files: dict[str, bytes]


class SimulatedKernel:
    def __init__(self, random: Random, faults: DiskFaults, capacity_bytes: int) -> None:
        self.random = random
        self.faults = faults
        self.capacity_bytes = capacity_bytes
        self.names = Names()
        # Rises when the process that uses the disk dies: what it had open is dead from then on.
        self.generation = 0
        # Rises when the machine does.
        self.machine_life = 0
        self.calls = 0
        self.injected: Counter[str] = Counter()
        self.locks: dict[str, int] = {}
        self._used_bytes = 0

    # --- calls ------------------------------------------------------------------------------

    def begin(self, call: Call, path: str) -> Fate:
        faults, random = self.faults, self.random
        number, self.calls = self.calls, self.calls + 1
        error: OSError | None = None
        if faults.on_call is not None:
            try:
                faults.on_call(DiskCall(number, call, path))
            except OSError as raised:
                error = raised
        if call in faults.hanging:
            self.injected["hang"] += 1
            return Fate(inf, None)
        delay_s = faults.latency(call).draw_s(random)
        if call is Call.SYNC and faults.slow_sync_chance and random.random() < faults.slow_sync_chance:
            self.injected["slow-sync"] += 1
            delay_s += faults.slow_sync.draw_s(random)
        chance = faults.error_chance(call)
        if error is None and chance and random.random() < chance:
            self.injected[f"{call.value}-error"] += 1
            error = OSError(errno.EIO, f"simulated {call.value} error", path)
        return Fate(delay_s, error)

    def write(self, pages: Pages, offset: int, data: bytes) -> None:
        """Write what there is room for; ENOSPC when that is not all."""
        room = self.free_bytes()
        growth = offset + len(data) - len(pages)
        if growth > room:
            fitting = max(0, len(data) - (growth - room))
            if fitting:
                self._write_pages(pages, offset, data[:fitting])
            self.injected["no-space"] += 1
            raise OSError(errno.ENOSPC, "no space left on the simulated disk")
        if len(data) > 1 and self._strikes(self.faults.short_write_chance, "short-write"):
            cut = self.random.randrange(1, len(data))
            self._write_pages(pages, offset, data[:cut])
            offset, data = offset + cut, data[cut:]
        self._write_pages(pages, offset, data)

    def resize(self, pages: Pages, length: int) -> None:
        growth = length - len(pages)
        if growth > self.free_bytes():
            raise OSError(errno.ENOSPC, "no space left on the simulated disk")
        pages.resize(length)
        self._used_bytes += growth

    def create(self, path: str) -> Pages:
        pages = Pages()
        self.names.add(path, pages)
        return pages

    def remove(self, path: str) -> None:
        self._used_bytes -= len(self.names.remove(path))

    def rename(self, source: str, target: str) -> None:
        replaced = self.names.find(target)
        self.names.rename(source, target)
        if isinstance(replaced, Pages) and self.names.find(target) is not replaced:
            self._used_bytes -= len(replaced)

    def remove_tree(self, path: str) -> None:
        self.names.remove_tree(path)
        self._recount()

    def free_bytes(self) -> int:
        return max(0, self.capacity_bytes - self._used_bytes)

    def is_durable(self, path: str, start: int, end: int) -> bool:
        """Are these bytes of a file, and its name, safe from a power loss?"""
        node = self.names.find(path)
        return isinstance(node, Pages) and self.names.is_durable(path) and node.is_durable(start, end)

    # --- the end of a process -------------------------------------------------------------------

    def kill(self) -> None:
        """The process is gone; what it wrote is still in the kernel's memory."""
        self.generation += 1
        self.locks.clear()

    def lose_power(self) -> None:
        """The machine is gone: names and bytes that no sync covered may be, in any legal part."""
        self.kill()
        self.machine_life += 1
        names_lost = self.names.lose_power(self.random)
        if names_lost:
            self.injected["name-lost"] += names_lost
        for _, pages in self.names.files():
            loss = pages.lose_power(self.random)
            if loss is not None and loss is not Loss.ALL_KEPT:
                self.injected[loss.value] += 1
        self._recount()

    def evict(self) -> None:
        """Drop clean pages from memory: what was lost or misdirected on its way to the medium now shows."""
        for _, pages in self.names.files():
            pages.evict()
        self._recount()

    # --- damage at rest ---------------------------------------------------------------------------

    def flip_bit(self, path: str, offset: int, bit: int) -> None:
        pages = self.names.file(path)
        pages.damage(offset, bytes((pages.visible[offset] ^ (1 << bit),)))
        self.injected["bit-flip"] += 1

    def zero_sector(self, path: str, offset: int) -> None:
        size = SECTOR_SIZES[0]
        self.names.file(path).damage(offset - offset % size, bytes(size))
        self.injected["sector-zeroed"] += 1

    def image(self) -> Image:
        directories: list[str] = []
        files: dict[str, bytes] = {}
        _collect(self.names.root, "", directories, files)
        return Image(tuple(directories), files)

    def restore(self, image: Image) -> None:
        """Put the medium back to an earlier time. The process must be dead."""
        self.kill()
        self.names = Names()
        for path in image.directories:
            _add_durable(self.names, path, Directory())
        for path, content in image.files.items():
            _add_durable(self.names, path, Pages(content))
        self._recount()
        self.injected["roll-back"] += 1

    def wipe(self) -> None:
        self.kill()
        self.names = Names()
        self._recount()
        self.injected["wipe"] += 1

    def swap(self, one: str, other: str) -> None:
        """Two directories, or files, change places: cables swapped, or the wrong volume mounted."""
        (directory, name), (other_directory, other_name) = self.names.place(one), self.names.place(other)
        for view, other_view in (
            (directory.visible, other_directory.visible),
            (directory.durable, other_directory.durable),
        ):
            view[name], other_view[other_name] = other_view[other_name], view[name]
        self.injected["swap"] += 1

    def _write_pages(self, pages: Pages, offset: int, data: bytes) -> None:
        before = len(pages)
        if self._strikes(self.faults.lost_write_chance, "lost-write"):
            pages.write_lost(offset, data)
        elif self._strikes(self.faults.misdirected_write_chance, "misdirected-write"):
            sector = SECTOR_SIZES[0]
            pages.write_elsewhere(offset, data, self.random.randrange(len(pages) // sector + 1) * sector)
        else:
            pages.write(offset, data)
        self._used_bytes += len(pages) - before

    def _strikes(self, chance: float, kind: str) -> bool:
        if not chance or self.random.random() >= chance:
            return False
        self.injected[kind] += 1
        return True

    def _recount(self) -> None:
        self._used_bytes = sum(len(pages) for _, pages in self.names.files())


def _collect(directory: Directory, prefix: str, directories: list[str], files: dict[str, bytes]) -> None:
    for name in sorted(directory.durable):
        node = directory.durable[name]
        if isinstance(node, Pages):
            files[prefix + name] = bytes(node.durable)
        else:
            directories.append(prefix + name)
            _collect(node, f"{prefix}{name}/", directories, files)


def _add_durable(names: Names, path: str, node: Directory | Pages) -> None:
    names.add(path, node)
    names.sync(path.rpartition("/")[0])
