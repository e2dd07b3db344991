# SPDX-License-Identifier: Apache-2.0
"""What the pumps of a broker share, and what each is built from.

Decides.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from magnetar.broker.dispatch.entry_filters import EntryFilters
from magnetar.broker.dispatch.shared_reads import SharedReads
from magnetar.broker.dispatch.wake_measure import WakeMeasure
from magnetar.broker.entry_facts import FactsTable
from magnetar.broker.publish_budget import PublishBudget
from magnetar.broker.transactions.buffer import TransactionBuffer
from magnetar.config.broker import BrokerSettings
from magnetar.runtime.clock import WallClock
from magnetar.runtime.tasks import Tasks

if TYPE_CHECKING:
    from magnetar.broker.subscription import Subscription


@dataclass(slots=True)
class DispatchMemory:
    """One per broker: facts of entries, the operator's filters, turns on the loop, and counts for the metrics."""

    measure: WakeMeasure = field(default_factory=lambda: WakeMeasure(PublishBudget(0)))
    facts: FactsTable = field(default_factory=FactsTable)
    filters: EntryFilters = field(default_factory=EntryFilters)
    # Times that the liveness check found a subscription that could send and did not; each was woken.
    stuck_woken: int = 0
    # Reads that did not come back in time and were given up.
    reads_given_up: int = 0
    # Rounds in which a dispatcher named replays and took none of them: a bug of that dispatcher.
    fruitless_rounds: int = 0


@dataclass(slots=True)
class DispatchParts:
    """One per topic, shared by its subscriptions and their pumps: new settings hold for all of them at once."""

    settings: BrokerSettings
    clock: WallClock
    tasks: Tasks
    call_later: Callable[[float, Callable[[], None]], object]
    memory: DispatchMemory
    # What of the topic readers may see.
    buffer: TransactionBuffer = field(default_factory=TransactionBuffer)
    shared_reads: SharedReads = field(default_factory=SharedReads)
    # The subscriptions with a consumer: new entries concern nobody else, and very many may be read with by nobody.
    attended: "dict[Subscription, None]" = field(default_factory=dict)
