# SPDX-License-Identifier: Apache-2.0
"""What a ledger's record says about its copies: fragments, lost members, probes."""

import pytest

from magnetar.ledger.audit import (
    Fragment,
    entries_of,
    fragments_of,
    lost_bookies,
    lost_members,
    misplaced,
    oldest_first,
    probes,
)
from magnetar.ledger.quorum import Quorum
from tests.unit.ledger.test_catalog import new_record

ABC = ("a", "b", "c")


def test_fragments_of_open_and_closed_ledgers() -> None:
    record = new_record(1).with_ensemble(10, ("b2:3181", "b3:3181"))
    first, second = record.segments
    assert fragments_of(record) == [
        Fragment(0, 9, first.ensemble, False),
        Fragment(10, 9, second.ensemble, True),
    ]
    assert fragments_of(record.closed(14, 0))[1] == Fragment(10, 14, second.ensemble, False)
    assert fragments_of(new_record(1).closed(-1, 0)) == [Fragment(0, -1, first.ensemble, False)]


def test_lost_bookies_and_members() -> None:
    record = new_record(1).with_ensemble(10, ("b2:3181", "b3:3181"))
    assert lost_bookies(record, {"b1:3181", "b2:3181"}) == ["b3:3181"]
    assert lost_members(Fragment(0, 9, ABC, False), ["c", "x", "a"]) == [0, 2]


def test_a_member_holds_its_share() -> None:
    quorum = Quorum(3, 2, 2)
    fragment = Fragment(3, 9, ABC, False)
    for member in range(3):
        assert entries_of(fragment, quorum, member) == [e for e in range(3, 10) if member in quorum.write_set(e)]


@pytest.mark.feature("F-AR-06")
def test_a_member_is_judged_by_its_first_and_last_entry() -> None:
    fragment = Fragment(3, 103, ABC, False)
    assert probes(fragment, Quorum(3, 2, 2), 1, 0) == [3, 103]
    assert probes(fragment, Quorum(3, 3, 2), 1, 10)[::11] == [3, 103]
    assert probes(fragment, Quorum(3, 3, 2), 1, 100) == list(range(3, 104))
    assert probes(Fragment(5, 4, ABC, False), Quorum(3, 3, 2), 0, 50) == []


def test_fragments_that_span_too_few_racks() -> None:
    record = new_record(1).with_ensemble(10, ("b2:3181", "b3:3181"))
    racks = {"b1:3181": "/x", "b2:3181": "/x", "b3:3181": "/y"}
    assert misplaced(record, racks.__getitem__, 2) == [0]
    assert misplaced(record, racks.__getitem__, 1) == []


def test_the_oldest_mark_comes_first() -> None:
    assert oldest_first([(7, 300), (5, 100), (9, 100)]) == [5, 9, 7]
