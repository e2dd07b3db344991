# SPDX-License-Identifier: Apache-2.0
"""Whether a bookie may start with the directories it was given (docs/formats/cookie.md).

Owns the rule: every directory carries the same cookie as the metadata, or none anywhere because the bookie is new.
Anything else is a lost, swapped or foreign directory, and the bookie must not answer for what it does not have. The
cookie's text is BookKeeper's (`wire/bookkeeper/cookie.py`).
Decides.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from magnetar.errors import BadCookie
from magnetar.wire.bookkeeper.cookie import Cookie

COOKIE_FILE_NAME: Final = "VERSION"
COOKIE_BYTES_MAX: Final = 64 * 1024


class Cookies(NamedTuple):
    """What a start checks: the cookie that the directories must carry, and the one that the metadata has, if any."""

    expected: Cookie
    registered: Cookie | None
    # How often the bookie has started, as the metadata counts it: a disk that knows of fewer was rolled back.
    boots: int = 0


def unstamped(cookies: Cookies, found: Mapping[str, Cookie | None]) -> Sequence[str]:
    """The directories that have to be given the cookie: those of a new bookie, none of an old one. BadCookie otherwise.

    `found` is what each directory carries.
    """
    expected, registered, _ = cookies
    if registered is not None and registered != expected:
        raise BadCookie(
            f"bookie {expected.bookie_id} is registered as {_said(registered)}, not as {_said(expected)}: give it the "
            "directories that it is registered with, or another bookie id. Nothing was changed"
        )
    for directory, cookie in found.items():
        if cookie is not None and cookie != expected:
            raise BadCookie(
                f"{directory} belongs to {_said(cookie)}, not to {_said(expected)}: give the data directory, bookie id "
                "and metadata store that belong together. Nothing was changed"
            )
    missing = [directory for directory, cookie in found.items() if cookie is None]
    if missing and registered is not None:
        raise BadCookie(
            f"{', '.join(missing)} carries no cookie, but bookie {expected.bookie_id} is registered: its data is lost "
            "or not mounted. Mount it; or, if it is lost for good, recover the bookie's ledgers and delete its cookie."
        )
    # Not registered, so it never served: new, or its first start ended between the directories.
    return missing


def _said(cookie: Cookie) -> str:
    directories = ", ".join((*cookie.journal_directories, *cookie.ledger_directories))
    return f"{cookie.bookie_id} of instance {cookie.instance_id or '(none)'} with {directories}"
