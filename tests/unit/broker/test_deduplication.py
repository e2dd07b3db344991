# SPDX-License-Identifier: Apache-2.0
"""What counts as stored already: the rules one by one, and random traffic against a twin that remembers every id."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.broker.deduplication import Chunk, Deduplication, Identity, Verdict, signed
from magnetar.broker.topic import Topic
from magnetar.config.broker import BrokerSettings
from magnetar.errors import BadSequence
from tests.unit.broker.publishers import Brokers, Client, body_of, producer_of, stored

REPLICATOR = "pulsar.repl.east-->west"
NEW, DUPLICATE, PENDING = Verdict.NEW, Verdict.DUPLICATE, Verdict.PENDING


def take(tracker: Deduplication, name: str, lowest: int, highest: int | None = None) -> None:
    highest = lowest if highest is None else highest
    assert tracker.judge(name, lowest, highest) is NEW
    tracker.on_appended(Identity(name, lowest, highest))


@pytest.mark.feature("F-PROD-26")
def test_an_id_counts_as_stored_only_once_it_is() -> None:
    tracker = Deduplication(10)
    take(tracker, "p", 0)
    assert tracker.judge("p", 0, 0) is PENDING
    assert tracker.last_sequence_id("p") == -1
    assert not tracker.is_settled("p")
    tracker.on_persisted(1)
    assert tracker.judge("p", 0, 0) is DUPLICATE
    assert tracker.last_sequence_id("p") == 0
    assert tracker.is_settled("p")
    assert tracker.judge("other", 0, 0) is NEW


def test_batches_inside_across_and_above_what_is_stored() -> None:
    tracker = Deduplication(10)
    take(tracker, "p", 0, 5)
    tracker.on_persisted(1)
    assert tracker.judge("p", 0, 5) is DUPLICATE
    assert tracker.judge("p", 2, 4) is DUPLICATE
    with pytest.raises(BadSequence, match=r"4\.\.8 of producer 'p' are stored in part: up to 5"):
        tracker.judge("p", 4, 8)
    take(tracker, "p", 6, 8)
    assert tracker.judge("p", 6, 8) is PENDING
    assert tracker.judge("p", 5, 8) is PENDING, "all of it is stored or on its way"
    with pytest.raises(BadSequence):
        tracker.judge("p", 7, 10)
    tracker.on_persisted(1)
    assert tracker.judge("p", 5, 8) is DUPLICATE


def test_gaps_are_the_producers_business() -> None:
    tracker = Deduplication(10)
    take(tracker, "p", 100)
    tracker.on_persisted(1)
    assert tracker.judge("p", 50, 50) is DUPLICATE
    assert tracker.judge("p", 1_000, 1_000) is NEW


def test_minus_one_is_below_everything() -> None:
    tracker = Deduplication(10)
    take(tracker, "p", 0)
    tracker.on_persisted(1)
    assert signed(2**64 - 1) == -1
    assert tracker.judge("p", signed(2**64 - 1), signed(2**64 - 1)) is DUPLICATE


def test_chunks_count_when_the_last_of_them_does() -> None:
    tracker = Deduplication(10)
    chunks = [Chunk("u", number, 3) for number in range(3)]
    for chunk in chunks[:2]:
        assert tracker.judge("p", 7, 7, chunk) is NEW
        tracker.on_appended(Identity("p", 7, 7, chunk))
    assert tracker.judge("p", 7, 7, chunks[0]) is PENDING, "this chunk was taken"
    tracker.on_persisted(2)
    assert tracker.last_sequence_id("p") == -1, "the message is not whole"
    assert tracker.judge("p", 7, 7, chunks[2]) is NEW
    tracker.on_appended(Identity("p", 7, 7, chunks[2]))
    assert tracker.judge("p", 7, 7, chunks[1]) is PENDING
    tracker.on_persisted(1)
    assert tracker.last_sequence_id("p") == 7
    assert all(tracker.judge("p", 7, 7, chunk) is DUPLICATE for chunk in chunks)


def test_a_message_that_is_cut_anew_is_taken_from_its_first_chunk_on() -> None:
    tracker = Deduplication(10)
    tracker.on_appended(Identity("p", 7, 7, Chunk("u", 0, 2)))
    tracker.on_persisted(1)
    for number in range(2):
        assert tracker.judge("p", 7, 7, Chunk("v", number, 2)) is NEW
        tracker.on_appended(Identity("p", 7, 7, Chunk("v", number, 2)))


def test_markers_have_a_place_in_the_order_and_no_id() -> None:
    tracker = Deduplication(10)
    tracker.on_appended(None)
    take(tracker, "p", 3)
    tracker.on_persisted(1)
    assert tracker.last_sequence_id("p") == -1
    tracker.on_persisted(1)
    assert tracker.last_sequence_id("p") == 3


def test_appends_from_before_say_nothing() -> None:
    tracker = Deduplication(10, appends_before=2)
    take(tracker, "p", 3)
    tracker.on_persisted(1)
    tracker.on_persisted(1)
    assert tracker.last_sequence_id("p") == -1
    tracker.on_persisted(1)
    assert tracker.last_sequence_id("p") == 3


def test_a_snapshot_and_what_was_stored_behind_it_restore_everything() -> None:
    tracker = Deduplication(10)
    take(tracker, "p", 3)
    take(tracker, "q", 9)
    tracker.on_persisted(2)
    again = Deduplication(10)
    again.restore(tracker.snapshot(), now_ms=1)
    again.replay(Identity("p", 4, 4), now_ms=1)
    again.replay(Identity("q", 10, 10, Chunk("u", 0, 2)), now_ms=1)
    assert (again.last_sequence_id("p"), again.last_sequence_id("q")) == (4, 9)
    assert again.judge("q", 10, 10, Chunk("u", 0, 2)) is PENDING
    assert again.judge("q", 10, 10, Chunk("u", 1, 2)) is NEW


def test_names_are_bounded_and_those_not_seen_for_longest_go_first() -> None:
    tracker = Deduplication(2)
    for number, name in enumerate(("a", "b")):
        take(tracker, name, 1)
        tracker.on_persisted(1)
        tracker.on_producer_removed(name, now_ms=number)
    tracker.on_producer_added("a", now_ms=2)
    tracker.on_producer_removed("a", now_ms=2)
    take(tracker, "c", 1)
    assert (tracker.last_sequence_id("a"), tracker.last_sequence_id("b")) == (1, -1)
    assert len(tracker) == 2


def test_names_that_were_not_seen_for_long_are_forgotten_unless_something_is_on_its_way() -> None:
    tracker = Deduplication(10)
    take(tracker, "a", 1)
    tracker.on_persisted(1)
    take(tracker, "b", 1)
    tracker.on_producer_removed("a", now_ms=5)
    tracker.on_producer_removed("b", now_ms=5)
    assert tracker.forget_inactive(before_ms=5) == 0
    assert tracker.forget_inactive(before_ms=6) == 1
    tracker.on_persisted(1)
    assert (tracker.last_sequence_id("a"), tracker.last_sequence_id("b")) == (-1, 1)


class Twin:
    """Remembers every id that was appended or persisted, for one producer."""

    def __init__(self) -> None:
        self.appended: set[int] = set()
        self.persisted: set[int] = set()
        self.waiting: list[range] = []

    def judge(self, ids: range) -> Verdict | None:
        top_persisted = max(self.persisted, default=-1)
        top_appended = max(self.appended, default=-1)
        if all(number <= top_persisted for number in ids):
            return DUPLICATE
        if all(number <= top_appended for number in ids):
            return PENDING
        return NEW if all(number > top_appended for number in ids) else None


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(st.tuples(st.integers(0, 30), st.integers(1, 5)), st.just("persist")), max_size=60))
def test_random_traffic_against_a_twin(steps: list[object]) -> None:
    tracker, twin = Deduplication(10), Twin()
    for step in steps:
        if step == "persist":
            if twin.waiting:
                tracker.on_persisted(1)
                twin.persisted |= set(twin.waiting.pop(0))
        else:
            assert isinstance(step, tuple)
            ids = range(step[0], step[0] + step[1])
            verdict: Verdict | None
            try:
                verdict = tracker.judge("p", ids[0], ids[-1])
            except BadSequence:
                verdict = None
            assert verdict is twin.judge(ids)
            if verdict is NEW:
                tracker.on_appended(Identity("p", ids[0], ids[-1]))
                twin.appended |= set(ids)
                twin.waiting.append(ids)
        assert tracker.last_sequence_id("p") == max(twin.persisted, default=-1)
        assert tracker.is_settled("p") == (not twin.waiting)


@pytest.mark.feature("F-PROD-26", "F-GEO-09")
@pytest.mark.parametrize("turns", range(0, 60, 4))
def test_an_owner_that_dies_while_it_saves_leaves_a_position_with_its_ids(turns: int) -> None:
    """F172: what two producers of another cluster sent comes once more from the beginning; nothing is there twice."""

    async def test() -> None:
        brokers = Brokers(BrokerSettings(deduplication_enabled=True, deduplication_entries_interval=3))
        await brokers.start()
        sent = [("pq"[number % 2], number) for number in range(12)]
        await bring(await brokers.topic(), sent, turns)
        await brokers.die()
        await brokers.start()
        topic = await brokers.topic()
        await bring(topic, sent)
        assert await stored(topic) == sent
        await brokers.stop()

    asyncio.run(test())


async def bring(topic: Topic, sent: list[tuple[str, int]], turns: int | None = None) -> None:
    """Send these as a replicator does, and go on when all are answered, or after so many turns of the loop."""
    client = Client()
    replicator = producer_of(client, "pulsar.repl.east-->c")
    await topic.add_producer(replicator)
    for sequence_id, (name, number) in enumerate(sent):
        topic.publish(replicator, sequence_id, 0, 1, body_of(name, number, replicated_from="east"))
    if turns is None:
        await client.until_answers(len(sent))
    else:
        for _ in range(turns):
            await asyncio.sleep(0)


@pytest.mark.feature("F-PROD-26", "F-GEO-09")
def test_while_a_replicator_is_away_nobody_is_forgotten_for_age() -> None:
    tracker = Deduplication(10)
    take(tracker, "far", 7)
    tracker.on_brought("far", REPLICATOR, now_ms=1)
    tracker.on_persisted(1)
    tracker.on_producer_removed(REPLICATOR, now_ms=2)
    assert tracker.forget_inactive(before_ms=100) == 0
    assert tracker.snapshot() == {REPLICATOR: -1, "far": 7}
    successor = Deduplication(10)
    successor.restore(tracker.snapshot(), now_ms=3)
    assert successor.forget_inactive(before_ms=100) == 0
    assert successor.last_sequence_id(REPLICATOR) == -1
    # It is back, and ages begin anew.
    successor.on_producer_added(REPLICATOR, now_ms=200)
    assert successor.forget_inactive(before_ms=200) == 0
    assert successor.forget_inactive(before_ms=201) == 1
    assert successor.snapshot() == {REPLICATOR: -1}
