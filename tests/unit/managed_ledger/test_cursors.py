# SPDX-License-Identifier: Apache-2.0
"""Whether anybody reads close to the end: seen at once with few cursors, and not at any price with very many."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from magnetar.managed_ledger.cursors import LOOKED_AT_PER_GROUP, PATIENCE, Cursors
from magnetar.managed_ledger.parts import LogParts

LAG = 10


class Looked:
    """A cursor that is so far behind, and counts who asks."""

    is_closed = False

    def __init__(self, behind: int) -> None:
        self.behind = behind
        self.looks = 0
        self.state = self

    @property
    def unread_entries(self) -> int:
        self.looks += 1
        return self.behind


def cursors_of(count: int, *, behind: int) -> tuple[Cursors, list[Looked]]:
    settings = SimpleNamespace(cache_lag_entries_max=LAG)
    cursors = Cursors(cast("LogParts", SimpleNamespace(settings=settings)))
    made = [Looked(behind) for _ in range(count)]
    cursors.durable.update({f"c-{number}": cast("Any", each) for number, each in enumerate(made)})
    return cursors, made


def test_few_cursors_are_looked_at_for_every_group() -> None:
    cursors, (first, second) = cursors_of(2, behind=LAG + 1)
    assert not cursors.is_tail_wanted()
    second.behind = LAG
    assert cursors.is_tail_wanted()
    second.behind = PATIENCE * LAG
    assert cursors.is_tail_wanted(), "who was close may fall behind for a while"
    second.behind += 1
    assert not cursors.is_tail_wanted()
    first.behind = 0
    assert cursors.is_tail_wanted()


@pytest.mark.feature("F-DISP-11")
def test_very_many_cursors_cost_a_bounded_number_of_looks_a_group() -> None:
    count, groups = 50 * LOOKED_AT_PER_GROUP, 500
    cursors, made = cursors_of(count, behind=1_000_000)
    assert not any(cursors.is_tail_wanted() for _ in range(groups))
    looks = sum(each.looks for each in made)
    assert count <= looks <= LOOKED_AT_PER_GROUP * groups
    made[7].behind = 0
    until_seen = next(group for group in range(groups) if cursors.is_tail_wanted())
    assert until_seen <= count / LOOKED_AT_PER_GROUP
    assert cursors.is_tail_wanted()


def test_a_new_cursor_is_looked_at_at_once_however_many_there_are() -> None:
    cursors, _ = cursors_of(10_000, behind=1_000_000)
    assert not cursors.is_tail_wanted()
    cursors.non_durable[cast("Any", Looked(0))] = None
    assert cursors.is_tail_wanted()
