# SPDX-License-Identifier: Apache-2.0
"""Buckets of delayed entries: the bytes of docs/formats/delayed-index.md, and what damage does."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.broker.delayed.bucket_format import (
    DueItem,
    buckets_in,
    decode_metadata,
    decode_segment,
    encode_metadata,
    encode_segment,
    property_of,
)
from magnetar.errors import DamagedRecord

SEGMENT = bytes.fromhex("0a07 08e807 1003 1801 0a07 08d00f 1003 1802")
HEAD = bytes.fromhex("0a20 0a18 0803 1214 3a300000 01000000 00000100 10000000 01000200 10d00f 18e807")


@pytest.mark.feature("B-16")
def test_the_example_of_the_page() -> None:
    segment, facts = encode_segment([(1_000, 3, 1), (2_000, 3, 2)])
    assert segment == SEGMENT
    assert encode_metadata([facts]) == HEAD
    assert list(decode_segment(SEGMENT)) == [(1_000, 3, 1), (2_000, 3, 2)]
    (read,) = decode_metadata(HEAD)
    assert (read.first_ms, read.last_ms, {key: list(bits) for key, bits in read.entries.items()}) == (
        1_000, 2_000, {3: [1, 2]},
    )  # fmt: skip


@settings(max_examples=60)
@given(
    items=st.lists(
        st.tuples(st.integers(0, 2**50), st.integers(0, 2**40), st.integers(0, 2**32 - 2)), min_size=1, max_size=50
    ).map(sorted)
)
def test_what_is_written_is_read_back(items: list[DueItem]) -> None:
    segment, facts = encode_segment(items)
    assert list(decode_segment(segment)) == items
    (read,) = decode_metadata(encode_metadata([facts]))
    assert read == facts
    assert {(key, entry) for key, bits in read.entries.items() for entry in bits} == {item[1:] for item in items}


def test_damage_is_said() -> None:
    with pytest.raises(DamagedRecord):
        decode_segment(b"\xff\xff")
    with pytest.raises(DamagedRecord):
        decode_metadata(b"\x0a\xff")
    with pytest.raises(DamagedRecord):
        decode_metadata(HEAD.replace(b"\x3a\x30", b"\x00\x00"))


def test_only_properties_of_buckets_name_buckets() -> None:
    properties = {property_of(3, 9): "17", "mine": "18", "#pulsar.internal.delayed.bucket_1_2": "no number"}
    assert buckets_in(properties) == {"#pulsar.internal.delayed.bucket_3_9": 17}
