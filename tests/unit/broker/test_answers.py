# SPDX-License-Identifier: Apache-2.0
"""Answers leave in the order in which messages came, whatever outcomes come in which portions."""

from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.broker.answers import PROBE_PAUSE_ENTRIES, Answers
from magnetar.broker.deduplication import Verdict
from magnetar.broker.producer import Producer
from magnetar.errors import PersistenceFailed

NEW, DUPLICATE, PENDING = Verdict.NEW, Verdict.DUPLICATE, Verdict.PENDING
SIZE = 10


class Link:
    """Notes answers in order, and the bytes that they give back."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, int]] = []
        self.entries: list[int] = []
        self.bytes_given_back = 0

    def send_receipts(
        self, producer: Producer, receipts: list[tuple[int, int]], ledger_id: int, first_entry_id: int, size: int
    ) -> None:
        self.answers += [("stored", sequence_id) for sequence_id, _ in receipts]
        self.entries += range(first_entry_id, first_entry_id + len(receipts))
        self.bytes_given_back += size

    def send_duplicate_receipt(self, producer: Producer, sequence_id: int, highest_sequence_id: int, size: int) -> None:
        self.answers.append(("again", sequence_id))
        self.bytes_given_back += size

    def send_refusal(self, producer: Producer, sequence_id: int, size: int, error: Exception) -> None:
        self.answers.append(("refused", sequence_id))
        self.bytes_given_back += size

    def hold_back(self, seconds: float) -> None: ...

    async def is_alive(self) -> bool:
        return True

    def disconnect_producer(self, producer: Producer) -> None: ...


def producer_on(link: Link) -> Producer:
    return Producer(link, 1, "p", name_generated=False, epoch=0)


def take(answers: Answers, producer: Producer, sequence_id: int, verdict: Verdict = NEW) -> None:
    if verdict is NEW:
        if not answers.is_probing:
            answers.probe(1)
        answers.waiting.append((producer, sequence_id, 0, SIZE, 1))
        producer.pending += 1
    else:
        answers.repeat(producer, sequence_id, 0, SIZE, verdict)


def test_nothing_waits_when_nothing_is_on_its_way() -> None:
    answers, link, called = Answers(), Link(), []
    take(answers, producer_on(link), 1, DUPLICATE)
    answers.call_when_settled(lambda: called.append(1))
    assert (link.answers, called) == ([("again", 1)], [1])


def test_what_waited_for_a_failed_append_fails_and_what_was_stored_before_does_not() -> None:
    answers, link = Answers(), Link()
    producer = producer_on(link)
    for sequence_id, verdict in enumerate((NEW, PENDING, NEW, DUPLICATE, PENDING)):
        take(answers, producer, sequence_id, verdict)
    assert answers.on_persisted(7, 0, 0) == (1, SIZE)
    assert answers.on_failed(1, PersistenceFailed("no")) == 1
    assert link.answers == [("stored", 0), ("again", 1), ("refused", 2), ("again", 3), ("refused", 4)]
    assert producer.pending == 0


def test_questions_are_answered_between_the_receipts_before_and_after_them() -> None:
    answers, link = Answers(), Link()
    producer = producer_on(link)
    take(answers, producer, 0)
    take(answers, producer, 1)
    seen: list[int] = []
    answers.call_when_settled(lambda: seen.append(len(link.answers)))
    take(answers, producer, 2)
    answers.on_persisted(7, 0, 2)
    assert seen == [2]
    assert len(link.answers) == 3


def test_storing_is_timed_now_and_then_and_every_entry_is_counted() -> None:
    asked: list[float] = []

    def now_s() -> float:
        asked.append(len(asked) * 0.002)
        return asked[-1]

    answers, producer = Answers(now_s), producer_on(Link())
    for entry_id in range(PROBE_PAUSE_ENTRIES + 2):
        take(answers, producer, entry_id)
        answers.on_persisted(7, entry_id, entry_id)
    assert len(asked) == 4, "two probes, each at its beginning and its end"
    assert answers.latency is not None
    assert answers.latency.count == PROBE_PAUSE_ENTRIES + 2
    take(answers, producer, 50)
    answers.on_persisted(7, 50, 50)
    assert answers.latency.count == PROBE_PAUSE_ENTRIES + 3, "whoever looks finds all of them counted"
    answers.rest()
    take(answers, producer, 99)
    assert len(asked) == 5, "the first after a rest is timed"


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from([NEW, NEW, DUPLICATE, PENDING])), max_size=30),
    st.lists(st.integers(1, 6), max_size=30),
    st.booleans(),
)
def test_no_answer_overtakes_another(
    messages: list[tuple[int, Verdict]], portions: list[int], fails_at_the_end: bool
) -> None:
    answers = Answers()
    links = [Link() for _ in range(3)]
    producers = [producer_on(link) for link in links]
    sent: list[list[int]] = [[], [], []]
    appended = persisted = 0
    for sequence_id, (who, verdict) in enumerate(messages):
        take(answers, producers[who], sequence_id, verdict)
        answers.rest()
        sent[who].append(sequence_id)
        appended += verdict is NEW
        if portions and appended - persisted >= portions[0]:
            count = portions.pop(0)
            answers.on_persisted(7, persisted, persisted + count - 1)
            persisted += count
    if appended > persisted:
        if fails_at_the_end:
            assert answers.on_failed(appended - persisted, PersistenceFailed("no")) == appended - persisted
        else:
            answers.on_persisted(7, persisted, appended - 1)
    for link, producer, expected in zip(links, producers, sent, strict=True):
        assert [sequence_id for _, sequence_id in link.answers] == expected
        assert link.bytes_given_back == SIZE * len(expected)
        assert link.entries == sorted(link.entries)
        assert producer.pending == 0
    stored = sum(len(link.entries) for link in links)
    assert stored == (persisted if fails_at_the_end else appended)
