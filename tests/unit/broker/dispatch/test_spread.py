# SPDX-License-Identifier: Apache-2.0
"""How a Shared subscription spreads its entries can be replaced; priorities hold whatever is chosen."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.broker.consumer import Consumer
from magnetar.broker.dispatch.shared import SharedDispatcher
from magnetar.broker.dispatch.spread import SPREADS, FewestUnacked, InTurn, Spread, new_spread
from tests.unit.broker.dispatch.machines import delivery, given_ids, new_consumer


class ToTheLast(Spread):
    """One that no settings name: whoever came last gets everything."""

    def choose(self, peers: Sequence[Consumer]) -> Consumer | None:
        return next((peer for peer in reversed(peers) if peer.room() > 0), None)

    def restart(self) -> None:
        """Nothing is remembered."""


def spread_over(spread: Spread, consumers: list[Consumer], count: int) -> list[list[int]]:
    dispatcher = SharedDispatcher(spread, round_entries_max=1, unacked_max=0)
    for consumer in consumers:
        dispatcher.add(consumer)
    assignment, _ = dispatcher.assign([delivery(number) for number in range(count)])
    return [given_ids(assignment.get(consumer, [])) for consumer in consumers]


@pytest.mark.feature("F-SUB-12")
def test_the_distribution_follows_the_spread_that_was_put_in() -> None:
    def three() -> list[Consumer]:
        return [new_consumer(name, permits=4) for name in "abc"]

    assert spread_over(InTurn(), three(), 6) == [[0, 3], [1, 4], [2, 5]]
    assert spread_over(ToTheLast(), three(), 6) == [[], [4, 5], [0, 1, 2, 3]]
    busy = three()
    busy[0].hold(delivery(100).position, 3)
    assert spread_over(FewestUnacked(), busy, 6) == [[], [0, 2, 4], [1, 3, 5]]


@pytest.mark.parametrize("name", sorted(SPREADS))
@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4)), min_size=1, max_size=6),
    st.integers(0, 25),
)
def test_every_spread_serves_the_better_level_first_and_wastes_no_permit(
    name: str, consumers: list[tuple[int, int]], count: int
) -> None:
    made = [new_consumer(str(n), priority=level, permits=permits) for n, (level, permits) in enumerate(consumers)]
    given_out = spread_over(new_spread(name), made, count)
    assert sum(map(len, given_out)) == min(count, sum(permits for _, permits in consumers))
    for consumer, ids in zip(made, given_out, strict=True):
        better = [other for other in made if other.priority < consumer.priority]
        assert not ids or all(other.permits == 0 for other in better)
