# SPDX-License-Identifier: Apache-2.0
"""The answers that a topic owes its producers, in the order in which their messages came.

Owns what was appended and has no outcome yet, and between those what needs no append because it is stored already or is
being stored by an earlier SEND. Official clients match answers with the head of their own queue, so none overtakes
another: what needs no append is answered when every append before it has its outcome. Never stores, never judges.

How long storing takes is measured by one probe at a time, never per message, and not by one behind another.

Invariant: outcomes come in the order of the appends, each once.
Decides.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, cast

from magnetar.broker.deduplication import Verdict
from magnetar.broker.producer import Producer
from magnetar.broker.send_run import Waiting, take_answered
from magnetar.errors import MagnetarError
from magnetar.runtime.metrics import Histogram

# Upper bounds in milliseconds, as Pulsar's metrics have them.
WRITE_LATENCY_BOUNDS_MS: Final = (0.5, 1, 5, 10, 20, 50, 100, 200, 1000)
# Entries that go by between one probe and the next; they are taken to have taken as long.
PROBE_PAUSE_ENTRIES: Final = 16

# What waits in an idle topic: an empty deque has more bytes than the rest of its answers. Nothing can be put into it.
_NOTHING: Final = cast("deque[Waiting]", ())


class Answers:
    __slots__ = (
        "_latency",
        "_latency_ms",
        "_now_s",
        "_observed",
        "_probe_due",
        "_probe_s",
        "_questions",
        "_repeated",
        "_settled",
        "is_probing",
        "waiting",
    )

    def __init__(self, now_s: Callable[[], float] = lambda: 0.0) -> None:
        self._now_s = now_s
        # How long entries took to be durable; each is taken to have taken as long as the last probe, in milliseconds.
        self._latency: Histogram | None = None
        self._latency_ms = 0.0
        # True from a probe until the next may begin.
        self.is_probing = False
        # When the probe under way began, and after how many outcomes it is over, or the pause behind it.
        self._probe_s: float | None = None
        self._probe_due = 0
        self._observed = 0
        # What was appended and is not yet persisted, oldest first; its own from a probe until a rest.
        self.waiting = _NOTHING
        # How many appends have had their outcome, in all.
        self._settled = 0
        # After how many outcomes it is due, producer, sequence id, highest sequence id, bytes, verdict.
        # Few topics ever have these two, and an empty deque has more bytes than the rest.
        self._repeated: deque[tuple[int, Producer, int, int, int, Verdict]] | None = None
        self._questions: deque[tuple[int, Callable[[], None]]] | None = None

    @property
    def settled(self) -> int:
        """How many appends have had their outcome, in all."""
        return self._settled

    @property
    def appended(self) -> int:
        """How many appends there were, in all."""
        return self._settled + len(self.waiting)

    @property
    def latency(self) -> Histogram | None:
        """How long entries took to be durable, in milliseconds, every one counted; None before the first was timed."""
        if self._latency is not None:
            self._observe(self._latency)
        return self._latency

    def probe(self, entries: int) -> None:
        """Measure how long the next of so many appends takes; they are put to those that wait after this call."""
        if self.waiting is _NOTHING:
            self.waiting = deque()
        self.is_probing = True
        self._probe_s = self._now_s()
        self._probe_due = self._settled + len(self.waiting) + entries

    def rest(self) -> None:
        """From time to time: nothing waits, so nothing is kept for it."""
        if not self.waiting:
            self.waiting = _NOTHING
            self.is_probing = False

    def repeat(
        self, producer: Producer, sequence_id: int, highest_sequence_id: int, size: int, verdict: Verdict
    ) -> None:
        """Acknowledge without an append, in its turn; refused if it was pending and that append fails."""
        if not self.waiting:
            producer.link.send_duplicate_receipt(producer, sequence_id, highest_sequence_id, size)
            return
        due = self._settled + len(self.waiting)
        if self._repeated is None:
            self._repeated = deque()
        self._repeated.append((due, producer, sequence_id, highest_sequence_id, size, verdict))
        producer.pending += 1

    def call_when_settled(self, call: Callable[[], None]) -> None:
        """Call when every append that waits now has its outcome; at once when none waits."""
        if self.waiting:
            if self._questions is None:
                self._questions = deque()
            self._questions.append((self._settled + len(self.waiting), call))
        else:
            call()

    def on_persisted(self, ledger_id: int, first_entry: int, last_entry: int) -> tuple[int, int]:
        """The next appends are these entries; returns how many messages and bytes they were."""
        messages = size = 0
        if first_entry == last_entry and not (self._repeated or self._questions):
            messages, size = self._acknowledge_one(ledger_id, first_entry)
            if self.is_probing and self._settled >= self._probe_due:
                self._on_probe_due()
            return messages, size
        while self._repeated or self._questions:
            due = min(queue[0][0] for queue in (self._repeated, self._questions) if queue)
            before = first_entry + due - self._settled
            if before > last_entry + 1:
                break
            some_messages, some_size = self._acknowledge(ledger_id, first_entry, before - 1)
            messages += some_messages
            size += some_size
            first_entry = before
            self._answer_due(None)
        rest_messages, rest_size = self._acknowledge(ledger_id, first_entry, last_entry)
        if self.is_probing and self._settled >= self._probe_due:
            self._on_probe_due()
        return messages + rest_messages, size + rest_size

    def on_failed(self, count: int, refusal: MagnetarError) -> int:
        """The oldest appends will not be stored; returns how many messages they were."""
        lost = 0
        for _ in range(count):
            producer, sequence_id, _, size, messages = self.waiting.popleft()
            lost += messages
            producer.link.send_refusal(producer, sequence_id, size, refusal)
            producer.on_stored(1)
            self._settled += 1
            self._answer_due(refusal)
        self.is_probing = False
        self._probe_s = None
        self._observed += count
        return lost

    def _on_probe_due(self) -> None:
        """The probe has its outcome, or the pause behind it is over."""
        began_s, self._probe_s = self._probe_s, None
        if began_s is None:
            self.is_probing = False
            return
        if self._latency is None:
            self._latency = Histogram(WRITE_LATENCY_BOUNDS_MS)
        self._latency_ms = (self._now_s() - began_s) * 1000
        self._observe(self._latency)
        self._probe_due = self._settled + PROBE_PAUSE_ENTRIES

    def _observe(self, latency: Histogram) -> None:
        if self._settled > self._observed:
            latency.observe(self._latency_ms, self._settled - self._observed)
            self._observed = self._settled

    def _acknowledge(self, ledger_id: int, first_entry: int, last_entry: int) -> tuple[int, int]:
        """Receipts for these entries, if any: one run per producer in turn."""
        waiting = self.waiting
        entry_id = first_entry
        messages_in_all = size_in_all = 0
        while entry_id <= last_entry:
            producer = waiting[0][0]
            receipts, size, messages = take_answered(waiting, last_entry + 1 - entry_id)
            producer.bytes_in += size
            producer.messages_in += messages
            self._settled += len(receipts)
            producer.link.send_receipts(producer, receipts, ledger_id, entry_id, size)
            producer.on_stored(len(receipts))
            entry_id += len(receipts)
            messages_in_all += messages
            size_in_all += size
        return messages_in_all, size_in_all

    def _acknowledge_one(self, ledger_id: int, entry_id: int) -> tuple[int, int]:
        producer, sequence_id, highest_sequence_id, size, messages = self.waiting.popleft()
        producer.bytes_in += size
        producer.messages_in += messages
        self._settled += 1
        producer.link.send_receipts(producer, [(sequence_id, highest_sequence_id)], ledger_id, entry_id, size)
        if producer.on_drained or producer.pending <= 0:
            producer.on_stored(1)
        else:
            producer.pending -= 1
        return messages, size

    def _answer_due(self, refusal: MagnetarError | None) -> None:
        while self._repeated and self._repeated[0][0] <= self._settled:
            _, producer, sequence_id, highest_sequence_id, size, verdict = self._repeated.popleft()
            if refusal is not None and verdict is Verdict.PENDING:
                producer.link.send_refusal(producer, sequence_id, size, refusal)
            else:
                producer.link.send_duplicate_receipt(producer, sequence_id, highest_sequence_id, size)
            producer.on_stored(1)
        while self._questions and self._questions[0][0] <= self._settled:
            self._questions.popleft()[1]()
