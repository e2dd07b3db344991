# SPDX-License-Identifier: Apache-2.0
"""Subscriptions that are woken together read an entry once, and nothing is kept when they have been."""

from collections.abc import Sequence

from magnetar.broker.consumer import DeliveryRun
from magnetar.broker.dispatch.shared_reads import SharedReads
from magnetar.ids import Position
from magnetar.managed_ledger.entry import Entry


class Log:
    """Counts how often it is read and looked at."""

    def __init__(self, entries: int) -> None:
        self.entries = entries
        self.reads = 0
        self.looks = 0

    def read(self, position: Position, entries_max: int, bytes_max: int) -> list[Entry] | None:
        self.reads += 1
        until = min(self.entries, position.entry_id + entries_max)
        return [Entry(1, entry_id, memoryview(b"body")) for entry_id in range(position.entry_id, until)]

    def look(self, entries: Sequence[Entry], keyed: bool) -> DeliveryRun | None:
        self.looks += 1
        return DeliveryRun([], len(entries), 0)


def test_who_stands_at_the_same_place_gets_the_same_entries_while_all_are_woken() -> None:
    shared, log = SharedReads(), Log(10)
    with shared.opened():
        runs = []
        for _ in range(100):
            entries = shared.read(log.read, Position(1, 3), 5, 1000)
            assert entries is not None
            assert [entry.entry_id for entry in entries] == [3, 4, 5, 6, 7]
            runs.append(shared.run(entries, False, log.look))
        assert (log.reads, log.looks) == (1, 1)
        assert all(run is runs[0] for run in runs)
        # Another place, another size, keys: each for itself.
        elsewhere = shared.read(log.read, Position(1, 4), 5, 1000)
        fewer = shared.read(log.read, Position(1, 3), 2, 1000)
        assert elsewhere is not None
        assert fewer is not None
        assert (elsewhere[0].entry_id, len(fewer), log.reads) == (4, 2, 3)
        shared.run(fewer, True, log.look)
        shared.run(fewer, False, log.look)
        assert log.looks == 3


def test_nothing_is_shared_before_and_after() -> None:
    shared, log = SharedReads(), Log(10)
    for _ in range(2):
        entries = shared.read(log.read, Position(1, 0), 5, 1000)
        assert entries is not None
        shared.run(entries, False, log.look)
    assert (log.reads, log.looks) == (2, 2)
    with shared.opened():
        shared.read(log.read, Position(1, 0), 5, 1000)
    with shared.opened():
        shared.read(log.read, Position(1, 0), 5, 1000)
    assert log.reads == 4


def test_what_a_transaction_hides_a_part_of_is_looked_at_alone() -> None:
    shared, log = SharedReads(), Log(10)
    with shared.opened():
        entries = shared.read(log.read, Position(1, 0), 5, 1000)
        assert entries is not None
        for _ in range(2):
            shared.run(entries[:2], False, log.look)
    assert log.looks == 2


def test_the_end_of_the_log_is_asked_for_again() -> None:
    shared, log = SharedReads(), Log(3)
    with shared.opened():
        for _ in range(2):
            assert shared.read(log.read, Position(1, 3), 5, 1000) == []
    assert log.reads == 2
