# SPDX-License-Identifier: Apache-2.0
"""Cookies: Apache BookKeeper's bytes, old layouts read, damage named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.errors import DamagedRecord
from magnetar.wire.bookkeeper import cookie
from magnetar.wire.bookkeeper.cookie import Cookie

# As Apache BookKeeper 4.17.2 wrote it.
GOLDEN = rb"""5
bookieHost: "h1:3181"
journalDir: "/j1,/j2"
ledgerDirs: "2\t/l1\t/l2"
instanceId: "inst"
indexDirs: "1\t/i \303\244"
"""
FULL = Cookie("h1:3181", ("/j1", "/j2"), ("/l1", "/l2"), "inst", ("/i ä",))
PATHS = st.lists(st.text("abc/ ä\"'\\", min_size=1, max_size=6), min_size=1, max_size=3).map(tuple)


@pytest.mark.feature("F-BKS-28")
def test_bytes_are_those_of_apache_bookkeeper() -> None:
    assert cookie.encode(FULL) == GOLDEN
    assert cookie.decode(GOLDEN) == FULL


@given(
    st.builds(
        Cookie, st.text("abc:1", min_size=1), PATHS, PATHS, st.none() | st.text("ab-", min_size=1), st.none() | PATHS
    )
)
def test_any_cookie_comes_back(bookie: Cookie) -> None:
    assert cookie.decode(cookie.encode(bookie)) == bookie


def test_older_layouts_are_read() -> None:
    assert cookie.decode(b"3\nh1:3181\n/j1\n2\t/l1\t/l2\n") == Cookie("h1:3181", ("/j1",), ("/l1", "/l2"))
    assert cookie.decode(b"4\n" + GOLDEN.partition(b"\n")[2]) == FULL
    assert cookie.decode(GOLDEN + b"later: 5\n") == FULL


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "layout version"),
        (b"\xff", "layout version"),
        (b"five\n", "layout version"),
        (b"2\nx", "oldest known"),
        (b"3\nh1\n/j", "2 lines"),
        (b"5\nbookieHost: ", "cannot be parsed"),
        (b"5\nbookieHost: 'h'", "lacks journalDir, ledgerDirs"),
    ],
)
def test_damage_is_named(data: bytes, text: str) -> None:
    with pytest.raises(DamagedRecord, match=text):
        cookie.decode(data)
