# SPDX-License-Identifier: Apache-2.0
"""Promises about messages: none acknowledged is lost, order is kept, none is invented, copies have a reason.

The history must hold these operations, with these values:

- `send`    Sent(topic, producer, sequence, payload); `ok` with the Position of the receipt, or None if not known.
            Each attempt at the same message is an operation of its own with an equal value.
- `receive` Received(topic, subscription, position, payload, redelivered, lane), `ok` when the program got it. A lane
            is what must come in order: a subscription with one active consumer, or a key; None where nothing must.
- `ack`     Acked(topic, subscription, position, cumulative) of `cursors.py`, whatever came of it.
- `scan`    the topic; `ok` with a list of (position, payload): everything that a fresh reader saw, from the earliest.
            The last scan of a topic, made after all faults are healed, is what is there.

Payloads are unique per message.
"""

from collections import Counter, defaultdict
from typing import Any, NamedTuple

from tests.simulation.world.checkers.violation import Violation
from tests.simulation.world.history import History, Operation, Outcome

# Whatever compares like a position: (ledger, entry), (ledger, entry, batch index), or a plain number.
Position = Any


class Sent(NamedTuple):
    topic: str
    producer: str
    sequence: int
    payload: Any


class Received(NamedTuple):
    topic: str
    subscription: str
    position: Position
    payload: Any
    redelivered: bool = False
    lane: str | None = None


def no_acked_loss(history: History) -> list[Violation]:
    """I1: every message whose sender got a receipt is there when a fresh reader looks, where the receipt says."""
    violations = []
    scans = final_scans(history)
    places: dict[str, dict[Any, list[Position]]] = {topic: _places(scan) for topic, scan in scans.items()}
    for send in history.of_kind("send"):
        if send.outcome is not Outcome.OK or send.value.topic not in scans:
            continue
        found = places[send.value.topic].get(send.value.payload)
        scan = scans[send.value.topic]
        if found is None:
            violations.append(Violation("I1 acked-readable", f"{send.value} was acknowledged and is gone", (send,)))
        elif send.result is not None and send.result not in found:
            sentence = f"{send.value.payload!r} lies at {found}, its receipt says {send.result}"
            violations.append(Violation("I1 acked-readable", sentence, (send, _short(scan))))
    return violations


def order(history: History) -> list[Violation]:
    """I3: first copies of a producer's messages lie in the order of its sequence; positions rise in every reading."""
    violations = []
    for topic, scan in final_scans(history).items():
        sequences = {
            send.value.payload: (send.value.producer, send.value.sequence)
            for send in history.of_kind("send")
            if send.value.topic == topic
        }
        last: dict[str, int] = {}
        seen: set[Any] = set()
        previous: Position = None
        for position, payload in scan.result:
            if previous is not None and not previous < position:
                violations.append(Violation("I3 order", f"{topic}: {position} was read after {previous}"))
            previous = position
            if payload in seen or payload not in sequences:
                continue
            seen.add(payload)
            producer, sequence = sequences[payload]
            if sequence <= last.get(producer, -1):
                sentence = f"{topic}: {producer}'s message {sequence} lies behind its message {last[producer]}"
                violations.append(Violation("I3 order", sentence))
            last[producer] = max(sequence, last.get(producer, -1))
    return violations + _one_payload_per_position(history) + _received_in_order(history) + _lanes_in_order(history)


def no_ghost(history: History) -> list[Violation]:
    """I5: what is read was sent, and was not refused."""
    attempts: dict[tuple[str, Any], list[Operation]] = defaultdict(list)
    for send in history.of_kind("send"):
        attempts[send.value.topic, send.value.payload].append(send)
    violations = []
    for topic, payload, reading in _readings(history):
        sends = attempts.get((topic, payload), [])
        if not sends:
            violations.append(Violation("I5 no-ghost", f"{topic}: {payload!r} was read and never sent", (reading,)))
        elif all(send.outcome is Outcome.FAIL for send in sends):
            sentence = f"{topic}: {payload!r} was refused and is read all the same"
            violations.append(Violation("I5 no-ghost", sentence, (*sends, reading)))
        elif reading.ended_at is not None and all(send.invoked_at > reading.ended_at for send in sends):
            sentence = f"{topic}: {payload!r} was read before it was sent"
            violations.append(Violation("I5 no-ghost", sentence, (*sends, reading)))
    return violations


def no_unexplained_copy(history: History, *, deduplicated: bool = False) -> list[Violation]:
    """I4: a message lies there as often as its sender tried without being refused; once, with deduplication."""
    attempts: Counter[tuple[str, Any]] = Counter(
        (send.value.topic, send.value.payload) for send in history.of_kind("send") if send.outcome is not Outcome.FAIL
    )
    violations = []
    for topic, scan in final_scans(history).items():
        copies: Counter[Any] = Counter(payload for _, payload in scan.result)
        for payload, count in copies.items():
            allowed = 1 if deduplicated else attempts[topic, payload]
            if count > max(1, allowed):
                sentence = f"{topic}: {payload!r} lies there {count} times after {attempts[topic, payload]} attempts"
                violations.append(Violation("I4 no-duplicate", sentence))
    return violations


def final_scans(history: History) -> dict[str, Operation]:
    """The last whole scan of each topic."""
    return {scan.value: scan for scan in history.of_kind("scan") if scan.outcome is Outcome.OK}


def _places(scan: Operation) -> dict[Any, list[Position]]:
    places: dict[Any, list[Position]] = {}
    for position, payload in scan.result:
        places.setdefault(payload, []).append(position)
    return places


def _readings(history: History) -> list[tuple[str, Any, Operation]]:
    readings = [(op.value.topic, op.value.payload, op) for op in history.of_kind("receive")]
    for scan in history.of_kind("scan"):
        if scan.outcome is Outcome.OK:
            readings += [(scan.value, payload, _short(scan)) for _, payload in scan.result]
    return readings


def _short(scan: Operation) -> Operation:
    """A scan as evidence, without its thousand messages."""
    return Operation(
        scan.number,
        scan.process,
        scan.kind,
        scan.value,
        scan.invoked_s,
        scan.invoked_at,
        scan.ended_at,
        scan.ended_s,
        scan.outcome,
        f"{len(scan.result)} messages",
    )


def _one_payload_per_position(history: History) -> list[Violation]:
    """A position means one message, for everyone and for ever."""
    violations = []
    known: dict[tuple[str, Position], Any] = {}
    seen = [(op.value.topic, op.value.position, op.value.payload) for op in history.of_kind("receive")]
    seen += [
        (op.value.topic, op.result, op.value.payload)
        for op in history.of_kind("send")
        if op.outcome is Outcome.OK and op.result is not None
    ]
    for scan in history.of_kind("scan"):
        if scan.outcome is Outcome.OK:
            seen += [(scan.value, position, payload) for position, payload in scan.result]
    for topic, position, payload in seen:
        if known.setdefault((topic, position), payload) != payload:
            sentence = f"{topic}: {position} was {known[topic, position]!r} for one and {payload!r} for another"
            violations.append(Violation("I3 order", sentence))
    return violations


def _received_in_order(history: History) -> list[Violation]:
    """A program that gets messages of an exclusive subscription for the first time gets them by rising position.

    But for those that somebody acknowledged before: they are passed over, and come again when a broker dies with that.
    """
    violations = []
    last: dict[tuple[str, str, str], Operation] = {}
    acked: set[tuple[str, str, Position]] = set()
    acked_up_to: dict[tuple[str, str], Position] = {}
    for operation in history.operations:
        value = operation.value
        if operation.kind == "ack":
            where = (value.topic, value.subscription)
            acked.add((*where, value.position))
            if value.cumulative and (where not in acked_up_to or acked_up_to[where] < value.position):
                acked_up_to[where] = value.position
        if operation.kind != "receive" or value.redelivered:
            continue
        where = (value.topic, value.subscription)
        up_to = acked_up_to.get(where)
        if (*where, value.position) in acked or (up_to is not None and not up_to < value.position):
            continue
        key = (operation.process, *where)
        before = last.get(key)
        if before is not None and not before.value.position < value.position:
            sentence = f"{value.topic}/{value.subscription}: {value.position} came after {before.value.position}"
            violations.append(Violation("I3 order", sentence, (before, operation)))
        last[key] = operation
    return violations


def _lanes_in_order(history: History) -> list[Violation]:
    """What nobody of a subscription got before comes by rising position, whichever consumer has the lane by then.

    Two that had it at once would each go on from where they are.
    """
    violations = []
    seen: set[tuple[str, str, Position]] = set()
    last: dict[tuple[str, str, str], Operation] = {}
    for receive in history.of_kind("receive"):
        topic, subscription, position, _, _, lane = receive.value
        if lane is None or (topic, subscription, position) in seen:
            continue
        seen.add((topic, subscription, position))
        before = last.get((topic, subscription, lane))
        if before is not None and not before.value.position < position:
            sentence = f"{topic}/{subscription}: {position} came first after {before.value.position} had come"
            violations.append(Violation("I3 order", sentence, (before, receive)))
        last[topic, subscription, lane] = receive
    return violations
