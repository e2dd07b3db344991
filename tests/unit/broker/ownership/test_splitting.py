# SPDX-License-Identifier: Apache-2.0
"""Where bundles are cut, against brute force."""

from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from magnetar.broker.ownership.bundles import FULL, Bundle
from magnetar.broker.ownership.load_data import BundleLoad
from magnetar.broker.ownership.splitting import (
    FLOW,
    POSITIONS,
    RANGE,
    TOPIC_COUNT,
    TopicPlace,
    is_algorithm,
    reason_to_split,
    split_points,
)
from magnetar.config.balance import BalanceSettings
from magnetar.names import NamespaceName

WHOLE = Bundle(NamespaceName("public", "default"), 0, FULL)
topics = st.lists(
    st.builds(TopicPlace, st.integers(0, FULL), st.integers(0, 1000).map(float), st.integers(0, 10).map(float)),
    max_size=30,
    unique_by=lambda topic: topic.point,
)


@pytest.mark.feature("F-BND-17")
def test_a_range_is_halved_as_pulsar_does() -> None:
    assert split_points(RANGE, WHOLE) == [0x7FFFFFFF]
    assert split_points(RANGE, WHOLE._replace(high=0x40000000)) == [0x20000000]
    assert split_points(RANGE, WHOLE._replace(low=5, high=6)) == []


def parts(places: list[TopicPlace]) -> list[int]:
    """Of each way to cut topics of different points into two bundles, the first point of the upper one.

    A bundle of the ring's last point alone there cannot be.
    """
    points = sorted(place.point for place in places)
    return [point for below, point in pairwise(points) if below + 1 < FULL]


@given(topics)
@settings(max_examples=200)
def test_topics_are_halved(places: list[TopicPlace]) -> None:
    cuts = split_points(TOPIC_COUNT, WHOLE, places)

    def difference(cut: int) -> int:
        return abs(len(places) - 2 * sum(place.point < cut for place in places))

    if not parts(places):
        assert cuts == []
        return
    (cut,) = cuts
    assert difference(cut) == min(map(difference, parts(places)))


def test_the_last_point_of_the_ring_is_no_bundle_of_its_own() -> None:
    last = [TopicPlace(FULL - 1, 1.0), TopicPlace(FULL, 5.0)]
    for algorithm in (TOPIC_COUNT, FLOW):
        assert split_points(algorithm, WHOLE, last) == []
        # Another cut is worse, and there is one.
        assert split_points(algorithm, WHOLE, [TopicPlace(7, 1.0), *last]) == [7 + (FULL - 7) // 2]


@pytest.mark.feature("F-PRB-05", "F-BND-18")
@given(topics)
@example([TopicPlace(FULL - 1), TopicPlace(FULL, 0.0, 1.0)])
@settings(max_examples=200)
def test_flow_is_halved_as_well_as_can_be(places: list[TopicPlace]) -> None:
    cuts = split_points(FLOW, WHOLE, places)
    weights = [place.bytes for place in places]
    if not any(weights):
        weights = [place.messages for place in places]
    loads = dict(zip((place.point for place in places), weights, strict=True))
    if not parts(places) or sum(weights) == 0:
        assert cuts == []
        return

    def difference(cut: int) -> float:
        return abs(sum(loads.values()) - 2 * sum(load for point, load in loads.items() if point < cut))

    (cut,) = cuts
    assert any(point < cut for point in loads)
    assert any(point >= cut for point in loads)
    assert difference(cut) == min(map(difference, parts(places)))


def test_positions_are_taken_that_lie_inside() -> None:
    bundle = WHOLE._replace(low=100, high=200)
    assert split_points(POSITIONS, bundle, (), (50, 100, 180, 150, 150, 200, 500)) == [150, 180]
    assert split_points(POSITIONS, bundle, (), ()) == []


def test_topics_of_one_hash_cannot_be_put_apart() -> None:
    assert split_points(TOPIC_COUNT, WHOLE, [TopicPlace(7), TopicPlace(7)]) == []


def test_unknown_algorithms_are_known_as_such() -> None:
    assert is_algorithm(RANGE)
    assert not is_algorithm("by_taste")


@pytest.mark.feature("F-BND-15")
@pytest.mark.parametrize(
    ("load", "word"),
    [
        (BundleLoad(topics=1001), "topics"),
        (BundleLoad(topics=2, producers=600, consumers=401), "producers and consumers"),
        (BundleLoad(messages_in=20_000, messages_out=10_001, topics=2), "messages a second"),
        (BundleLoad(bytes_in=60 * 2**20, bytes_out=41 * 2**20, topics=2), "bytes a second"),
    ],
)
def test_a_bundle_is_split_for_each_reason(load: BundleLoad, word: str) -> None:
    assert word in (reason_to_split(load, 4, BalanceSettings()) or "")
    # Not when its namespace has bundles enough, nor when it holds a single topic.
    assert reason_to_split(load, 128, BalanceSettings()) is None
    assert reason_to_split(load._replace(topics=1), 4, BalanceSettings()) is None


def test_a_bundle_at_its_limits_is_left_whole() -> None:
    at_limits = BundleLoad(30_000, 0, 100 * 2**20, 0, 1000, 500, 500)
    assert reason_to_split(at_limits, 4, BalanceSettings()) is None
