# SPDX-License-Identifier: Apache-2.0
"""The number of a topic's last message, over its owners: in its last entry or, once no entry is left, beside the log.

It is kept with the record that lets ledgers go, and read only where the last entry does not tell.
Carries.
"""

from typing import Final

from magnetar.broker.stored_message import stored_index
from magnetar.managed_ledger.managed_ledger import ManagedLedger

# The name under which a log keeps it.
LAST_INDEX: Final = "last_index"
_NONE: Final = -1


async def last_index(log: ManagedLedger) -> int:
    """-1 on a topic that never had a message, or whose broker numbered none."""
    last = log.last_confirmed
    entries = await log.read(last, entries_max=1, bytes_max=1) if last.entry_id >= 0 else []
    index = stored_index(entries[0]) if entries else _NONE
    kept = log.kept.get(LAST_INDEX, "")
    return int(kept) if index == _NONE and kept.isdecimal() else index
