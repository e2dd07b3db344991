# SPDX-License-Identifier: Apache-2.0
"""The storage shell reads what operators of BookKeeper type."""

import pytest

from magnetar.cli.bookkeeper import with_two_dashes


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("readledger -ledgerid 2 -firstentryid 0", "readledger --ledgerid 2 --firstentryid 0"),
        ("readledger -l 2 -fe 0 -le 3 -msg", "readledger -l 2 -fe 0 -le 3 --msg"),
        ("lostbookierecoverydelay -set 30", "lostbookierecoverydelay --set 30"),
        ("lostbookierecoverydelay -set=30", "lostbookierecoverydelay --set=30"),
        ("listbookies -rw -nosuch", "listbookies -rw -nosuch"),
        ("nosuch -set 30", "nosuch -set 30"),
        ("", ""),
    ],
)
@pytest.mark.feature("F-DEP-08")
def test_long_names_may_have_one_dash(typed: str, meant: str) -> None:
    assert with_two_dashes(typed.split()) == meant.split()
