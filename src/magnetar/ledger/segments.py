# SPDX-License-Identifier: Apache-2.0
"""Which bookies hold which entries: a ledger's segments, ordered by first entry, and how they may change.

A segment holds from its first entry up to the next one's. Values only: every change gives a new tuple. Never touches
metadata; `record.py` carries the segments, `catalog.py` stores them.

Invariant: at least one segment; first entries rise strictly, from 0; every ensemble has distinct members.
Decides.
"""

from bisect import bisect_right
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple


class Segment(NamedTuple):
    first_entry: int
    ensemble: tuple[str, ...]


Segments = tuple[Segment, ...]


def segment_at(segments: Segments, entry_id: int) -> Segment:
    """The segment with the greatest first entry not after entry_id."""
    return segments[segment_index(segments, entry_id)]


def segment_index(segments: Segments, entry_id: int) -> int:
    return max(bisect_right(segments, entry_id, key=lambda segment: segment.first_entry) - 1, 0)


def last_entry_of(segments: Segments, index: int, ledger_last: int) -> int:
    """The last entry that segment `index` holds in a ledger that ends at ledger_last."""
    if index + 1 < len(segments):
        return min(segments[index + 1].first_entry - 1, ledger_last)
    return ledger_last


def with_ensemble(segments: Segments, first_entry: int, ensemble: tuple[str, ...]) -> Segments:
    """From first_entry on these bookies. The last segment is replaced when it begins there: it holds nothing yet."""
    last = segments[-1]
    assert first_entry >= last.first_entry, f"entry {first_entry} lies before segment {last.first_entry}"
    kept = segments[:-1] if last.first_entry == first_entry else segments
    return (*kept, Segment(first_entry, ensemble))


def with_replacements(segments: Segments, first_entry: int, replacements: Mapping[int, str]) -> Segments:
    """In the segment that begins at first_entry other bookies hold what these members held (after a copy)."""
    changed = []
    for segment in segments:
        if segment.first_entry == first_entry:
            ensemble = tuple(replacements.get(i, bookie) for i, bookie in enumerate(segment.ensemble))
            assert len(set(ensemble)) == len(ensemble), f"one bookie twice in {ensemble}"
            changed.append(Segment(first_entry, ensemble))
        else:
            changed.append(segment)
    return tuple(changed)


def without_empty_tail(segments: Segments, last_entry: int) -> Segments:
    """What a ledger closed at last_entry keeps: no segment that begins after its end, except the first."""
    return tuple(segment for i, segment in enumerate(segments) if i == 0 or segment.first_entry <= last_entry)


def check_segments(segments: Segments, ensemble_size: int) -> None:
    """AssertionError when these cannot be a ledger's segments."""
    assert segments, "a ledger has a segment"
    assert segments[0].first_entry == 0, "segments begin at entry 0"
    for before, after in pairwise(segments):
        assert before.first_entry < after.first_entry, "first entries rise"
    for segment in segments:
        assert len(segment.ensemble) == ensemble_size == len(set(segment.ensemble)), "distinct members"
