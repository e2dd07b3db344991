# SPDX-License-Identifier: Apache-2.0
"""What clients asked and what they were told, in order: the only evidence that the checkers accept.

An operation is invoked and then ends as `ok` (it happened), `fail` (it certainly did not) or `info` (nobody knows).
One that never ends counts as `info`. Values are what the checkers compare: unique payloads, positions, topics.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Outcome(Enum):
    PENDING = "pending"
    OK = "ok"
    FAIL = "fail"
    INFO = "info"


@dataclass(slots=True, eq=False)
class Operation:
    number: int
    process: str
    kind: str
    value: Any
    invoked_s: float
    # The order of invocations and ends over all operations, which time alone does not give.
    invoked_at: int
    ended_at: int | None = None
    ended_s: float | None = None
    outcome: Outcome = Outcome.PENDING
    result: Any = None

    def __str__(self) -> str:
        end = "" if self.ended_s is None else f" → {self.outcome.value} {self.result!r} at {self.ended_s:.6f}"
        return f"{self.invoked_s:.6f} {self.process} {self.kind} {self.value!r}{end}"


@dataclass(slots=True)
class History:
    now: Callable[[], float] = lambda: 0.0
    record: Callable[[str], None] = lambda event: None
    operations: list[Operation] = field(default_factory=list)
    _events: int = 0

    def invoke(self, process: str, kind: str, value: Any) -> Operation:
        operation = Operation(len(self.operations), process, kind, value, self.now(), self._next_event())
        self.operations.append(operation)
        self.record(f"invoke {operation.number} {process} {kind} {value!r}")
        return operation

    def ok(self, operation: Operation, result: Any = None) -> None:
        self._end(operation, Outcome.OK, result)

    def fail(self, operation: Operation, reason: Any = None) -> None:
        self._end(operation, Outcome.FAIL, reason)

    def info(self, operation: Operation, reason: Any = None) -> None:
        self._end(operation, Outcome.INFO, reason)

    def of_kind(self, kind: str) -> Iterator[Operation]:
        return (operation for operation in self.operations if operation.kind == kind)

    def _end(self, operation: Operation, outcome: Outcome, result: Any) -> None:
        assert operation.outcome is Outcome.PENDING, f"ended twice: {operation}"
        operation.outcome, operation.result = outcome, result
        operation.ended_s, operation.ended_at = self.now(), self._next_event()
        self.record(f"{outcome.value} {operation.number} {result!r}")

    def _next_event(self) -> int:
        self._events += 1
        return self._events
