# SPDX-License-Identifier: Apache-2.0
"""Exclusive and Failover: one consumer gets everything, and who that is."""

import pytest

from magnetar.broker.consumer import Consumer
from magnetar.broker.dispatch.single_active import ExclusiveDispatcher, FailoverDispatcher
from magnetar.errors import ConsumerBusy
from magnetar.ids import Position
from magnetar.names import TopicName
from tests.unit.broker.dispatch.machines import delivery, given_ids, new_consumer


def ignore(consumer: Consumer | None) -> None: ...


def topic_of(name: str) -> TopicName:
    return TopicName.parse(f"persistent://public/default/{name}")


@pytest.mark.feature("F-SUB-02")
def test_a_second_exclusive_consumer_is_refused_and_the_first_stays() -> None:
    dispatcher = ExclusiveDispatcher(ignore)
    first = new_consumer("first", permits=5)
    dispatcher.add(first)
    with pytest.raises(ConsumerBusy, match="Exclusive consumer is already connected"):
        dispatcher.add(new_consumer("second"))
    assert dispatcher.active is first
    assert given_ids(dispatcher.assign([delivery(0), delivery(1)])[0][first]) == [0, 1]
    assert dispatcher.room(1) == 3


@pytest.mark.feature("F-SUB-05", "D-33")
def test_failover_takes_the_best_priority_then_the_place_on_the_ring() -> None:
    told: list[str | None] = []
    dispatcher = FailoverDispatcher(lambda consumer: told.append(consumer.name if consumer else None), topic_of("t0"))
    late, early, preferred = new_consumer("b", priority=1), new_consumer("a", priority=1), new_consumer("z")
    for consumer in (late, early, preferred):
        dispatcher.add(consumer)
    for consumer in (preferred, early, late):
        dispatcher.remove(consumer)
    assert told == ["b", "a", "z", "a", "b", None]


@pytest.mark.feature("D-33")
def test_the_ring_is_the_one_of_pulsar() -> None:
    """Whom Apache Pulsar 4.0.8 made active on topics ring-0 to ring-11; partitions follow when they are told to."""
    expected = ("gamma", "gamma", "alpha", "alpha", "gamma", "alpha", "alpha", "alpha", "beta", "beta", "beta", "gamma")
    for number, name in enumerate(expected):
        dispatcher = FailoverDispatcher(ignore, topic_of(f"ring-{number}"))
        for each in ("gamma", "alpha", "beta"):
            dispatcher.add(new_consumer(each))
        assert dispatcher.active is not None
        assert dispatcher.active.name == name
    chosen = set()
    for number in range(8):
        dispatcher = FailoverDispatcher(ignore, topic_of(f"t-partition-{number}"), ring_for_partitions=True)
        for each in ("a", "b"):
            dispatcher.add(new_consumer(each))
        assert dispatcher.active is not None
        chosen.add((number % 2, dispatcher.active.name))
    assert len(chosen) > 2, "not by the partition's number"


@pytest.mark.feature("F-SUB-07")
def test_failover_spreads_the_active_role_over_partitions() -> None:
    active = []
    for partition in range(4):
        dispatcher = FailoverDispatcher(ignore, topic_of(f"t-partition-{partition}"))
        for name in ("a", "b"):
            dispatcher.add(new_consumer(name))
        assert dispatcher.active is not None
        active.append(dispatcher.active.name)
    assert active == ["a", "b", "a", "b"]


def test_redelivery_rewinds_and_counts_what_was_named() -> None:
    dispatcher = ExclusiveDispatcher(ignore)
    consumer = new_consumer("a", permits=10)
    dispatcher.add(consumer)
    dispatcher.assign([delivery(0), delivery(1)])
    assert dispatcher.redeliver(consumer, [Position(1, 1)])
    again = dispatcher.assign([delivery(0), delivery(1)])[0][consumer]
    assert [each.redelivery_count for each in again] == [0, 1]
    dispatcher.forget_through(Position(1, 1))
    assert [each.redelivery_count for each in dispatcher.assign([delivery(1)])[0][consumer]] == [0]


@pytest.mark.feature("F-DISP-05", "F-PRB-21")
def test_batches_exceed_the_permits_by_less_than_one_entry() -> None:
    dispatcher = ExclusiveDispatcher(ignore)
    consumer = new_consumer("a", permits=10)
    dispatcher.add(consumer)
    assignment, settled = dispatcher.assign([delivery(n, messages=100) for n in range(5)])
    assert (given_ids(assignment[consumer]), settled) == ([0], 1)
    assert consumer.permits == -90
    assert dispatcher.room(1) == 0
    consumer.on_flow(90)
    assert dispatcher.room(1) == 0, "what was sent too much is paid back first"
    consumer.on_flow(1)
    assert dispatcher.room(1) == 1


def test_redelivery_asked_by_a_consumer_that_is_not_active_changes_nothing() -> None:
    dispatcher = FailoverDispatcher(ignore, topic_of("t0"))
    active, spare = new_consumer("a", permits=5), new_consumer("b", permits=5)
    dispatcher.add(active)
    dispatcher.add(spare)
    assert not dispatcher.redeliver(spare, [Position(1, 0)])
    assert dispatcher.redeliver(active, None)
