# SPDX-License-Identifier: Apache-2.0
"""What every ledger operation borrows from `Ledgers`, its owner.

Decides.
"""

from collections.abc import Callable
from typing import NamedTuple

from magnetar.config.ledger import LedgerSettings
from magnetar.ledger.catalog import LedgerCatalog
from magnetar.ledger.channel import BookieChannel
from magnetar.ledger.placement import Chance, Placement
from magnetar.runtime.tasks import Tasks


class LedgerParts(NamedTuple):
    catalog: LedgerCatalog
    channels: Callable[[str], BookieChannel]
    placement: Placement
    chance: Chance
    tasks: Tasks
    settings: LedgerSettings
