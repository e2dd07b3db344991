# SPDX-License-Identifier: Apache-2.0
"""When a ledger has had enough: full and old enough, or too old, or idle for too long.

Decides.
"""

from enum import Enum

from magnetar.config.managed_ledger import ManagedLedgerSettings


class Rollover(Enum):
    STAY = "stay"
    # Another ledger takes over at once; appends go on.
    ROLL = "roll"
    # The ledger is closed, the next append opens another.
    CLOSE = "close"


def is_full(settings: ManagedLedgerSettings, *, entries: int, size_bytes: int) -> bool:
    return entries >= settings.ledger_entries_max or size_bytes >= settings.ledger_bytes_max


def decide_rollover(
    settings: ManagedLedgerSettings, *, entries: int, size_bytes: int, age_ms: int, idle_ms: int
) -> Rollover:
    """An empty ledger stays: there is nothing to let go, and another one would be as empty."""
    if not entries:
        return Rollover.STAY
    too_old = 0 < settings.rollover_age_max_ms <= age_ms
    idle = 0 < settings.rollover_idle_ms <= idle_ms
    if idle or (too_old and idle_ms >= min(settings.rollover_age_max_ms, settings.upkeep_interval_ms)):
        return Rollover.CLOSE
    full = is_full(settings, entries=entries, size_bytes=size_bytes)
    if too_old or (full and age_ms >= settings.rollover_age_min_ms):
        return Rollover.ROLL
    return Rollover.STAY
