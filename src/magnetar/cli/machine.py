# SPDX-License-Identifier: Apache-2.0
"""Says at the start of a role what its machine gives: memory, and disks that do not suit their job.

Carries.
"""

import logging
import os
from pathlib import Path

from magnetar.config.bookie import BookieSettings
from magnetar.config.load import Settings
from magnetar.runtime.host import read_host
from magnetar.runtime.machine_advice import memory_sentences, rotating_journals, shared_disks

_log = logging.getLogger(__name__)


def describe_memory(settings: Settings, *, brokers: bool = False, bookies: bool = False) -> None:
    """One line, and a warning where the settings allow more than the machine should give."""
    bounds: dict[str, int] = {}
    if brokers:
        bounds |= {
            "entry cache": settings.managed_ledger.cache_bytes_max,
            "publishes under way": settings.broker.process_publish_bytes_max,
            "reads under way": settings.managed_ledger.read_bytes_in_flight_max,
        }
    if bookies:
        bounds |= {
            "write cache": settings.bookie.write_cache_bytes_max,
            "read cache": settings.bookie.read_cache_bytes_max,
            "journal queue": settings.bookie.journal_queue_bytes_max,
        }
    sentence, *warnings = memory_sentences(int(read_host().memory_limit_bytes), bounds)
    _log.info("%s", sentence)
    for warning in warnings:
        _log.warning("%s", warning)


def warn_of_disks(settings: BookieSettings, data_dir: str) -> None:
    """Journals that share a device with ledgers, and synced journals on devices that rotate."""

    def device_of(directory: str) -> int | None:
        try:
            return os.stat(Path(data_dir) / directory).st_dev
        except OSError:
            return None

    def is_rotational(directory: str) -> bool | None:
        device = device_of(directory)
        return None if device is None else device_rotates(device)

    sentences = shared_disks(settings.journal_directories, settings.ledger_directories, device_of)
    if settings.journal_sync:
        sentences += rotating_journals(settings.journal_directories, is_rotational)
    for sentence in sentences:
        _log.warning("%s", sentence)


def device_rotates(device: int, devices: Path = Path("/sys/dev/block")) -> bool | None:
    """What the kernel says of a device, or of the disk that it is a partition of; None where it says nothing."""
    found = (devices / f"{os.major(device)}:{os.minor(device)}").resolve()
    for place in (found, found.parent):
        try:
            return (place / "queue" / "rotational").read_text().strip() == "1"
        except OSError:
            continue
    return None
