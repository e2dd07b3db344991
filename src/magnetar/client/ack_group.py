# SPDX-License-Identifier: Apache-2.0
"""Acknowledgements that wait to be sent together.

Individual ones are kept by position, the latest state of a batch replacing the one before; of cumulative ones only the
furthest is kept. `take` gives what one or two ACK commands carry. Also knows what is acknowledged but not sent yet, so
that a redelivery of it can be dropped.
Decides.
"""

from collections.abc import Sequence
from typing import NamedTuple

from magnetar.ids import EARLIEST, Position


class Acks(NamedTuple):
    """What to send: whole entries or parts of batches, and how far everything is done."""

    individual: list[tuple[Position, Sequence[int]]]
    cumulative: tuple[Position, Sequence[int]] | None

    def __bool__(self) -> bool:
        return bool(self.individual) or self.cumulative is not None


class AckGroup:
    __slots__ = ("_cumulative", "_cumulative_is_due", "_individual", "_size_max")

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._individual: dict[Position, Sequence[int]] = {}
        self._cumulative: tuple[Position, Sequence[int]] = (EARLIEST, ())
        self._cumulative_is_due = False

    def __len__(self) -> int:
        return len(self._individual) + self._cumulative_is_due

    def add(self, position: Position, ack_set: Sequence[int] = ()) -> bool:
        """One entry, or with an ack set what is left of a batch; true if the group is full."""
        self._individual[position] = ack_set
        return len(self._individual) >= self._size_max

    def add_cumulative(self, position: Position, ack_set: Sequence[int] = ()) -> None:
        """Everything up to here; one that lies behind an earlier one changes nothing."""
        present, present_set = self._cumulative
        if position < present or (position == present and not present_set):
            return
        self._cumulative = (position, ack_set)
        self._cumulative_is_due = True

    def covers(self, position: Position) -> bool:
        """Whether the whole entry is acknowledged already, as far as this client knows."""
        reached, ack_set = self._cumulative
        if position < reached or (position == reached and not ack_set):
            return True
        return self._individual.get(position) == ()

    def take(self) -> Acks:
        individual = list(self._individual.items())
        self._individual = {}
        cumulative = self._cumulative if self._cumulative_is_due else None
        self._cumulative_is_due = False
        return Acks(individual, cumulative)

    def forget_sent(self) -> None:
        """On another connection: what the broker was told may come again, if somebody moved the subscription back."""
        if not self._cumulative_is_due:
            self._cumulative = (EARLIEST, ())

    def reset(self) -> None:
        """After a seek: positions that were done may come again."""
        self._individual = {}
        self._cumulative = (EARLIEST, ())
        self._cumulative_is_due = False
