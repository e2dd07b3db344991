# SPDX-License-Identifier: Apache-2.0
"""Promises about ledgers: what is confirmed stays, all readers agree, a closed ledger's end never moves.

The history must hold these operations, with these values:

- `add`   Added(ledger_id, entry_id, body); `ok` when the writer said that it is confirmed.
- `close` the ledger's id; `ok` with the last entry, when its writer closed it.
- `open`  the ledger's id; `ok` with the last entry, when it was opened with recovery.
- `read`  the ledger's id; `ok` with a list of (entry id, body) that a reader was given as confirmed.
- `scan`  the ledger's id; `ok` with (last entry, list of (entry id, body)): all of it, after all faults were healed.

Beside the history, `LedgerRecords` looks at every ledger record as the store takes it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from magnetar.ledger.paths import ledger_id_at
from magnetar.ledger.record import LedgerRecord, LedgerState
from magnetar.ledger.record_format import decode_record
from tests.simulation.world.checkers.violation import Violation
from tests.simulation.world.history import History, Operation, Outcome

_ORDER = (LedgerState.OPEN, LedgerState.IN_RECOVERY, LedgerState.CLOSED)


class Added(NamedTuple):
    ledger_id: int
    entry_id: int
    body: bytes


def ledgers(history: History) -> list[Violation]:
    """I1, I2, I5, I6 and I7 as far as clients can see them."""
    violations = _one_end(history)
    ends = {op.value: op for op in _ended(history)}
    bodies = {(op.value.ledger_id, op.value.entry_id): op.value.body for op in history.of_kind("add")}
    for add in history.of_kind("add"):
        end = ends.get(add.value.ledger_id)
        if add.outcome is Outcome.OK and end is not None and add.value.entry_id > _last(end):
            sentence = f"entry {add.value.entry_id} of ledger {add.value.ledger_id} was confirmed, beyond its end"
            violations.append(Violation("I6 fenced-cannot-commit", sentence, (add, end)))
    for reading in [*history.of_kind("read"), *history.of_kind("scan")]:
        if reading.outcome is Outcome.OK:
            violations += _check_reading(reading, ends.get(reading.value), bodies)
    return violations + _acked_readable(history)


def confirmed_in_order(history: History) -> list[Violation]:
    """A writer's entries are confirmed by rising number, each once."""
    violations = []
    last: dict[int, Operation] = {}
    confirmed = [op for op in history.of_kind("add") if op.outcome is Outcome.OK]
    for add in sorted(confirmed, key=lambda op: op.ended_at or 0):
        before = last.get(add.value.ledger_id)
        expected = before.value.entry_id + 1 if before is not None else 0
        if add.value.entry_id != expected:
            sentence = f"ledger {add.value.ledger_id}: entry {add.value.entry_id} was confirmed, {expected} was next"
            violations.append(Violation("I3 order", sentence, (add,)))
        last[add.value.ledger_id] = add
    return violations


class LedgerRecords:
    """Looks at each record that is stored: a closed one never changes its end, no state goes back.

    When a recovery closes a ledger, no ack quorum may be left for the entry after its end: `fences` says which ledgers
    each bookie has acknowledged as fenced, `holders` which bookies have acknowledged an entry to
    its writer.
    """

    def __init__(self, fences: Mapping[str, Mapping[int, None]], holders: Callable[[int, int], Sequence[str]]) -> None:
        self._fences = fences
        self._holders = holders
        self.violations: list[Violation] = []
        self.known: dict[int, LedgerRecord] = {}

    def on_removed(self, path: str) -> None:
        """Nothing is asked of anybody any more."""
        ledger_id = ledger_id_at(path)
        if ledger_id is not None:
            self.known.pop(ledger_id, None)

    def on_stored(self, path: str, value: bytes) -> None:
        ledger_id = ledger_id_at(path)
        if ledger_id is None:
            return
        record = decode_record(ledger_id, value)
        before = self.known.get(ledger_id)
        self.known[ledger_id] = record
        if before is None:
            return
        if _ORDER.index(record.state) < _ORDER.index(before.state):
            self._violated("I7 replica-agree", f"ledger {ledger_id} went from {before.state} back to {record.state}")
        if before.is_closed and record.last_entry != before.last_entry:
            sentence = f"ledger {ledger_id} was closed at {before.last_entry} and later at {record.last_entry}"
            self._violated("I7 replica-agree", sentence)
        if record.is_closed and before.state is LedgerState.IN_RECOVERY:
            self._check_fenced(before, record)
        firsts = [segment.first_entry for segment in record.segments]
        if firsts != sorted(set(firsts)) or firsts[0] != 0:
            self._violated("I2 no-gap", f"ledger {ledger_id} has segments that begin at {firsts}")

    def _check_fenced(self, before: LedgerRecord, record: LedgerRecord) -> None:
        """The old writer knows the ensemble that was on record before."""
        quorum, ensemble = record.quorum, before.last_segment.ensemble
        ledger_id, next_entry = record.ledger_id, record.last_entry + 1
        holders = self._holders(ledger_id, next_entry)
        members = [ensemble[member] for member in quorum.write_set(next_entry)]
        left = [bookie for bookie in members if ledger_id not in self._fences[bookie] or bookie in holders]
        if len(left) >= quorum.ack_quorum:
            sentence = f"ledger {ledger_id} was closed at {record.last_entry}, and {left} can still confirm the next"
            self._violated("I6 fenced-cannot-commit", sentence)

    def _violated(self, promise: str, sentence: str) -> None:
        self.violations.append(Violation(promise, sentence))


def _ended(history: History) -> list[Operation]:
    """Everything that says where a ledger ends, the final scan last."""
    kinds = ("close", "open", "scan")
    return [op for kind in kinds for op in history.of_kind(kind) if op.outcome is Outcome.OK]


def _last(end: Operation) -> int:
    return int(end.result[0] if end.kind == "scan" else end.result)


def _one_end(history: History) -> list[Violation]:
    violations = []
    first: dict[int, Operation] = {}
    for end in _ended(history):
        before = first.setdefault(end.value, end)
        if _last(before) != _last(end):
            sentence = f"ledger {end.value} ends at {_last(before)} for one and at {_last(end)} for another"
            violations.append(Violation("I7 replica-agree", sentence, (_brief(before), _brief(end))))
    return violations


def _check_reading(reading: Operation, end: Operation | None, bodies: dict[tuple[int, int], bytes]) -> list[Violation]:
    violations = []
    entries = reading.result[1] if reading.kind == "scan" else reading.result
    for entry_id, body in entries:
        written = bodies.get((reading.value, entry_id))
        if written != body:
            sentence = f"entry {entry_id} of ledger {reading.value} was written as {written!r} and read as {body!r}"
            violations.append(Violation("I7 replica-agree", sentence, (_brief(reading),)))
        if end is not None and entry_id > _last(end):
            sentence = f"entry {entry_id} of ledger {reading.value} was read as confirmed, and is not part of it"
            violations.append(Violation("I5 no-ghost", sentence, (_brief(reading), _brief(end))))
    return violations


def _acked_readable(history: History) -> list[Violation]:
    violations = []
    scans = {op.value: op for op in history.of_kind("scan") if op.outcome is Outcome.OK}
    found = {(ledger_id, entry_id) for ledger_id, scan in scans.items() for entry_id, _ in scan.result[1]}
    for add in history.of_kind("add"):
        scan = scans.get(add.value.ledger_id)
        if add.outcome is not Outcome.OK or scan is None:
            continue
        if (add.value.ledger_id, add.value.entry_id) not in found:
            sentence = f"entry {add.value.entry_id} of ledger {add.value.ledger_id} was confirmed and is gone"
            violations.append(Violation("I1 acked-readable", sentence, (add, _brief(scan))))
    return violations


def _brief(operation: Operation) -> Operation:
    """As evidence, without the entries."""
    if operation.kind not in ("scan", "read"):
        return operation
    entries = operation.result[1] if operation.kind == "scan" else operation.result
    return Operation(
        operation.number,
        operation.process,
        operation.kind,
        operation.value,
        operation.invoked_s,
        operation.invoked_at,
        operation.ended_at,
        operation.ended_s,
        operation.outcome,
        f"{len(entries)} entries, ends at {_last(operation) if operation.kind == 'scan' else '?'}",
    )
