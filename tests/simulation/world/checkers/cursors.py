# SPDX-License-Identifier: Apache-2.0
"""Promises about cursors: a confirmed acknowledgement survives, and what nobody acknowledged is never skipped.

Beside `receive` and `scan` (see messages.py) the history must hold

- `ack`    Acked(topic, subscription, position, cumulative); `ok` when the broker confirmed that it is durable.
- `drain`  (topic, subscription); `ok` with the list of positions that a consumer got, after all faults were healed,
           until nothing more came: what the subscription still owes.
- `cursor` (topic, subscription); `ok` with the mark-delete position that the broker reports.
"""

from typing import NamedTuple

from tests.simulation.world.checkers.messages import Position, final_scans
from tests.simulation.world.checkers.violation import Violation
from tests.simulation.world.history import History, Operation, Outcome


class Acked(NamedTuple):
    topic: str
    subscription: str
    position: Position
    cumulative: bool = False


def cursor(history: History) -> list[Violation]:
    """I9."""
    return _confirmed_acks_survive(history) + _nothing_skipped(history) + _mark_never_goes_back(history)


def _confirmed_acks_survive(history: History) -> list[Violation]:
    violations = []
    confirmed: dict[tuple[str, str], list[Operation]] = {}
    for ack in history.of_kind("ack"):
        if ack.outcome is Outcome.OK:
            confirmed.setdefault((ack.value.topic, ack.value.subscription), []).append(ack)
    deliveries = [
        (op, (op.value.topic, op.value.subscription), [op.value.position]) for op in history.of_kind("receive")
    ]
    deliveries += [(op, op.value, op.result) for op in history.of_kind("drain") if op.outcome is Outcome.OK]
    for operation, key, positions in deliveries:
        for ack in confirmed.get(key, ()):
            if ack.ended_at is None or ack.ended_at > operation.invoked_at:
                continue
            again = [position for position in positions if covers(ack, position)]
            if again:
                sentence = f"{'/'.join(key)}: {again[0]} came again after its acknowledgement was confirmed"
                violations.append(Violation("I9 cursor", sentence, (ack, operation)))
    return violations


def _nothing_skipped(history: History) -> list[Violation]:
    """What lies in the topic and was never even asked to be acknowledged must come in the final drain."""
    violations = []
    scans = final_scans(history)
    drains = {op.value: op for op in history.of_kind("drain") if op.outcome is Outcome.OK}
    for key, drain in drains.items():
        scan = scans.get(key[0])
        if scan is None:
            continue
        acks = [ack for ack in history.of_kind("ack") if (ack.value.topic, ack.value.subscription) == key]
        owed = set(drain.result)
        for position, payload in scan.result:
            if position not in owed and not any(covers(ack, position) for ack in acks):
                sentence = f"{'/'.join(key)}: {payload!r} at {position} was never acknowledged and never came"
                violations.append(Violation("I9 cursor", sentence, (drain,)))
    return violations


def _mark_never_goes_back(history: History) -> list[Violation]:
    """I18, as far as clients can see it. A history with a seek must not record `cursor` across it."""
    violations = []
    last: dict[tuple[str, str], Operation] = {}
    for reading in history.of_kind("cursor"):
        if reading.outcome is not Outcome.OK:
            continue
        before = last.get(reading.value)
        if before is not None and reading.result < before.result:
            sentence = f"{'/'.join(reading.value)}: mark-delete went from {before.result} back to {reading.result}"
            violations.append(Violation("I18 monotonic", sentence, (before, reading)))
        last[reading.value] = reading
    return violations


def covers(ack: Operation, position: Position) -> bool:
    """Whether this acknowledgement is one of the message at a position."""
    if ack.value.cumulative:
        return bool(position <= ack.value.position)
    return bool(position == ack.value.position)
