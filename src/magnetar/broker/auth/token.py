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
from magnetar.broker.auth.token_key import TokenKey
from magnetar.errors import NotAuthenticated

TOKEN_BYTES_MAX: Final = 16 * 1024
_REFUSED: Final = "Failed to authenticate: the token is not valid"
# Signatures are PyJWT's business; times and audience are ours, with the clock that was passed in.
_OPTIONS: Final = {f"verify_{claim}": False for claim in ("exp", "nbf", "iat", "aud", "iss", "sub", "jti")}


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
    ) -> None:
        self._keys = tuple(keys)
        self._role_claim = role_claim
        self._audience_claim = audience_claim
        self._audience = audience
        self._skew_ms = skew_ms

    def check(self, credentials: Credentials, now_ms: int) -> Identity:
        claims = self.claims(credentials.data)
        expires_ms = _moment_ms(claims, "exp")
        starts_ms = _moment_ms(claims, "nbf")
        if expires_ms is not None:
            expires_ms += self._skew_ms
            if now_ms >= expires_ms:
                raise NotAuthenticated("Failed to authenticate: the token has expired")
        if starts_ms is not None and now_ms + self._skew_ms < starts_ms:
            raise NotAuthenticated("Failed to authenticate: the token is not valid yet")
        self._check_audience(claims)
        return Identity(self._role(claims), expires_ms)

    def claims(self, token: bytes) -> Mapping[str, Any]:
        """What a token says, once a key of ours proves that it was signed with it."""
        if not 0 < len(token) <= TOKEN_BYTES_MAX:
            raise NotAuthenticated(_REFUSED)
        for key in self._keys:
            try:
                claims: Mapping[str, Any] = jwt.decode(
                    token.strip(),
                    key.key,  # type: ignore[arg-type]
                    algorithms=list(key.algorithms),
                    options=_OPTIONS,  # type: ignore[arg-type]
                )
            except (jwt.PyJWTError, ValueError, RecursionError):
                continue
            return claims
        # Without a cause: an error of the library may quote the token.
        raise NotAuthenticated(_REFUSED) from None

    def _check_audience(self, claims: Mapping[str, Any]) -> None:
        if not self._audience_claim:
            return
        named = claims.get(self._audience_claim)
        audiences = named if isinstance(named, list) else [named]
        if self._audience not in audiences:
            raise NotAuthenticated("Failed to authenticate: the token is for another audience")

    def _role(self, claims: Mapping[str, Any]) -> str:
        role = claims.get(self._role_claim)
        if isinstance(role, list) and role:
            role = role[0]
        if not isinstance(role, str) or not role:
            raise NotAuthenticated(f"Failed to authenticate: the token's claim {self._role_claim!r} names no role")
        return role


def _moment_ms(claims: Mapping[str, Any], name: str) -> int | None:
    seconds = claims.get(name)
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not abs(seconds) < 2**53:
        raise NotAuthenticated(_REFUSED)
    return int(seconds * 1000)
