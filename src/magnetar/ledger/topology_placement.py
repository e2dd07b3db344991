# SPDX-License-Identifier: Apache-2.0
"""Choosing bookies by where they stand: racks, regions, groups, free space, and who failed lately.

Every write set of an ensemble spans as many racks (and regions) as the settings ask, where there are so many; when the
rule cannot be met it is loosened step by step, or refused if it is enforced. The search tries candidates in random
order, heavier ones earlier, and visits a bounded number of arrangements, so it always ends.
Decides.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from magnetar.config.ledger import PlacementSettings
from magnetar.errors import NotEnoughBookies
from magnetar.ledger.placement import ANYWHERE, Affinity, Chance, Placement
from magnetar.ledger.quarantine import Quarantine
from magnetar.ledger.quorum import Quorum

ARRANGEMENTS_MAX: Final = 2_000

_log = logging.getLogger(__name__)


class BookiePlace(NamedTuple):
    """Where a writable bookie stands. An unknown rack is one rack of its own kind, as BookKeeper's default rack."""

    rack: str = "/default-rack"
    region: str = "/default-region"
    group: str = "default"
    # 0: not known, counts as the median of those that are.
    free_bytes: int = 0


class Spread(NamedTuple):
    """How many racks and regions a write set must touch."""

    racks: int
    regions: int


class TopologyPlacement(Placement):
    __slots__ = (
        "_chance",
        "_is_health_checked",
        "_now_ms",
        "_places",
        "_quarantine",
        "_settings",
        "choices",
        "choices_loosened",
    )

    def __init__(
        self,
        places: Callable[[], Mapping[str, BookiePlace]],
        chance: Chance,
        now_ms: Callable[[], float],
        settings: PlacementSettings,
        is_health_checked: Callable[[], bool] = lambda: True,
    ) -> None:
        self._places = places
        self._is_health_checked = is_health_checked
        self._chance = chance
        self._now_ms = now_ms
        self._settings = settings
        self._quarantine = Quarantine(settings, chance.random)
        # For metrics: how often bookies were chosen, and how often fewer racks or regions had to do.
        self.choices = 0
        self.choices_loosened = 0

    def ensemble(
        self, quorum: Quorum, *, excluded: Collection[str] = (), affinity: Affinity = ANYWHERE
    ) -> tuple[str, ...]:
        return self._chosen(quorum, [None] * quorum.ensemble_size, excluded, affinity)

    def replacements(
        self,
        quorum: Quorum,
        ensemble: Sequence[str],
        failed: Sequence[int],
        *,
        excluded: Collection[str] = (),
        affinity: Affinity = ANYWHERE,
    ) -> dict[int, str]:
        kept = [None if i in failed else bookie for i, bookie in enumerate(ensemble)]
        chosen = self._chosen(quorum, kept, [*ensemble, *excluded], affinity)
        return {member: chosen[member] for member in failed}

    def on_bookie_failed(self, bookie: str) -> None:
        if self._is_health_checked():
            self._quarantine.on_failed(bookie, self._now_ms())
        self._quarantine.forget_absent(frozenset(self._places()))

    # --- candidates ---------------------------------------------------------------------------

    def _chosen(
        self, quorum: Quorum, kept: list[str | None], excluded: Collection[str], affinity: Affinity
    ) -> tuple[str, ...]:
        places = self._places()
        unwanted = frozenset(excluded)
        resting = self._quarantine.bookies(self._now_ms()) if self._is_health_checked() else []
        needed = kept.count(None)
        found = 0
        for groups in dict.fromkeys((affinity.primary, (*affinity.primary, *affinity.secondary))):
            allowed = [b for b in sorted(places) if b not in unwanted and (not groups or places[b].group in groups)]
            for candidates in ([b for b in allowed if b not in resting], allowed):
                found = max(found, len(candidates))
                if len(candidates) < needed:
                    continue
                arranged = self._arranged(quorum, kept, self._in_order(candidates, places), places)
                if arranged is not None:
                    return arranged
        rule = " that span the racks and regions demanded" if self._settings.racks_enforced else ""
        raise NotEnoughBookies(f"{needed} bookies{rule} are needed; {found} could be chosen from.")

    def _in_order(self, candidates: list[str], places: Mapping[str, BookiePlace]) -> list[str]:
        """A random order in which a bookie with twice the weight comes first twice as often."""
        known = sorted(places[bookie].free_bytes for bookie in candidates if places[bookie].free_bytes > 0)
        if not self._settings.disk_weighted or not known:
            return self._chance.sample(candidates, len(candidates))
        median = known[len(known) // 2]
        weight_max = median * self._settings.weight_max_ratio

        def key(bookie: str) -> float:
            weight = min(places[bookie].free_bytes or median, weight_max) / weight_max
            return float(self._chance.random() ** (1.0 / max(weight, 1e-6)))

        return sorted(candidates, key=key, reverse=True)

    # --- arrangement --------------------------------------------------------------------------

    def _arranged(
        self, quorum: Quorum, kept: list[str | None], candidates: list[str], places: Mapping[str, BookiePlace]
    ) -> tuple[str, ...] | None:
        standing = [places[bookie] for bookie in (*candidates, *(b for b in kept if b is not None)) if bookie in places]
        for spread in self._spreads(quorum, standing):
            search = _Search(quorum, kept, candidates, places, spread)
            if search.fill():
                if any(place.rack != BookiePlace().rack for place in standing):
                    self._count(quorum, spread)
                return tuple(bookie for bookie in search.members if bookie is not None)
            if self._settings.racks_enforced:
                return None
        return None

    def _count(self, quorum: Quorum, spread: Spread) -> None:
        """Where racks are known, a choice below the rule is never silent."""
        settings = self._settings
        racks = settings.racks_per_write_quorum_min if settings.rack_aware else 1
        regions = settings.regions_per_write_quorum_min if settings.region_aware else 1
        wanted = Spread(min(racks, quorum.write_quorum), min(regions, quorum.write_quorum))
        self.choices += 1
        if spread.racks < wanted.racks or spread.regions < wanted.regions:
            self.choices_loosened += 1
            _log.warning("copies are spread over %s instead of %s: there are no bookies for more", spread, wanted)

    def _spreads(self, quorum: Quorum, standing: list[BookiePlace]) -> Iterator[Spread]:
        """From what the settings ask down to nothing: racks are given up before regions."""
        racks = self._settings.racks_per_write_quorum_min if self._settings.rack_aware else 1
        regions = self._settings.regions_per_write_quorum_min if self._settings.region_aware else 1
        if not self._settings.racks_enforced:
            racks = min(racks, len({place.rack for place in standing}))
            regions = min(regions, len({place.region for place in standing}))
        racks, regions = min(racks, quorum.write_quorum), min(regions, quorum.write_quorum)
        for region_count in range(regions, 0, -1):
            for rack_count in range(racks, 0, -1):
                yield Spread(rack_count, region_count)


class _Search:
    """Fill the empty members so that every write set spans what it must: depth first, bounded."""

    __slots__ = ("_candidates", "_left", "_places", "_quorum", "_spread", "members")

    def __init__(
        self,
        quorum: Quorum,
        kept: list[str | None],
        candidates: list[str],
        places: Mapping[str, BookiePlace],
        spread: Spread,
    ) -> None:
        self.members = list(kept)
        self._quorum = quorum
        self._candidates = candidates
        self._places = places
        self._spread = spread
        self._left = ARRANGEMENTS_MAX

    def fill(self) -> bool:
        if None not in self.members:
            return True
        member = self.members.index(None)
        for bookie in self._candidates:
            if bookie in self.members:
                continue
            self._left -= 1
            if self._left < 0:
                break
            self.members[member] = bookie
            if self._is_allowed(member) and self.fill():
                return True
        self.members[member] = None
        return False

    def _is_allowed(self, member: int) -> bool:
        """Whether each write set with this member spans enough, or still has empty members that may bring it about."""
        size = self._quorum.ensemble_size
        for start in range(member - self._quorum.write_quorum + 1, member + 1):
            window = [self.members[i % size] for i in range(start, start + self._quorum.write_quorum)]
            empty = window.count(None)
            places = [self._places.get(bookie, BookiePlace()) for bookie in window if bookie is not None]
            if len({place.rack for place in places}) + empty < self._spread.racks:
                return False
            if len({place.region for place in places}) + empty < self._spread.regions:
                return False
        return True
