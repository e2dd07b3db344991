# SPDX-License-Identifier: Apache-2.0
"""Where a bundle is cut, and when it should be.

Each algorithm answers with points inside the bundle, or with none when a cut would do nothing.
Decides.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from magnetar.broker.ownership.bundles import Bundle
from magnetar.broker.ownership.load_data import BundleLoad
from magnetar.config.balance import BalanceSettings

RANGE: Final = "range_equally_divide"
TOPIC_COUNT: Final = "topic_count_equally_divide"
POSITIONS: Final = "specified_positions_divide"
FLOW: Final = "flow_or_qps_equally_divide"


class TopicPlace(NamedTuple):
    """A topic's place on the ring and what passes through it."""

    point: int
    bytes: float = 0.0
    messages: float = 0.0


def split_points(
    algorithm: str, bundle: Bundle, topics: Sequence[TopicPlace] = (), positions: Sequence[int] = ()
) -> list[int]:
    """The points at which to cut, sorted. KeyError for an algorithm that there is not."""
    inside = sorted((topic for topic in topics if bundle.holds(topic.point)), key=lambda topic: topic.point)
    points = _ALGORITHMS[algorithm](bundle, inside, positions)
    return sorted({point for point in points if bundle.low < point < bundle.high})


def is_algorithm(name: str) -> bool:
    return name in _ALGORITHMS


def _halves(bundle: Bundle, topics: Sequence[TopicPlace], positions: Sequence[int]) -> list[int]:
    return [bundle.low + (bundle.high - bundle.low) // 2]


def _topic_halves(bundle: Bundle, topics: Sequence[TopicPlace], positions: Sequence[int]) -> list[int]:
    """Between the two topics in the middle; topics of the same hash stay together."""
    points = [topic.point for topic in topics]
    return _between(bundle, points, lambda index: abs(2 * index - len(points)))


def _given(bundle: Bundle, topics: Sequence[TopicPlace], positions: Sequence[int]) -> list[int]:
    return list(positions)


def _flow_halves(bundle: Bundle, topics: Sequence[TopicPlace], positions: Sequence[int]) -> list[int]:
    """Where the two parts carry most nearly the same: of bytes, or of messages when no bytes are known."""
    loads = [topic.bytes for topic in topics]
    if not any(loads):
        loads = [topic.messages for topic in topics]
    total = sum(loads)
    if total <= 0:
        return []
    sums = [0.0]
    for load in loads:
        sums.append(sums[-1] + load)
    points = [topic.point for topic in topics]
    return _between(bundle, points, lambda index: abs(2 * sums[index] - total))


def _between(bundle: Bundle, points: Sequence[int], cost: Callable[[int], float]) -> list[int]:
    """The middle between two neighbours, at the cheapest place where a cut lies between them and inside the bundle."""
    cuts: dict[int, int] = {}
    for index in range(1, len(points)):
        low, high = points[index - 1], points[index]
        # A bundle holds its lower bound: the cut lies above the one and not above the other.
        cut = low + (high - low + 1) // 2
        # The ring's last point is its last bundle's, which cannot end before it begins.
        if low < high and cut < bundle.high:
            cuts[index] = cut
    if not cuts:
        return []
    return [cuts[min(cuts, key=lambda index: (cost(index), index))]]


_ALGORITHMS: Final[Mapping[str, Callable[[Bundle, Sequence[TopicPlace], Sequence[int]], list[int]]]] = {
    RANGE: _halves,
    TOPIC_COUNT: _topic_halves,
    POSITIONS: _given,
    FLOW: _flow_halves,
}


def reason_to_split(load: BundleLoad, bundles_of_namespace: int, settings: BalanceSettings) -> str | None:
    """Why a bundle is too large, in a few words; None when it is not, or when its namespace has bundles enough."""
    if bundles_of_namespace >= settings.bundles_per_namespace_max or load.topics < 2:
        return None
    for value, limit, noun in (
        (load.topics, settings.bundle_topics_max, "topics"),
        (load.producers + load.consumers, settings.bundle_sessions_max, "producers and consumers"),
        (load.messages, settings.bundle_messages_per_s_max, "messages a second"),
        (load.bytes, settings.bundle_bytes_per_s_max, "bytes a second"),
    ):
        if value > limit:
            return f"{value:.0f} {noun} are more than {limit}"
    return None
