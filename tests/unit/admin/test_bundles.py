# SPDX-License-Identifier: Apache-2.0
"""Bundles: every topic lies in exactly one, whatever the bounds."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.admin.answers import AdminRefused
from magnetar.admin.bundles import boundaries, bundle_data, bundle_of, check_bundle, is_within, parsed_bundles
from magnetar.names import NamespaceName, TopicName

NAMESPACE = NamespaceName("t", "n")


@given(st.integers(1, 300), st.text("abc-0123", min_size=1, max_size=20).filter(str.strip))
def test_a_topic_lies_in_exactly_one_bundle(count: int, name: str) -> None:
    topic = TopicName.parse(f"persistent://t/n/x{name}")
    bounds = boundaries(count)
    texts = bundle_data(bounds)["boundaries"]
    bundles = [f"{low}_{high}" for low, high in pairwise(texts)]
    assert [bundle for bundle in bundles if is_within(topic, bundle)] == [bundle_of(topic, bounds)]


def test_the_hash_is_pulsars() -> None:
    # Asked of Apache Pulsar 4.0.8: four bundles, this topic in the last.
    assert bundle_of(TopicName.parse("persistent://public/default/a"), boundaries(4)) == "0xc0000000_0xffffffff"


@pytest.mark.parametrize(
    "data",
    [
        {"boundaries": ["0x00000000"]},
        {"boundaries": ["0x00000000", "0x80000000"]},
        {"boundaries": ["junk", "0xffffffff"]},
        {"numBundles": -1},
        {"numBundles": 10**9},
    ],
)
def test_bounds_that_leave_topics_out_are_refused(data: object) -> None:
    with pytest.raises(AdminRefused):
        parsed_bundles(data)


def test_a_bundle_that_is_none_is_refused_with_the_bound_that_it_should_have() -> None:
    check_bundle(NAMESPACE, boundaries(4), "0x00000000_0x40000000")
    with pytest.raises(AdminRefused, match="Expected upper boundary of t/n/0x00000000_0x40000000"):
        check_bundle(NAMESPACE, boundaries(4), "0x00000000_0xffffffff")
    with pytest.raises(AdminRefused):
        check_bundle(NAMESPACE, boundaries(4), "../etc")
