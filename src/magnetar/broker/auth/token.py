# SPDX-License-Identifier: Apache-2.0
"""Authentication by token: a signed JSON Web Token names a role.

The signature is checked with the configured keys and the algorithms that belong to them; what the token says of its
own algorithm chooses among those and no more. Time is passed in.
Decides.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import jwt

from magnetar.broker.auth.authenticator import Credentials, Identity
from magnetar.broker.auth.revocation import RevokedTokens
from magnetar.broker.auth.token_key import TokenKey
from magnetar.errors import NotAuthenticated

TOKEN_BYTES_MAX: Final = 16 * 1024
REFUSED: Final = "Failed to authenticate: the token is not valid"
# Signatures are PyJWT's business; times and audience are ours, with the clock that was passed in.
OPTIONS: Final = {f"verify_{claim}": False for claim in ("exp", "nbf", "iat", "aud", "iss", "sub", "jti")}


class TokenAuthenticator:
    method = "token"
    is_slow = False

    def __init__(
        self,
        keys: Sequence[TokenKey],
        *,
        role_claim: str = "sub",
        audience_claim: str = "",
        audience: str = "",
        skew_ms: int = 0,
        revoked: RevokedTokens | None = None,
    ) -> None:
        self._keys = tuple(keys)
        self._role_claim = role_claim
        self._audience_claim = audience_claim
        self._audience = audience
        self._skew_ms = skew_ms
        self._revoked = revoked or RevokedTokens("")

    def check(self, credentials: Credentials, now_ms: int) -> Identity:
        claims = self.claims(credentials.data)
        expires_ms = check_times(claims, now_ms, self._skew_ms)
        self._check_audience(claims)
        marks = self._revoked.marks(credentials.data, claims)
        self._revoked.check(marks)
        return Identity(role_of(claims, self._role_claim), expires_ms, marks)

    def claims(self, token: bytes) -> Mapping[str, Any]:
        """What a token says, once a key of ours proves that it was signed with it."""
        if not 0 < len(token) <= TOKEN_BYTES_MAX:
            raise NotAuthenticated(REFUSED)
        for key in self._keys:
            try:
                claims: Mapping[str, Any] = jwt.decode(
                    token.strip(),
                    key.key,  # type: ignore[arg-type]
                    algorithms=list(key.algorithms),
                    options=OPTIONS,  # type: ignore[arg-type]
                )
            except (jwt.PyJWTError, ValueError, RecursionError):
                continue
            return claims
        # Without a cause: an error of the library may quote the token.
        raise NotAuthenticated(REFUSED) from None

    def _check_audience(self, claims: Mapping[str, Any]) -> None:
        if not self._audience_claim:
            return
        named = claims.get(self._audience_claim)
        audiences = named if isinstance(named, list) else [named]
        if self._audience not in audiences:
            raise NotAuthenticated("Failed to authenticate: the token is for another audience")


def role_of(claims: Mapping[str, Any], claim: str) -> str:
    role = claims.get(claim)
    if isinstance(role, list) and role:
        role = role[0]
    if not isinstance(role, str) or not role:
        raise NotAuthenticated(f"Failed to authenticate: the token's claim {claim!r} names no role")
    return role


def check_times(claims: Mapping[str, Any], now_ms: int, skew_ms: int) -> int | None:
    """When the token runs out; None: never. NotAuthenticated when it has, or does not hold yet."""
    expires_ms = _moment_ms(claims, "exp")
    starts_ms = _moment_ms(claims, "nbf")
    if expires_ms is not None:
        expires_ms += skew_ms
        if now_ms >= expires_ms:
            raise NotAuthenticated("Failed to authenticate: the token has expired")
    if starts_ms is not None and now_ms + skew_ms < starts_ms:
        raise NotAuthenticated("Failed to authenticate: the token is not valid yet")
    return expires_ms


def _moment_ms(claims: Mapping[str, Any], name: str) -> int | None:
    seconds = claims.get(name)
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not abs(seconds) < 2**53:
        raise NotAuthenticated(REFUSED)
    return int(seconds * 1000)
