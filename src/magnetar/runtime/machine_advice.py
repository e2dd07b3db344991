# SPDX-License-Identifier: Apache-2.0
"""What to say of a machine when a process starts on it: how its memory divides, and disks that do not suit their job.

Pulsar's advice: 1 to 2 GB are the system's, half of the rest a process's, half the page cache's; journals are on disks
of their own, because their syncs wait for whatever else a disk does, and on disks that do not rotate.
Decides.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

_GIB: Final = 1024**3
_SYSTEM_SHARE: Final = 8


class MemorySplit(NamedTuple):
    system_bytes: int
    process_bytes: int
    page_cache_bytes: int


def split_memory(total_bytes: int) -> MemorySplit:
    """An eighth for the system, between one and two GiB and at most half; the rest in two halves."""
    system = min(max(total_bytes // _SYSTEM_SHARE, _GIB), 2 * _GIB, total_bytes // 2)
    process = (total_bytes - system) // 2
    return MemorySplit(system, process, total_bytes - system - process)


def memory_sentences(total_bytes: int, bounds: Mapping[str, int]) -> list[str]:
    """How memory should divide, what this process may hold by its settings, and a warning where that is more."""
    split = split_memory(total_bytes)
    held = sum(bounds.values())
    named = ", ".join(f"{name} {_shown(size)}" for name, size in bounds.items())
    divided = (
        f"memory {_shown(total_bytes)}: {_shown(split.system_bytes)} for the system, {_shown(split.process_bytes)} for "
        f"this process, {_shown(split.page_cache_bytes)} for the page cache"
    )
    found = [f"{divided}; by its settings it holds up to {_shown(held)} ({named})"]
    if held > split.process_bytes:
        found.append(
            f"settings allow this process {_shown(held)}, more than the {_shown(split.process_bytes)} that this "
            "machine should give it: lower the caches, or the page cache starves"
        )
    return found


def shared_disks(journals: Sequence[str], ledgers: Sequence[str], device_of: Callable[[str], int | None]) -> list[str]:
    """A sentence for each journal on a device that ledgers are on, too. `device_of` knows a directory's device."""
    taken = {device: ledger for ledger in reversed(ledgers) if (device := device_of(ledger)) is not None}
    return [
        f"journal {journal} and ledgers {taken[device]} are on one device: every sync waits for what is read and "
        "flushed there; give journalDirectories a disk of its own"
        for journal in journals
        if (device := device_of(journal)) in taken and device is not None
    ]


def rotating_journals(journals: Sequence[str], is_rotational: Callable[[str], bool | None]) -> list[str]:
    """A sentence for each synced journal on a disk that turns. `is_rotational` is None where nobody can tell."""
    return [
        f"journal {journal} is on a rotating disk and every group of adds is synced there, which takes milliseconds "
        "each time: put journalDirectories on an SSD, or give up durability on power loss with journalSyncData=false"
        for journal in journals
        if is_rotational(journal)
    ]


def _shown(size: int) -> str:
    return f"{size / _GIB:.1f} GiB" if size >= _GIB // 10 else f"{size / 1024**2:.0f} MiB"
