# SPDX-License-Identifier: Apache-2.0
"""A transaction over several brokers, one of which dies at one step of it: the outcome is whole, once, and comes.

The step is named by what is about to happen, in the process that is killed there.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import Context
from typing import Any
from unittest.mock import patch

import pytest

from magnetar.broker.transactions.coordinator import Coordinator
from magnetar.broker.transactions.coordinator_state import Status
from magnetar.broker.transactions.pending_ack_log import PendingAckLog
from magnetar.broker.transactions.topic_transactions import TopicTransactions
from magnetar.broker.transactions.transactions import Transactions
from magnetar.wire.proto.transaction_metadata_pb2 import TransactionMetadataEntry as Record
from tests.simulation.scenarios.transactions import TransactionStory
from tests.simulation.world.broker_cluster import witnessed
from tests.simulation.world.process import current_process
from tests.simulation.world.storage_cluster import simulated
from tests.simulation.world.world import World

_BACK_AFTER_S = 0.5
# At the coordinator: what is logged, and whom it tells. At a participant: what it is told, and what it has done.
_CALLS: dict[str, tuple[type, str]] = {
    "tells a topic": (Transactions, "end_on_partition"),
    "tells a subscription": (Transactions, "end_on_subscription"),
    "is told": (Transactions, "end_here"),
    "lets a topic take part": (TopicTransactions, "admit"),
    "has a marker stored": (TopicTransactions, "_on_ended"),
    "claims an acknowledgement": (PendingAckLog, "ack"),
    "has acknowledgements ended": (PendingAckLog, "_finish"),
}
_LOGGED = ("NEW", "ADD_PARTITION", "ADD_SUBSCRIPTION", "COMMITTING", "COMMITTED")
STEPS = [*(f"logs {name}" for name in _LOGGED), *_CALLS]


class Strike:
    """Kills the process that comes to a step first, once."""

    def __init__(self, step: str) -> None:
        self.step = step
        self.world: World | None = None
        self.struck = ""

    def at(self, step: str) -> None:
        process = current_process.get()
        if self.struck or step != self.step or process is None or self.world is None:
            return
        self.struck = process.name
        node = self.world.nodes[process.name]
        node.kill()
        self.world.loop.call_later(_BACK_AFTER_S, node.come_back, context=Context())


@contextmanager
def watched(strike: Strike) -> Iterator[None]:
    append = Coordinator._append

    def append_after(self: Coordinator, record: Record) -> None:
        is_update = record.metadata_op == Record.UPDATE
        name = Status(record.new_status).name if is_update else Record.TransactionMetadataOp.Name(record.metadata_op)
        strike.at(f"logs {name}")
        append(self, record)

    def after(step: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: Any, **named: Any) -> Any:
            strike.at(step)
            return call(*given, **named)

        return called

    with ExitStack() as stack:
        stack.enter_context(patch.object(Coordinator, "_append", append_after))
        for step, (owner, name) in _CALLS.items():
            stack.enter_context(patch.object(owner, name, after(step, getattr(owner, name))))
        yield


@pytest.mark.feature("F-TXN-15", "F-TXN-04", "F-TXN-10")
@pytest.mark.parametrize("step", STEPS)
def test_a_broker_that_dies_at_a_step_leaves_a_whole_outcome(step: str) -> None:
    strike = Strike(step)

    async def story(world: World) -> None:
        strike.world = world
        told = TransactionStory(world, inputs=2, is_calm=True)
        with simulated(told.storage), witnessed(told.brokers), watched(strike):
            await told.run()

    verdict = World(7).run("transaction-crash", story)
    assert strike.struck.startswith("broker-"), "nobody came to this step"
    assert not verdict.violations, verdict.violations[0]
