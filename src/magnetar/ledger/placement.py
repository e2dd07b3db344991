# SPDX-License-Identifier: Apache-2.0
"""Choosing bookies for a ledger: the seam, and the plain random choice.

A placement sees the bookies that take writes and chooses among them; it is told of failures and may avoid the
unreliable. Never asks a bookie, never stores a choice.
Decides.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Protocol, TypeVar

from magnetar.errors import NotEnoughBookies
from magnetar.ledger.quorum import Quorum

Item = TypeVar("Item")


class Chance(Protocol):
    """The part of random.Random that choices need; it is passed in, seeded in simulation."""

    def random(self) -> float: ...

    def sample(self, population: Sequence[Item], k: int) -> list[Item]: ...


class Placement(ABC):
    @abstractmethod
    def ensemble(self, quorum: Quorum, *, excluded: Collection[str] = ()) -> tuple[str, ...]:
        """Distinct bookies for a new ledger; NotEnoughBookies when there are too few."""

    @abstractmethod
    def replacements(
        self, quorum: Quorum, ensemble: Sequence[str], failed: Sequence[int], *, excluded: Collection[str] = ()
    ) -> dict[int, str]:
        """A bookie outside the ensemble for each failed member; NotEnoughBookies when there are too few."""

    @abstractmethod
    def on_bookie_failed(self, bookie: str) -> None:
        """A request to this bookie failed; placements that keep count may avoid it for a while."""


class RandomPlacement(Placement):
    """Every writable bookie is as good as any other."""

    __slots__ = ("_chance", "_writable")

    def __init__(self, writable: Callable[[], Sequence[str]], chance: Chance) -> None:
        self._writable = writable
        self._chance = chance

    def ensemble(self, quorum: Quorum, *, excluded: Collection[str] = ()) -> tuple[str, ...]:
        return tuple(self._draw(quorum.ensemble_size, excluded))

    def replacements(
        self, quorum: Quorum, ensemble: Sequence[str], failed: Sequence[int], *, excluded: Collection[str] = ()
    ) -> dict[int, str]:
        chosen = self._draw(len(failed), [*ensemble, *excluded])
        return dict(zip(failed, chosen, strict=True))

    def on_bookie_failed(self, bookie: str) -> None:
        """Nothing is kept: the next choice may be the same."""

    def _draw(self, count: int, excluded: Collection[str]) -> list[str]:
        unwanted = frozenset(excluded)
        candidates = sorted(bookie for bookie in self._writable() if bookie not in unwanted)
        if len(candidates) < count:
            raise NotEnoughBookies(f"{count} bookies are needed, {len(candidates)} can be chosen: {candidates}.")
        return self._chance.sample(candidates, count)
