# SPDX-License-Identifier: Apache-2.0
"""The syntax of properties files, as Java and Pulsar read it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.config.properties import Property, parse_properties


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("a=b", [("a", "b", 1)]),
        ("a = b", [("a", "b", 1)]),
        ("  a=b  ", [("a", "b", 1)]),
        ("a:b", [("a", "b", 1)]),
        ("a b c", [("a", "b c", 1)]),
        ("a", [("a", "", 1)]),
        ("a=", [("a", "", 1)]),
        ("a==b", [("a", "=b", 1)]),
        ("url=zk:host:2181/x", [("url", "zk:host:2181/x", 1)]),
        ("# a=b\n! c=d\n\n  # e\nf=g", [("f", "g", 5)]),
        ("a=b # no comment", [("a", "b # no comment", 1)]),
        ("a=1,\\\n    2,\\\n    3\nb=4", [("a", "1,2,3", 1), ("b", "4", 4)]),
        ("a=1\\\\\nb=2", [("a", "1\\", 1), ("b", "2", 2)]),
        ("a=x\\", [("a", "x", 1)]),
        ("a=1\r\nb=2\rc=3", [("a", "1", 1), ("b", "2", 2), ("c", "3", 3)]),
        ("a\\ b\\=c=d", [("a b=c", "d", 1)]),
        ("a=\\u00e9\\t\\q", [("a", "é\tq", 1)]),
        ("a=1\na=2", [("a", "1", 1), ("a", "2", 2)]),
        ("=b", [("", "=b", 1)]),
        ("", []),
    ],
)
def test_syntax(text: str, properties: list[tuple[str, str, int]]) -> None:
    assert parse_properties(text) == [Property(*expected) for expected in properties]


@settings(max_examples=300, deadline=None)
@given(st.text("ab=:# !\\\n\r\t u0", max_size=60))
def test_any_text_is_read(text: str) -> None:
    for found in parse_properties(text):
        assert 1 <= found.line <= len(text) + 1


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.from_regex(r"[a-zA-Z_.]{1,20}", fullmatch=True),
        st.from_regex(r"([!-\[\]-~]([ -\[\]-~]*[!-\[\]-~])?)?", fullmatch=True),
    )
)
def test_plain_pairs_survive(pairs: dict[str, str]) -> None:
    text = "\n".join(f"{key} = {value}  " for key, value in pairs.items())
    # The blank after the key ends it, one separator may follow; a value that starts with one keeps it.
    assert {found.key: found.value for found in parse_properties(text)} == pairs
