# SPDX-License-Identifier: Apache-2.0
"""Positions and message ids: where something lies, and how clients write that down.

Decides.
"""

from typing import NamedTuple


class Position(NamedTuple):
    """A place in a managed ledger. Entry -1 is the place before a ledger's first entry."""

    ledger_id: int
    entry_id: int


EARLIEST = Position(-1, -1)
LATEST = Position(2**63 - 1, 2**63 - 1)
