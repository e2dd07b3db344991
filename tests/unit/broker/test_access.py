# SPDX-License-Identifier: Apache-2.0
"""Which producers a topic lets in, against what Apache Pulsar answers, and over random comings and goings."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.broker.access import Admission, ProducerAccess
from magnetar.broker.producer import AccessMode, Producer
from magnetar.errors import MagnetarError, ProducerBusy, ProducerFenced, TooManyRequests
from tests.unit.broker.publishers import Client, producer_of

SHARED, EXCLUSIVE = AccessMode.SHARED, AccessMode.EXCLUSIVE
WAITING, FENCING = AccessMode.WAIT_FOR_EXCLUSIVE, AccessMode.EXCLUSIVE_WITH_FENCING


def new(mode: AccessMode, name: str = "p", topic_epoch: int | None = None) -> Producer:
    return producer_of(Client(), name, mode=mode, topic_epoch=topic_epoch)


def test_any_number_share_a_topic() -> None:
    access = ProducerAccess(None, 10)
    assert access.ask(new(SHARED), []) is Admission.SHARED
    assert access.ask(new(SHARED), [new(SHARED)]) is Admission.SHARED
    assert access.epoch is None


@pytest.mark.parametrize(
    ("mode", "error"), [(SHARED, ProducerBusy), (EXCLUSIVE, ProducerFenced)], ids=["shared", "exclusive"]
)
def test_an_exclusive_holder_keeps_others_out(mode: AccessMode, error: type[MagnetarError]) -> None:
    access = ProducerAccess(None, 10)
    holder = new(EXCLUSIVE, "holder")
    assert access.ask(holder, []) is Admission.EXCLUSIVE
    with pytest.raises(error, match="existing exclusive producer: holder"):
        access.ask(new(mode), [holder])
    access.leave(holder)
    access.ask(new(mode), [])


def test_an_exclusive_producer_does_not_come_in_beside_shared_ones() -> None:
    access = ProducerAccess(None, 10)
    with pytest.raises(ProducerFenced, match="existing shared producers"):
        access.ask(new(EXCLUSIVE), [new(SHARED)])
    assert access.holder is None


def test_those_who_wait_have_their_turn_in_order_once_the_topic_is_free() -> None:
    access = ProducerAccess(None, 10)
    shared = new(SHARED)
    first, second = new(WAITING), new(WAITING)
    assert access.ask(first, [shared]) is Admission.WAITING
    assert access.ask(second, [shared]) is Admission.WAITING
    with pytest.raises(ProducerBusy):
        access.ask(new(SHARED), [shared])
    assert access.promote([shared]) is None
    assert access.promote([]) is first
    assert access.promote([]) is None
    access.leave(first)
    assert access.promote([]) is second


def test_whoever_leaves_the_queue_is_not_called() -> None:
    access = ProducerAccess(None, 10)
    holder, impatient, patient = new(EXCLUSIVE), new(WAITING), new(WAITING)
    access.ask(holder, [])
    access.ask(impatient, [holder])
    access.ask(patient, [holder])
    access.leave(impatient)
    access.leave(holder)
    assert access.promote([]) is patient


def test_the_queue_is_bounded() -> None:
    access = ProducerAccess(None, 1)
    holder = new(EXCLUSIVE)
    access.ask(holder, [])
    access.ask(new(WAITING), [holder])
    with pytest.raises(TooManyRequests):
        access.ask(new(WAITING), [holder])


@pytest.mark.feature("B-10")
def test_a_fencing_producer_takes_over_and_empties_the_queue() -> None:
    access = ProducerAccess(3, 10)
    holder, waiting, fencing = new(EXCLUSIVE), new(WAITING), new(FENCING)
    access.ask(holder, [])
    access.ask(waiting, [holder])
    assert access.ask(fencing, [holder]) is Admission.EXCLUSIVE
    assert access.drop_waiting() == [waiting]
    assert access.is_holder(fencing)
    access.leave(holder)
    assert access.is_holder(fencing), "the displaced one leaving changes nothing"
    assert access.next_epoch(fencing) == 4


@pytest.mark.parametrize("mode", [EXCLUSIVE, WAITING, FENCING])
def test_one_that_was_displaced_while_it_was_away_stays_out(mode: AccessMode) -> None:
    access = ProducerAccess(5, 10)
    with pytest.raises(ProducerFenced, match="Current epoch: 5, Producer epoch: 4"):
        access.ask(new(mode, topic_epoch=4), [])
    assert access.holder is None
    back = new(mode, topic_epoch=5)
    assert access.ask(back, []) is Admission.EXCLUSIVE
    assert access.next_epoch(back) == 5, "one that comes back keeps its epoch"


def test_one_that_was_shut_out_does_not_come_back_while_the_new_epoch_is_written() -> None:
    access = ProducerAccess(3, 10)
    newcomer = new(FENCING, "new")
    assert access.ask(newcomer, [new(FENCING, "old", topic_epoch=3)]) is Admission.EXCLUSIVE
    with pytest.raises(ProducerFenced, match="moving"):
        access.ask(new(FENCING, "old", topic_epoch=3), [])
    assert access.is_holder(newcomer)


def test_a_client_that_comes_back_takes_its_own_place() -> None:
    access = ProducerAccess(1, 10)
    old, waiting = new(EXCLUSIVE, "p"), new(WAITING, "q")
    access.ask(old, [])
    access.ask(waiting, [old])
    back = new(EXCLUSIVE, "p", topic_epoch=1)
    access.succeed(back, old)
    access.leave(old)
    assert access.is_holder(back)
    assert access.promote([back]) is None


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(list(AccessMode)), st.integers(0, 4)), max_size=40))
def test_there_is_never_a_second_beside_an_exclusive_one(steps: list[tuple[AccessMode, int]]) -> None:
    access = ProducerAccess(None, 3)
    inside: list[Producer] = []
    for mode, leaver in steps:
        if leaver < len(inside) and leaver % 2:
            access.leave(inside.pop(leaver))
        else:
            producer = new(mode)
            try:
                admission = access.ask(producer, inside)
            except MagnetarError:
                admission = Admission.WAITING
            if admission is not Admission.WAITING:
                if mode is FENCING:
                    access.drop_waiting()
                    for other in inside:
                        access.leave(other)
                    inside.clear()
                inside.append(producer)
        promoted = access.promote(inside)
        if promoted is not None:
            assert not inside
            inside.append(promoted)
        if access.holder is not None:
            assert inside == [access.holder]
        assert inside or not access.waiting, "nobody waits for a free topic"
