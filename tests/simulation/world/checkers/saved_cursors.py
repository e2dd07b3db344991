# SPDX-License-Identifier: Apache-2.0
"""Promises about what brokers save of their cursors: no two owners save apart, nothing saved is owed again, and nothing
is saved before somebody asked for it.

Beside `scan`, `ack` and `drain` (see messages.py and cursors.py) the history must hold

- `save`    (topic, subscription); `ok` with the SavedAcks that storage confirmed to the owner.
- `backlog` (topic, subscription); `ok` with the messages that the broker counts just before the `drain`.

Nobody seeks: acknowledgements are never taken back. Positions are (ledger, entry, batch index).
"""

from typing import NamedTuple

from tests.simulation.world.checkers.cursors import covers
from tests.simulation.world.checkers.messages import final_scans
from tests.simulation.world.checkers.violation import Violation
from tests.simulation.world.history import History, Operation, Outcome


class SavedAcks(NamedTuple):
    """What one save says: everything up to a position, whole entries beyond it, and parts of batches."""

    mark_delete: tuple[int, int]
    entries: tuple[tuple[int, int], ...] = ()
    # By entry: the bits of those messages of its batch that are not acknowledged.
    batches: tuple[tuple[tuple[int, int], int], ...] = ()


def saved_cursors(history: History) -> list[Violation]:
    """I9, as storage has it."""
    scans = final_scans(history)
    saves: dict[tuple[str, str], list[Operation]] = {}
    for save in history.of_kind("save"):
        if save.outcome is Outcome.OK:
            saves.setdefault(save.value, []).append(save)
    drains = {drain.value: drain for drain in history.of_kind("drain") if drain.outcome is Outcome.OK}
    violations = []
    for key, of_cursor in saves.items():
        scan = scans.get(key[0])
        if scan is not None:
            stored = [position for position, _ in scan.result]
            violations += _in_a_row(key, of_cursor, stored)
            if key in drains:
                violations += _not_owed(key, of_cursor, drains[key])
    return violations + _counted(history, drains)


def saved_when_asked(history: History) -> list[Violation]:
    """I9: what lies in the topic is saved as acknowledged only after a consumer has asked for that.

    Otherwise a cursor is ahead of its data: what is stored a moment later is never delivered once the broker has died.
    """
    scans = final_scans(history)
    asked: dict[tuple[str, str], dict[tuple[int, ...], int]] = {}
    for ack in history.of_kind("ack"):
        key = (ack.value.topic, ack.value.subscription)
        since = asked.setdefault(key, {})
        scan = scans.get(ack.value.topic)
        for position in () if scan is None else [position for position, _ in scan.result if covers(ack, position)]:
            since.setdefault(position, ack.invoked_at)
    violations = []
    for save in history.of_kind("save"):
        scan = scans.get(save.value[0])
        if scan is None or save.outcome is not Outcome.OK:
            continue
        since = asked.get(save.value, {})
        for position in sorted(_acked(save.result, [position for position, _ in scan.result])):
            if since.get(position, save.invoked_at) >= save.invoked_at:
                sentence = f"{'/'.join(save.value)}: {position} was saved as acknowledged before anyone asked for it"
                violations.append(Violation("I9 cursor", sentence, (save,)))
                break
    return violations


def _in_a_row(key: tuple[str, str], saves: list[Operation], stored: list[tuple[int, ...]]) -> list[Violation]:
    """Of every two saves one has all that the other has: an owner begins with what the one before it saved."""
    violations = []
    most: Operation | None = None
    most_acked: set[tuple[int, ...]] = set()
    for save in saves:
        acked = _acked(save.result, stored)
        if most is not None and not (acked <= most_acked or most_acked <= acked):
            sentence = f"{'/'.join(key)}: two saves know nothing of {min(acked ^ most_acked)} and of one another"
            violations.append(Violation("I9 cursor", sentence, (most, save)))
        if most is None or most_acked <= acked:
            most, most_acked = save, acked
    return violations


def _not_owed(key: tuple[str, str], saves: list[Operation], drain: Operation) -> list[Violation]:
    """What was ever saved as acknowledged does not come again."""
    for save in saves:
        again = _acked(save.result, drain.result)
        if again:
            sentence = f"{'/'.join(key)}: {min(again)} was saved as acknowledged and came again"
            return [Violation("I9 cursor", sentence, (save,))]
    return []


def _counted(history: History, drains: dict[tuple[str, str], Operation]) -> list[Violation]:
    """A backlog is what then comes."""
    violations = []
    for backlog in history.of_kind("backlog"):
        drain = drains.get(backlog.value)
        if backlog.outcome is Outcome.OK and drain is not None and backlog.result != len(set(drain.result)):
            sentence = f"{'/'.join(backlog.value)}: a backlog of {backlog.result}, and {len(set(drain.result))} came"
            violations.append(Violation("backlog is exact", sentence, (backlog,)))
    return violations


def _acked(saved: SavedAcks, positions: list[tuple[int, ...]]) -> set[tuple[int, ...]]:
    """Those of the positions that a save says are acknowledged."""
    entries, batches = set(saved.entries), dict(saved.batches)

    def is_acked(position: tuple[int, ...]) -> bool:
        ledger_id, entry_id, index = position
        entry = (ledger_id, entry_id)
        if entry <= saved.mark_delete or entry in entries:
            return True
        return index >= 0 and entry in batches and not batches[entry] >> index & 1

    return {position for position in positions if is_acked(position)}
