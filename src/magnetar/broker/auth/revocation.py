# SPDX-License-Identifier: Apache-2.0
"""Tokens that count no more: a file that an operator writes, read again and again.

A line names what is revoked: `jti:ID`, `sub:ROLE` or `sha256:DIGEST` of a token; empty lines and `#` are passed over. A
file that cannot be read leaves the last list in force: nobody gets back in because a disk is slow.
Carries.
"""

import asyncio
import hashlib
import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from magnetar.errors import BadSetting, CannotStart, NotAuthenticated
from magnetar.runtime.small_file import read_small_file

LIST_BYTES_MAX: Final = 4 * 1024 * 1024
_KINDS: Final = ("jti", "sub", "sha256")

_log = logging.getLogger(__name__)


def _marks(token: bytes, claims: Mapping[str, Any]) -> tuple[str, ...]:
    """Everything that a list may name a token by."""
    marks = [f"sha256:{hashlib.sha256(token.strip()).hexdigest()}"]
    marks += [f"{name}:{claims[name]}" for name in ("jti", "sub") if isinstance(claims.get(name), str)]
    return tuple(marks)


def parse_revoked(content: bytes) -> frozenset[str]:
    """BadSetting for a line that names nothing: a typing error must not let somebody in."""
    revoked = set()
    for number, line in enumerate(content.decode(errors="replace").splitlines(), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        kind, colon, name = text.partition(":")
        if not colon or kind not in _KINDS or not name.strip():
            raise BadSetting(f"Line {number} of the revoked tokens should be jti:ID, sub:ROLE or sha256:DIGEST")
        revoked.add(f"{kind}:{name.strip().lower() if kind == 'sha256' else name.strip()}")
    return frozenset(revoked)


class RevokedTokens:
    def __init__(self, path: str) -> None:
        self._path = path
        self._revoked = parse_revoked(read_small_file(path, LIST_BYTES_MAX)) if path else frozenset()

    def marks(self, token: bytes, claims: Mapping[str, Any]) -> tuple[str, ...]:
        """What to look for as long as a session lasts; nothing where there is no list."""
        return _marks(token, claims) if self._path else ()

    def holds(self, marks: Iterable[str]) -> bool:
        return any(mark in self._revoked for mark in marks)

    def check(self, marks: Iterable[str]) -> None:
        if self.holds(marks):
            raise NotAuthenticated("Failed to authenticate: the token was revoked")

    def reload(self) -> None:
        try:
            self._revoked = parse_revoked(read_small_file(self._path, LIST_BYTES_MAX))
        except (BadSetting, CannotStart) as error:
            _log.error("the list of revoked tokens stays as it was: %s", error)

    async def watch(self, interval_s: int) -> None:
        while self._path:
            await asyncio.sleep(interval_s)
            self.reload()
