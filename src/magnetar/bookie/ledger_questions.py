# SPDX-License-Identifier: Apache-2.0
"""What a bookie asks those who know the metadata, which it never reads itself.

Decides.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple


class LedgerQuestions(NamedTuple):
    """Each raises when it cannot be answered; an error never counts as a no."""

    # The ids of all ledgers that exist.
    existing: Callable[[], Awaitable[Iterable[int]]]
    # Whether this one ledger exists: read from its own record, not from a listing.
    exists: Callable[[int], Awaitable[bool]]
    # Those of these ledgers whose copies here nobody needs: closed for good, and no bookie of theirs is this one. Each
    # was read from its own record while nobody repairs it. None: nobody can say.
    surplus: Callable[[str, Sequence[int]], Awaitable[Sequence[int]]] | None = None
