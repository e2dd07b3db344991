# SPDX-License-Identifier: Apache-2.0
"""What a bookie asks those who know the metadata, which it never reads itself.

Decides.
"""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

Complete = Callable[[str, int], Awaitable[bytes | None]]
"""Has this bookie hold every entry that a ledger's record asks of it, and gives the ledger's master key.

None: not yet. NoSuchLedger when it is gone; another error when somebody who is needed does not answer.
"""


class LedgerQuestions(NamedTuple):
    """Each raises when it cannot be answered; an error never counts as a no."""

    # The ids of all ledgers that exist.
    existing: Callable[[], Awaitable[Iterable[int]]]
    # Whether this one ledger exists: read from its own record, not from a listing.
    exists: Callable[[int], Awaitable[bool]]
    # Whether nobody needs this bookie's copy of a ledger, as long as the context lasts. None: nobody can say.
    surplus: Callable[[str, int], AbstractAsyncContextManager[bool]] | None = None
    # How a ledger in limbo becomes whole again. None: nobody can help.
    complete: Complete | None = None
