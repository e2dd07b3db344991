# SPDX-License-Identifier: Apache-2.0
"""Key hashes are those of Apache Pulsar's Java client and broker (4.0.8)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.wire.key_hash import java_string_hash, murmur3_32

GOLDEN = [
    ("", 0, 0),
    ("a", 1009084850, 97),
    ("key1", 462881061, 3288498),
    ("key2", 1936800180, 3288499),
    ("hello world", 1586663183, 1794106052),
    ("äöü", 769542228, 226986),
    ("你好", 337357348, 652829),
    ("😀x", 1914495294, 54959989),
    ("The quick brown fox jumps over the lazy dog", 776992547, 1538055507),
]


@pytest.mark.feature("F-PROD-11", "F-SUB-13")
@pytest.mark.parametrize(("key", "murmur", "java"), GOLDEN)
def test_hashes_are_those_of_java(key: str, murmur: int, java: int) -> None:
    assert murmur3_32(key.encode()) == murmur
    assert java_string_hash(key) == java


@given(st.text(st.characters(codec=None, exclude_categories=()), max_size=20))
def test_hashes_are_never_negative(key: str) -> None:
    assert 0 <= java_string_hash(key) < 2**31
    assert 0 <= murmur3_32(key.encode("utf-8", "surrogatepass")) < 2**31
