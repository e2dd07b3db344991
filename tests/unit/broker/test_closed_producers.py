# SPDX-License-Identifier: Apache-2.0
"""Producers that the broker closed are remembered for a while, and not too many of them."""

from magnetar.broker.closed_producers import ClosedProducers


def test_they_are_known_for_a_while() -> None:
    closed = ClosedProducers(10, kept_s=30.0)
    closed.remember(7, now_s=100.0)
    assert closed.knows(7, 130.0)
    assert not closed.knows(8, 130.0)
    assert not closed.knows(7, 130.1)
    assert len(closed) == 0


def test_an_id_that_is_used_again_is_not_a_closed_one() -> None:
    closed = ClosedProducers(10, kept_s=30.0)
    closed.remember(7, 0.0)
    closed.forget(7)
    closed.forget(9)
    assert not closed.knows(7, 0.0)


def test_the_oldest_go_beyond_the_bound() -> None:
    closed = ClosedProducers(2, kept_s=30.0)
    for producer_id in (1, 2, 1, 3):
        closed.remember(producer_id, 0.0)
    assert [producer_id for producer_id in (1, 2, 3) if closed.knows(producer_id, 0.0)] == [1, 3]
