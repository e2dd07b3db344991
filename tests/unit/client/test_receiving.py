# SPDX-License-Identifier: Apache-2.0
"""What decides about messages on their way in: acknowledgements, redeliveries, the queue, where reading starts."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.client.ack_group import AckGroup
from magnetar.client.incoming import is_before_start
from magnetar.client.message import BatchAcks, DeliveredEntry, Message
from magnetar.client.message_queue import MessageQueue
from magnetar.client.redelivery import DueEntries
from magnetar.client.schema import BYTES, Schema
from magnetar.client.states import STEPS, IllegalStep, State, is_final, step
from magnetar.errors import AlreadyClosed
from magnetar.ids import MessageId, Position
from magnetar.wire.proto import pulsar_api_pb2 as pb

positions = st.builds(Position, st.integers(0, 3), st.integers(0, 5))


@given(st.integers(1, 200), st.data())
def test_batch_acks_are_a_set_of_indexes(size: int, data: st.DataObject) -> None:
    acks = BatchAcks(size)
    left = set(range(size))
    for index in data.draw(st.lists(st.integers(0, size - 1), max_size=20)):
        left.discard(index)
        assert acks.ack(index) == (not left)
    words = acks.words()
    assert all(-(2**63) <= word < 2**63 for word in words)
    assert {index for index in range(size) if words[index >> 6] >> (index & 63) & 1} == left
    assert BatchAcks(size, words).left == acks.left or not any(words)
    until = data.draw(st.integers(0, size - 1))
    acks.ack_up_to(until)
    assert {index for index in range(size) if acks.left >> index & 1} == {index for index in left if index > until}


@given(st.lists(st.tuples(st.sampled_from(["one", "all", "take"]), positions), max_size=40))
def test_grouped_acknowledgements_are_a_set_and_a_mark(steps: list[tuple[str, Position]]) -> None:
    group = AckGroup(1_000)
    single: set[Position] = set()
    mark = Position(-1, -1)
    due = False
    for kind, position in steps:
        if kind == "one":
            group.add(position)
            single.add(position)
        elif kind == "all":
            group.add_cumulative(position)
            due = due or position > mark
            mark = max(mark, position)
        else:
            acks = group.take()
            assert {place for place, _ in acks.individual} == single
            assert acks.cumulative == ((mark, ()) if due else None)
            single, due = set(), False
        for place in (Position(ledger, entry) for ledger in range(4) for entry in range(6)):
            assert group.covers(place) == (place <= mark or place in single)


def test_on_another_connection_only_what_was_not_sent_is_known_as_done() -> None:
    group = AckGroup(10)
    group.add_cumulative(Position(1, 5))
    group.forget_sent()
    assert group.covers(Position(1, 3)), "not sent yet"
    group.take()
    assert group.covers(Position(1, 3)), "the same connection"
    group.forget_sent()
    assert not group.covers(Position(1, 3))
    group.add_cumulative(Position(1, 2))
    assert group.take().cumulative == (Position(1, 2), ()), "an earlier place counts again"


def test_a_group_says_when_it_is_full() -> None:
    group = AckGroup(2)
    assert not group.add(Position(1, 1), [5])
    assert not group.add(Position(1, 1))
    assert group.add(Position(1, 2))
    assert group.take().individual == [(Position(1, 1), ()), (Position(1, 2), ())]


@given(
    st.lists(st.tuples(st.sampled_from(["add", "remove", "up to", "take"]), positions, st.integers(0, 20)), max_size=60)
)
def test_due_entries_are_a_dictionary_of_times(steps: list[tuple[str, Position, int]]) -> None:
    entries = DueEntries()
    twin: dict[Position, int] = {}
    for kind, position, time in steps:
        if kind == "add":
            entries.add(position, time)
            twin[position] = time
        elif kind == "remove":
            assert entries.remove(position) == (twin.pop(position, None) is not None)
        elif kind == "up to":
            entries.remove_up_to(position)
            twin = {place: due for place, due in twin.items() if place > position}
        else:
            expected = sorted((due, place) for place, due in twin.items() if due <= time)
            assert entries.take_due(time) == [place for _, place in expected]
            twin = {place: due for place, due in twin.items() if due > time}
        assert entries.next_due_s == min(twin.values(), default=None)
        assert len(entries) == len(twin)


def test_reading_starts_after_its_place_or_with_it() -> None:
    start = MessageId(1, 5, -1, 2)
    same = Position(1, 5)
    assert [is_before_start(same, index, start, inclusive=False) for index in range(4)] == [True, True, True, False]
    assert [is_before_start(same, index, start, inclusive=True) for index in range(4)] == [True, True, False, False]
    whole = MessageId(1, 5)
    assert is_before_start(same, -1, whole, inclusive=False)
    assert not is_before_start(same, -1, whole, inclusive=True)
    assert not is_before_start(Position(1, 4), -1, whole, inclusive=False)
    assert not is_before_start(same, 3, None, inclusive=False)


class FakeSource:
    def __init__(self) -> None:
        self.generation = 1
        self.topic_text = "t"
        self.partition = -1
        self.schema: Schema[Any] = BYTES
        self.taken: list[bytes] = []

    def on_taken(self, message: Message[Any]) -> None:
        self.taken.append(message.data())

    def on_put_back(self, message: Message[Any]) -> None:
        self.taken.remove(message.data())


def message(source: FakeSource, content: bytes) -> Message[Any]:
    return Message(DeliveredEntry(source, Position(1, 1), b"", pb.MessageMetadata()), content)


def test_messages_of_a_passed_generation_are_not_handed_out() -> None:
    source = FakeSource()
    queue = MessageQueue()
    queue.put([message(source, b"old"), message(source, b"older")])
    source.generation += 1
    assert queue.is_empty
    queue.put([message(source, b"new")])
    assert not queue.is_empty
    taken = queue.take()
    assert taken is not None
    assert (taken.data(), source.taken) == (b"new", [b"new"])
    queue.put_back(taken)
    assert source.taken == []
    assert queue.take() is taken
    assert queue.take() is None


@given(st.lists(st.sampled_from(["get", "put", "cancel", "turn"]), max_size=60))
def test_a_cancelled_taker_takes_nothing(steps: list[str]) -> None:
    async def test() -> None:
        source = FakeSource()
        queue = MessageQueue()
        takers: list[asyncio.Future[Message[Any]]] = []
        put = 0
        for kind in steps:
            if kind == "get":
                takers.append(asyncio.ensure_future(queue.get()))
            elif kind == "put":
                queue.put([message(source, str(put).encode())])
                put += 1
            elif kind == "cancel" and takers:
                takers[len(takers) // 2].cancel()
            else:
                await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)
        got = [taker.result().data() for taker in takers if taker.done() and not taker.cancelled()]
        waiting = [taker for taker in takers if not taker.done()]
        rest = []
        while (left := queue.take()) is not None:
            rest.append(left.data())
        assert sorted(got + rest, key=int) == [str(number).encode() for number in range(put)]
        assert not (rest and waiting), "a message lies there and a taker waits"
        queue.end(AlreadyClosed("over"))
        for taker in waiting:
            taker.cancel()
        await asyncio.gather(*takers, return_exceptions=True)

    asyncio.run(test())


@pytest.mark.feature("F-PROD-14")
def test_states_follow_their_table() -> None:
    for present in State:
        for following in State:
            if following is present or following in STEPS[present]:
                assert step(present, following) is following
            else:
                with pytest.raises(IllegalStep):
                    step(present, following)
    assert not STEPS[State.TERMINATED]
    assert not STEPS[State.FENCED]
    assert is_final(State.FENCED)
