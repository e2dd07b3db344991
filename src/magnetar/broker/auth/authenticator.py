# SPDX-License-Identifier: Apache-2.0
"""The seam of authentication: credentials in, an identity out, or NotAuthenticated.

Decides.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

# What the TLS layer tells of a client's certificate once it was verified, as `ssl` gives it.
Certificate = Mapping[str, Any]


class Credentials:
    """What a client brought, and where it comes from. Never printed: the data is a secret."""

    __slots__ = ("address", "certificate", "data")

    def __init__(self, data: bytes = b"", certificate: Certificate | None = None, address: str = "") -> None:
        self.data = data
        self.certificate = certificate
        # Empty for what was let in before and is looked at again.
        self.address = address

    def __repr__(self) -> str:
        return f"Credentials({len(self.data)} bytes, {'a' if self.certificate else 'no'} certificate)"


class Identity(NamedTuple):
    role: str
    # When the credentials run out; None: never.
    expires_ms: int | None = None
    # What a list of revoked credentials may name them by.
    marks: tuple[str, ...] = ()


class Principal(NamedTuple):
    """Whom a request is for: the role that is connected and, behind a proxy, the one that the proxy speaks for."""

    role: str
    original: str = ""

    @property
    def roles(self) -> tuple[str, ...]:
        """Every one of them must be allowed."""
        return (self.role, self.original) if self.original else (self.role,)

    def __str__(self) -> str:
        return f"{self.original!r} through {self.role!r}" if self.original else repr(self.role)


class Authenticator(Protocol):
    """One method of authentication."""

    @property
    def method(self) -> str:
        """The name that clients give in CONNECT."""

    @property
    def is_slow(self) -> bool:
        """Whether a check takes so long that it must not run on the loop."""

    def check(self, credentials: Credentials, now_ms: int) -> Identity:
        """Who this is. NotAuthenticated without a word about what was wrong that would help to guess."""
