# SPDX-License-Identifier: Apache-2.0
"""Adds that wait: in order, within the bound."""

from hypothesis import given
from hypothesis import strategies as st

from magnetar.bookie.held_adds import HeldAdd, HeldAdds


class Nobody:
    def on_added(self, bookie: str, first: int, last: int, code: int) -> None:
        raise AssertionError


NOBODY = Nobody()


def add(ledger_id: int, entry_id: int, size: int = 1, since: float = 0.0) -> HeldAdd:
    return HeldAdd(since, ledger_id, entry_id, bytes(size), b"", NOBODY, False)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(1, 40)), max_size=30))
def test_the_bound_holds_over_both_queues(adds: list[tuple[bool, int, int]]) -> None:
    held = HeldAdds(100, 10)
    taken = count = 0
    for entry_id, (unknown, ledger_id, size) in enumerate(adds):
        fits = taken + size <= 100 and count < 10
        one = add(ledger_id, entry_id, size)
        assert (held.hold_unknown(one) if unknown else held.hold(one)) == fits
        taken += size if fits else 0
        count += fits
        assert held.bytes_held == taken <= 100
    everything = held.take_all()
    assert sum(one.entry_bytes for one in everything) == taken
    assert held.bytes_held == 0
    assert held.take() is None


def test_order_is_kept_and_ledgers_wait_apart() -> None:
    held = HeldAdds(100, 10)
    for one in (add(1, 0, since=1.0), add(2, 0, since=2.0)):
        held.hold(one)
    for one in (add(3, 0), add(4, 0), add(3, 1)):
        held.hold_unknown(one)
    assert held.unknown(5) == [3, 4]
    assert held.unknown(1) == [3]
    assert [one.entry_id for one in held.take_known(3)] == [0, 1]
    assert held.unknown(5) == [4]
    assert held.take_known(3) == []
    assert held.oldest_since() == 1.0
    first = held.take()
    assert isinstance(first, HeldAdd)
    assert first.ledger_id == 1
    assert len(held) == 1
    assert held.oldest_since() == 2.0
