# SPDX-License-Identifier: Apache-2.0
"""What a sink's log says: which staged messages are a batch's, and whether they are published.

The first manifest for a batch decides; a replay that finds one ignores what it staged itself. Sequence ids belong to a
target and come from the order of the staged messages, never from the order of rows or from Spark's partitions. The
last record alone holds everything that the next batch needs.
Decides.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from magnetar.errors import BadSetting, DamagedRecord
from magnetar.spark.offsets import Place

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class StagedAttempt:
    """What one task attempt staged: under which producer name, where, how much for each target, and its checksum."""

    producer: str
    first: Place
    last: Place
    counts: Mapping[str, int]
    checksum: int

    @property
    def messages(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class Target:
    """Where a batch's messages go: the first sequence id, how many, and the topic's end when it was decided."""

    first_sequence: int
    messages: int
    end: Place


@dataclass(frozen=True, slots=True)
class Manifest:
    # Counts the records of a log; of two with the same number the first is true and the other was never written.
    serial: int
    batch: int
    is_done: bool
    attempts: tuple[StagedAttempt, ...] = ()
    targets: Mapping[str, Target] = field(default_factory=dict)
    # The next sequence id of every target that this sink has ever written to.
    next_sequences: Mapping[str, int] = field(default_factory=dict)
    # The query whose batch it is; empty where it is not known.
    query: str = ""

    def to_bytes(self) -> bytes:
        written = {
            "format": FORMAT,
            "serial": self.serial,
            "batch": self.batch,
            "state": "done" if self.is_done else "decided",
            "attempts": [
                [one.producer, str(one.first), str(one.last), dict(sorted(one.counts.items())), one.checksum]
                for one in self.attempts
            ],
            "targets": {
                topic: [one.first_sequence, one.messages, str(one.end)] for topic, one in sorted(self.targets.items())
            },
            "next": dict(sorted(self.next_sequences.items())),
            "query": self.query,
        }
        return json.dumps(written, separators=(",", ":")).encode()

    @staticmethod
    def from_bytes(data: bytes) -> "Manifest":
        """Raises DamagedRecord."""
        try:
            found = json.loads(data)
            if found["format"] != FORMAT:
                raise DamagedRecord(f"a sink's log has format {found['format']}; this version reads {FORMAT}")
            return Manifest(
                int(found["serial"]),
                int(found["batch"]),
                found["state"] == "done",
                tuple(
                    StagedAttempt(name, Place.parse(first), Place.parse(last), counts, checksum)
                    for name, first, last, counts, checksum in found["attempts"]
                ),
                {
                    topic: Target(first, messages, Place.parse(end))
                    for topic, (first, messages, end) in found["targets"].items()
                },
                found["next"],
                str(found.get("query", "")),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, BadSetting) as error:
            raise DamagedRecord(f"a record of a sink's log cannot be read: {error}") from error

    def done(self) -> "Manifest":
        return Manifest(self.serial + 1, self.batch, True, (), {}, self.next_sequences, self.query)

    def check_follower(self, batch: int, query: str) -> None:
        """Raises DamagedRecord for a batch that comes neither again nor next: its checkpoint is not this sink's."""
        if self.query and query and query != self.query:
            raise DamagedRecord(
                f"this sink is that of query {self.query}, and query {query} has another checkpoint, or lost it. "
                "Restore the checkpoint, or give the query another sinkId"
            )
        if batch < self.batch:
            raise DamagedRecord(
                f"this sink has decided batch {self.batch}, and batch {batch} comes: the query's checkpoint was lost "
                "or set back. Restore it, or give the query another sinkId"
            )

    @property
    def first(self) -> Place:
        return min((one.first for one in self.attempts), key=lambda place: place.order)

    @property
    def last(self) -> Place:
        return max((one.last for one in self.attempts), key=lambda place: place.order)


def following(last: Manifest | None, record: Manifest) -> Manifest:
    """Which of two is true after a record was read: it, if it follows; else the last one still."""
    return record if last is None or record.serial == last.serial + 1 else last


def decide(
    previous: Manifest | None,
    batch: int,
    attempts: Sequence[StagedAttempt],
    ends: Mapping[str, Place],
    query: str = "",
) -> Manifest:
    """The manifest of a new batch. `ends`: where each target ends now."""
    used = tuple(sorted((one for one in attempts if one.messages), key=lambda one: one.producer))
    totals: dict[str, int] = {}
    for one in used:
        for topic, count in one.counts.items():
            totals[topic] = totals.get(topic, 0) + count
    next_sequences = dict(previous.next_sequences) if previous is not None else {}
    targets = {}
    for topic in sorted(totals):
        first = next_sequences.get(topic, 0)
        targets[topic] = Target(first, totals[topic], ends[topic])
        next_sequences[topic] = first + totals[topic]
    serial = 0 if previous is None else previous.serial + 1
    return Manifest(serial, batch, False, used, targets, next_sequences, query)
