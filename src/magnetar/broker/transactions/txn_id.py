# SPDX-License-Identifier: Apache-2.0
"""TxnId: which transaction. The first half is the number of its coordinator, the second rises and is never used again.

Decides.
"""

from typing import NamedTuple


class TxnId(NamedTuple):
    most: int
    least: int

    def __str__(self) -> str:
        return f"({self.most},{self.least})"
