# SPDX-License-Identifier: Apache-2.0
"""What happened in a soak, written down while it happens: who sent, got and took what and when, what was disturbed, and
who was connected. It judges nothing; `soak_checks.py` does.
"""

import math
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

TOPIC = "persistent://public/default/soak"
ONCE_TOPIC = "persistent://public/once/soak"
KEYS = 16


class Kind(Enum):
    EXCLUSIVE = "exclusive"
    FAILOVER = "failover"
    SHARED = "shared"
    KEY_SHARED = "key-shared"


@dataclass(slots=True)
class Sender:
    """A producer: what it sent, in order. Where the broker deduplicates, nothing of it may be stored twice."""

    topic: str = TOPIC
    is_deduplicated: bool = False
    is_batched: bool = False
    names: list[str] = field(default_factory=list)


class Taken(NamedTuple):
    name: str
    consumer: str
    at_s: float


@dataclass(slots=True)
class Subscription:
    kind: Kind
    consumers: list[str] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)
    # By key: a refused message of a batch comes again with all of its batch, which has one key.
    refused: Counter[str] = field(default_factory=Counter)
    # The broker's word at the end; None when it did not answer.
    backlog: int | None = None


@dataclass(slots=True)
class Disturbance:
    kind: str
    began_s: float
    ended_s: float = math.inf


class Sample(NamedTuple):
    """Who is connected, and since when, at some moment between question and answer; None: the broker did not answer."""

    asked_s: float
    answered_s: float
    members: frozenset[str] | None


class Mishap(NamedTuple):
    at_s: float
    who: str
    what: str


class History:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.senders: dict[str, Sender] = {}
        self.sent_s: dict[str, float] = {}
        # Name → when its receipt came, or what came instead of one.
        self.acknowledged: dict[str, float] = {}
        self.failed: dict[str, str] = {}
        self.subscriptions: dict[str, Subscription] = {}
        # What consumers were told that is no message.
        self.mishaps: list[Mishap] = []
        self.disturbances: list[Disturbance] = []
        self.samples: list[Sample] = []
        # From when on nobody may take anything: all was acknowledged and saved, then the broker was killed once more.
        self.settled_s = math.inf
        self._last_receipt_s = time.monotonic()
        self._longest_pause_s = 0.0

    # --- producers ------------------------------------------------------------------------------

    def next_name(self, producer: str) -> str:
        sender = self.senders[producer]
        name = f"{producer}:{len(sender.names)}"
        with self.lock:
            self.sent_s[name] = time.monotonic()
            sender.names.append(name)
        return name

    def acknowledge(self, name: str) -> None:
        with self.lock:
            now_s = time.monotonic()
            self.acknowledged[name] = now_s
            self._longest_pause_s = max(self._longest_pause_s, now_s - self._last_receipt_s)
            self._last_receipt_s = now_s

    def fail(self, name: str, error: str) -> None:
        with self.lock:
            self.failed[name] = error

    def take_pause_s(self) -> float:
        """The longest time without any receipt since this was last asked; one that has not ended yet counts."""
        with self.lock:
            longest = max(self._longest_pause_s, time.monotonic() - self._last_receipt_s)
            self._longest_pause_s = 0.0
            return longest

    # --- consumers ------------------------------------------------------------------------------

    def take(self, subscription: str, name: str, consumer: str) -> None:
        with self.lock:
            self.subscriptions[subscription].taken.append(Taken(name, consumer, time.monotonic()))

    def refuse(self, subscription: str, name: str) -> None:
        with self.lock:
            self.subscriptions[subscription].refused[key_of(name)] += 1

    def stumble(self, who: str, error: Exception) -> None:
        with self.lock:
            self.mishaps.append(Mishap(time.monotonic(), who, f"{type(error).__name__}: {error}"))

    # --- what else happened ---------------------------------------------------------------------

    @contextmanager
    def disturbed(self, kind: str) -> Iterator[None]:
        disturbance = Disturbance(kind, time.monotonic())
        with self.lock:
            self.disturbances.append(disturbance)
        try:
            yield
        finally:
            disturbance.ended_s = time.monotonic()

    def sample(self, sample: Sample) -> None:
        with self.lock:
            self.samples.append(sample)

    def counts(self) -> tuple[int, int, int]:
        with self.lock:
            taken = sum(len(each.taken) for each in self.subscriptions.values())
            return len(self.sent_s), len(self.acknowledged), taken


class Window(NamedTuple):
    """From `began_s` to `ended_s` nothing was disturbed, and nobody connected or went."""

    began_s: float
    ended_s: float


def calm_windows(samples: Sequence[Sample], disturbances: Sequence[Disturbance]) -> list[Window]:
    windows: list[Window] = []
    first: Sample | None = None
    last: Sample | None = None
    for sample in samples:
        if first is not None and (
            sample.members != first.members or _is_disturbed(first.asked_s, sample.answered_s, disturbances)
        ):
            windows += _window(first, last)
            first = None
        if first is None and sample.members is not None:
            first = sample
        last = sample
    return windows + _window(first, last)


def _window(first: Sample | None, last: Sample | None) -> list[Window]:
    if first is None or last is None or last.asked_s <= first.answered_s:
        return []
    return [Window(first.answered_s, last.asked_s)]


def _is_disturbed(began_s: float, ended_s: float, disturbances: Sequence[Disturbance]) -> bool:
    return any(each.began_s <= ended_s and each.ended_s >= began_s for each in disturbances)


def producer_of(name: str) -> str:
    return name.rpartition(":")[0]


def number_of(name: str) -> int:
    return int(name.rpartition(":")[2])


def key_of(name: str) -> str:
    return f"{producer_of(name)}/{number_of(name) % KEYS}"
