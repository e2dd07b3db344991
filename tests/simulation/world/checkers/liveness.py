# SPDX-License-Identifier: Apache-2.0
"""I13: once faults have stopped, everything that was asked ends."""

from tests.simulation.world.checkers.violation import Violation
from tests.simulation.world.history import History, Outcome


def nothing_overdue(history: History, *, patience_s: float) -> list[Violation]:
    """No operation may still be pending longer than the patience."""
    now = history.now()
    return [
        Violation("I13 live", f"pending since {operation.invoked_s:.3f} s, it is {now:.3f} s", (operation,))
        for operation in history.operations
        if operation.outcome is Outcome.PENDING and now - operation.invoked_s > patience_s
    ]
