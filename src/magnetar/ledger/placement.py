# SPDX-License-Identifier: Apache-2.0
"""Choosing bookies for a ledger: the seam, what it may go by, and the plain random choice.

A placement sees the bookies that take writes and chooses among them; it is told of failures and may avoid the
unreliable. Never asks a bookie, never stores a choice.
Decides.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from magnetar.errors import NotEnoughBookies
from magnetar.ledger.quorum import Quorum

Item = TypeVar("Item")

# Where Pulsar puts a namespace's bookie affinity into a ledger's custom metadata.
AFFINITY_KEY: Final = "EnsemblePlacementPolicyConfig"
PRIMARY_GROUPS: Final = "isolationBookieGroups"
SECONDARY_GROUPS: Final = "secondaryIsolationBookieGroups"
ISOLATING_POLICY: Final = "org.apache.pulsar.bookie.rackawareness.IsolatedBookieEnsemblePlacementPolicy"


class Chance(Protocol):
    """The part of random.Random that choices need; it is passed in, seeded in simulation."""

    def random(self) -> float: ...

    def sample(self, population: Sequence[Item], k: int) -> list[Item]: ...


class Affinity(NamedTuple):
    """Bookie groups that a ledger must keep to: the primary ones, then the secondary. Both empty: any bookie."""

    primary: tuple[str, ...] = ()
    secondary: tuple[str, ...] = ()


ANYWHERE: Final = Affinity()


def affinity_metadata(affinity: Affinity) -> dict[str, bytes]:
    """The custom metadata by which a ledger keeps to an affinity, also in the hands of Pulsar's client and repairs."""
    if affinity == ANYWHERE:
        return {}
    properties = {PRIMARY_GROUPS: ",".join(affinity.primary), SECONDARY_GROUPS: ",".join(affinity.secondary)}
    return {AFFINITY_KEY: json.dumps({"policyClass": ISOLATING_POLICY, "properties": properties}).encode()}


def affinity_of(custom_metadata: Mapping[str, bytes]) -> Affinity:
    """The affinity that a broker wrote into a ledger's custom metadata; anywhere when it is missing or unreadable."""
    try:
        properties = json.loads(custom_metadata.get(AFFINITY_KEY, b"{}")).get("properties", {})
        primary, secondary = (
            tuple(name.strip() for name in str(properties.get(key) or "").split(",") if name.strip())
            for key in (PRIMARY_GROUPS, SECONDARY_GROUPS)
        )
    except (ValueError, AttributeError, RecursionError):
        return ANYWHERE
    return Affinity(primary, secondary)


class Placement(ABC):
    @abstractmethod
    def ensemble(
        self, quorum: Quorum, *, excluded: Collection[str] = (), affinity: Affinity = ANYWHERE
    ) -> tuple[str, ...]:
        """Distinct bookies for a new ledger; NotEnoughBookies when there are too few."""

    @abstractmethod
    def replacements(
        self,
        quorum: Quorum,
        ensemble: Sequence[str],
        failed: Sequence[int],
        *,
        excluded: Collection[str] = (),
        affinity: Affinity = ANYWHERE,
    ) -> dict[int, str]:
        """A bookie outside the ensemble for each failed member; NotEnoughBookies when there are too few."""

    @abstractmethod
    def on_bookie_failed(self, bookie: str) -> None:
        """A request to this bookie failed; placements that keep count may avoid it for a while."""


class RandomPlacement(Placement):
    """Every writable bookie is as good as any other; groups are unknown to it."""

    __slots__ = ("_chance", "_writable")

    def __init__(self, writable: Callable[[], Sequence[str]], chance: Chance) -> None:
        self._writable = writable
        self._chance = chance

    def ensemble(
        self, quorum: Quorum, *, excluded: Collection[str] = (), affinity: Affinity = ANYWHERE
    ) -> tuple[str, ...]:
        return tuple(self._draw(quorum.ensemble_size, excluded))

    def replacements(
        self,
        quorum: Quorum,
        ensemble: Sequence[str],
        failed: Sequence[int],
        *,
        excluded: Collection[str] = (),
        affinity: Affinity = ANYWHERE,
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
