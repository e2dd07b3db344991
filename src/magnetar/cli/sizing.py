# SPDX-License-Identifier: Apache-2.0
"""`magnetar sizing`: how many disks a cluster's bookies need for a given load, and why.

Journals are sized by what is written, ledgers by what is written and read and by what is kept; both count every copy.
Decides.
"""

from typing import Final, NamedTuple

from magnetar.errors import BadSetting

_SECONDS_PER_HOUR: Final = 3_600
# What a disk should be full of at most: garbage collection and recovery need room.
_FILLED: Final = 0.8


class Load(NamedTuple):
    """Of the whole cluster, in MB a second of messages, before copies."""

    published: float
    # Consumers that read from disk: those that lag behind the caches.
    read_from_disk: float = 0.0
    copies: int = 1
    kept_hours: float = 0.0


class DiskKind(NamedTuple):
    """One disk: MB a second, and GB."""

    write: float
    read: float
    size: float


class Disks(NamedTuple):
    journals: int
    ledgers: int
    reasons: tuple[str, ...]


def size(load: Load, disk: DiskKind) -> Disks:
    """Disks for journals and for ledgers. BadSetting for numbers that cannot be."""
    if min(load.published, disk.write, disk.read, disk.size) <= 0 or min(load.read_from_disk, load.kept_hours) < 0:
        raise BadSetting("Rates and sizes are above zero: give --publish-mb, --disk-mb and --disk-gb")
    if load.copies < 1:
        raise BadSetting(f"--copies {load.copies}: a message has at least one copy")
    written = load.published * load.copies
    journals = _up(written / disk.write)
    by_rate = _up(written / disk.write + load.read_from_disk / disk.read)
    kept_gb = load.published * load.copies * load.kept_hours * _SECONDS_PER_HOUR / 1_000
    by_size = _up(kept_gb / (disk.size * _FILLED))
    return Disks(
        journals,
        max(by_rate, by_size, 1),
        (
            f"journals: {written:g} MB/s written, {disk.write:g} MB/s for each disk",
            f"ledgers by rate: {by_rate} ({written:g} MB/s written and {load.read_from_disk:g} MB/s read)",
            f"ledgers by size: {by_size} ({kept_gb:,.0f} GB kept, {disk.size:g} GB for each disk, {_FILLED:.0%} full)",
        ),
    )


def _up(value: float) -> int:
    """Rounded up, but for what is a rounding error."""
    return int(-(-round(value, 9) // 1))
