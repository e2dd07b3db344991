# SPDX-License-Identifier: Apache-2.0
"""Says at the start of a role what its machine gives: memory, and disks that do two jobs.

Carries.
"""

import logging
import os
from pathlib import Path

from magnetar.config.load import Settings
from magnetar.runtime.host import read_host
from magnetar.runtime.machine_advice import memory_sentences, shared_disks

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


def warn_of_shared_disks(settings: Settings, data_dir: str) -> None:
    def device_of(directory: str) -> int | None:
        try:
            return os.stat(Path(data_dir) / directory).st_dev
        except OSError:
            return None

    for sentence in shared_disks(settings.bookie.journal_directories, settings.bookie.ledger_directories, device_of):
        _log.warning("%s", sentence)
