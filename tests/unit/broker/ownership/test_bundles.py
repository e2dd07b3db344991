# SPDX-License-Identifier: Apache-2.0
"""Bundles: a ring that is divided without gaps, as Apache Pulsar divides it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.broker.ownership.bundles import (
    FULL,
    Bundle,
    Bundles,
    decode_bounds,
    encode_bounds,
    equal_bounds,
    hash_of,
    parse_bundle,
    parse_range,
)
from magnetar.errors import DamagedRecord
from magnetar.names import NamespaceName, TopicName

NAMESPACE = NamespaceName("public", "default")
points = st.integers(0, FULL)


@pytest.mark.feature("F-BND-02")
def test_the_hash_is_the_crc_32_of_the_full_name() -> None:
    # The check value that defines CRC-32.
    assert hash_of("123456789") == 0xCBF43926
    topic = TopicName.parse("t")
    assert hash_of(topic) == hash_of("persistent://public/default/t")


def test_the_bounds_of_four_bundles_are_pulsars() -> None:
    assert encode_bounds(equal_bounds(4)) == {
        "boundaries": ["0x00000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff"],
        "numBundles": 4,
    }
    # Where the ring cannot be divided evenly, the last bundle is the larger one.
    assert equal_bounds(3) == (0, 0x55555555, 0xAAAAAAAA, FULL)


@given(st.sets(st.integers(1, FULL - 1), max_size=40), points)
@settings(max_examples=200)
def test_every_point_lies_in_exactly_one_bundle(inner: set[int], point: int) -> None:
    bundles = Bundles(NAMESPACE, tuple(sorted({0, *inner, FULL})))
    holding = [bundle for bundle in bundles.all() if bundle.holds(point)]
    assert holding == [bundles.at(point)]
    assert bundles.has(holding[0])
    assert parse_bundle(str(holding[0])) == holding[0]


@given(st.sets(st.integers(1, FULL - 1), max_size=10), st.lists(points, max_size=5), points)
@settings(max_examples=200)
def test_a_split_changes_one_bundle_and_loses_no_point(inner: set[int], cuts: list[int], at: int) -> None:
    bundles = Bundles(NAMESPACE, tuple(sorted({0, *inner, FULL})))
    whole = bundles.at(at)
    after = bundles.split(whole, cuts)
    assert [b for b in after.all() if not bundles.has(b)] == [
        b for b in after.all() if whole.low <= b.low and b.high <= whole.high and b != whole
    ]
    assert all(after.has(b) for b in bundles.all() if b != whole)
    assert whole.low <= after.at(at).low <= at <= after.at(at).high <= whole.high


@pytest.mark.parametrize("text", ["", "0x00000000", "x_y", "0x10_0x10", "0x20_0x10", "0x0_0x1ffffffff", "-0x1_0x5"])
def test_what_is_no_range_is_none(text: str) -> None:
    assert parse_range(NAMESPACE, text) is None


@pytest.mark.parametrize("text", ["0x00000000_0xffffffff", "a/b", "a//0x00000000_0xffffffff"])
def test_what_names_no_bundle_is_none(text: str) -> None:
    assert parse_bundle(text) is None


def test_records_are_read_leniently_and_refused_when_they_make_no_ring() -> None:
    assert decode_bounds(None, "x") is None
    assert decode_bounds({"numBundles": 0}, "x") is None
    assert decode_bounds({"numBundles": 2}, "x") == equal_bounds(2)
    assert decode_bounds({"boundaries": ["0x00000000", "0xffffffff"]}, "x") == (0, FULL)
    for damaged in (
        {"numBundles": -1},
        {"numBundles": "many"},
        {"boundaries": ["0x00000000"]},
        {"boundaries": ["0x1", "0xffffffff"]},
        {"boundaries": ["nothing"]},
        {"boundaries": [None, None]},
    ):
        with pytest.raises(DamagedRecord):
            decode_bounds(damaged, "x")


def test_a_bundle_has_topics_of_its_namespace_alone() -> None:
    bundle = Bundle(NAMESPACE, 0, FULL)
    assert bundle.has(TopicName.parse("t"))
    assert not bundle.has(TopicName.parse("persistent://public/other/t"))
    assert bundle.path == "/namespace/public/default/0x00000000_0xffffffff"
