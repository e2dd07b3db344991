# SPDX-License-Identifier: Apache-2.0
"""The cookie: who a directory belongs to (docs/formats/cookie.md).

Owns its text, which is BookKeeper's, and the rule for a start: every directory carries the same cookie as the metadata,
or none anywhere because the bookie is new. Anything else is a lost, swapped or foreign directory, and the bookie must
not answer for what it does not have.
Decides.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from magnetar.errors import BadCookie

COOKIE_FILE_NAME: Final = "VERSION"
COOKIE_BYTES_MAX: Final = 64 * 1024

_LAYOUT_VERSION: Final = 4
_FIELDS: Final = ("bookieHost", "journalDir", "ledgerDirs", "instanceId")


class Cookie(NamedTuple):
    # The bookie's id: host and port, or a name that does not depend on them.
    bookie: str
    journal_directories: tuple[str, ...]
    ledger_directories: tuple[str, ...]
    # The cluster's; a bookie never changes its cluster.
    instance: str


class Cookies(NamedTuple):
    """What a start checks: the cookie that the directories must carry, and the one that the metadata has, if any."""

    expected: Cookie
    registered: Cookie | None


def encode_cookie(cookie: Cookie) -> bytes:
    ledger_dirs = "\t".join((str(len(cookie.ledger_directories)), *cookie.ledger_directories))
    values = (cookie.bookie, ",".join(cookie.journal_directories), ledger_dirs, cookie.instance)
    lines = [f'{name}: "{_escaped(value)}"' for name, value in zip(_FIELDS, values, strict=True)]
    return "\n".join((str(_LAYOUT_VERSION), *lines, "")).encode()


def decode_cookie(data: bytes) -> Cookie:
    """BadCookie when it is none, or of another layout version."""
    lines = data.decode("utf-8", "replace").splitlines()
    if not lines or lines[0].strip() != str(_LAYOUT_VERSION):
        raise BadCookie(f"a cookie of layout version {lines[0][:40] if lines else 'none'} cannot be read")
    values: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        value = value.strip()
        if colon and len(value) >= 2 and value[0] == value[-1] == '"':
            values[name.strip()] = _unescaped(value[1:-1])
    if any(name not in values for name in _FIELDS[:3]):
        raise BadCookie(
            f"a cookie needs {', '.join(_FIELDS[:3])}; this one has {', '.join(sorted(values)) or 'nothing'}"
        )
    ledger_dirs = values["ledgerDirs"].split("\t")[1:]
    return Cookie(
        values["bookieHost"],
        tuple(values["journalDir"].split(",")),
        tuple(ledger_dirs),
        values.get("instanceId", ""),
    )


def unstamped(expected: Cookie, registered: Cookie | None, found: Mapping[str, Cookie | None]) -> Sequence[str]:
    """The directories that have to be given the cookie: all of a new bookie, none of an old one. BadCookie otherwise.

    `registered` is what the metadata has for this bookie, `found` what each directory carries.
    """
    if registered is not None and registered != expected:
        raise BadCookie(f"bookie {expected.bookie} is registered as {_said(registered)}, not as {_said(expected)}")
    for directory, cookie in found.items():
        if cookie is not None and cookie != expected:
            raise BadCookie(f"{directory} belongs to {_said(cookie)}, not to {_said(expected)}")
    missing = [directory for directory, cookie in found.items() if cookie is None]
    if missing and registered is not None:
        raise BadCookie(
            f"{', '.join(missing)} carries no cookie, but bookie {expected.bookie} is registered: its data is lost or not "
            "mounted. Mount it; or, when it is lost for good, recover the bookie's ledgers and delete its cookie."
        )
    # Not registered, so it never served: new, or its first start ended between the directories.
    return missing


def _said(cookie: Cookie) -> str:
    directories = ", ".join((*cookie.journal_directories, *cookie.ledger_directories))
    return f"{cookie.bookie} of instance {cookie.instance or '(none)'} with {directories}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t").replace("\n", "\\n")


def _unescaped(value: str) -> str:
    plain = {"t": "\t", "n": "\n"}
    out = []
    characters = iter(value)
    for character in characters:
        if character == "\\":
            following = next(characters, "")
            out.append(plain.get(following, following))
        else:
            out.append(character)
    return "".join(out)
