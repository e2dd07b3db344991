# SPDX-License-Identifier: Apache-2.0
"""How far a topic is compacted, and which ledger holds the result: what the compaction cursor says.

As upstream has it: the cursor `__compaction` stands at the last entry that was compacted, and its property
`CompactedTopicLedger` names the ledger. Both are saved in one write, so a crash shows either the old view or the new.
Decides.
"""

from typing import Final, NamedTuple

from magnetar.ids import Position
from magnetar.managed_ledger.cursor import Cursor

COMPACTION_CURSOR: Final = "__compaction"
LEDGER_PROPERTY: Final = "CompactedTopicLedger"


class Horizon(NamedTuple):
    """The compacted ledger holds what is left of everything up to and with `last`."""

    ledger_id: int
    last: Position


def horizon_of(cursor: Cursor | None) -> Horizon | None:
    """None when the topic was never compacted."""
    if cursor is None:
        return None
    ledger_id = cursor.properties.get(LEDGER_PROPERTY, -1)
    return Horizon(ledger_id, cursor.mark_delete) if ledger_id >= 0 else None
