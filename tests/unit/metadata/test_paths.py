# SPDX-License-Identifier: Apache-2.0
"""Paths: what is allowed, what lies above and below."""

import pytest

from magnetar.errors import BadPath
from magnetar.metadata.paths import check_path, child_of, is_within, lineage, name_of, parent_of


@pytest.mark.parametrize("path", ["/", "/a", "/a/b.c", "/.a", "/a/...", "/ü", "/a b", "/%2F"])
def test_allowed(path: str) -> None:
    check_path(path, 100)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", "start with"),
        ("a", "start with"),
        ("/a/", "empty part"),
        ("//a", "empty part"),
        ("/.", "not names"),
        ("/a/../b", "not names"),
        ("/a\n", "control"),
        ("/" + "ü" * 50, "longer than 100"),
        ("/" + "a" * 100, "longer than 100"),
    ],
)
def test_refused_with_the_reason(path: str, why: str) -> None:
    with pytest.raises(BadPath, match=why):
        check_path(path, 100)


def test_above_and_below() -> None:
    assert parent_of("/a/b") == "/a"
    assert parent_of("/a") == parent_of("/") == "/"
    assert name_of("/a/b") == "b"
    assert child_of("/", "a") == "/a"
    assert child_of("/a", "b") == "/a/b"
    assert lineage("/a/b") == ["/a/b", "/a", "/"]
    assert is_within("/a/b", "/a")
    assert is_within("/a", "/")
    assert is_within("/a", "/a")
    assert not is_within("/ab", "/a")
