# SPDX-License-Identifier: Apache-2.0
"""Authentication by tokens of an identity provider (OAuth 2, OpenID Connect): issuer, audience, time and signature.

Believes only issuers that the operator named, each with the keys that were read for it; a token chooses a key by its id
and nothing else. Never fetches anything: a key that is not known is asked for by `wants_keys`.
Decides.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import jwt

from magnetar.broker.auth.authenticator import Credentials, Identity
from magnetar.broker.auth.revocation import RevokedTokens
from magnetar.broker.auth.token import OPTIONS, REFUSED, TOKEN_BYTES_MAX, check_times, role_of
from magnetar.broker.auth.token_key import TokenKey, algorithms_of
from magnetar.errors import BadSetting, NotAuthenticated

KEYS_MAX: Final = 100


def parse_keys(content: bytes) -> dict[str, TokenKey]:
    """A JSON Web Key Set by key id; keys that are for something else are passed over."""
    try:
        described = json.loads(content)["keys"]
        found = {}
        for each in described[:KEYS_MAX]:
            if each.get("kty") not in ("RSA", "EC") or each.get("use", "sig") != "sig":
                continue
            key: Any = jwt.PyJWK.from_dict(each, algorithm=None if "alg" in each else _algorithm(each)).key
            found[str(each.get("kid", ""))] = TokenKey(key, algorithms_of(key))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, jwt.PyJWTError) as error:
        raise BadSetting(f"The keys of the identity provider are not a JSON Web Key Set: {error}") from error
    if not found:
        raise BadSetting("The identity provider's key set has no RSA or EC key for signatures")
    return found


def _algorithm(key: Mapping[str, Any]) -> str:
    return {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}.get(str(key.get("crv")), "RS256")


class OpenIdAuthenticator:
    method = "token"
    is_slow = False

    def __init__(
        self,
        issuers: Sequence[str],
        audiences: Sequence[str],
        *,
        role_claim: str,
        skew_ms: int,
        revoked: RevokedTokens,
    ) -> None:
        # Keys by issuer and id.
        self.keys: dict[str, dict[str, TokenKey]] = {issuer: {} for issuer in issuers}
        self.wants_keys: dict[str, None] = {}
        self._audiences = tuple(audiences)
        self._role_claim = role_claim
        self._skew_ms = skew_ms
        self._revoked = revoked

    def check(self, credentials: Credentials, now_ms: int) -> Identity:
        token = credentials.data.strip()
        if not 0 < len(token) <= TOKEN_BYTES_MAX:
            raise NotAuthenticated(REFUSED)
        claims = self._claims(token)
        expires_ms = check_times(claims, now_ms, self._skew_ms)
        if expires_ms is None:
            raise NotAuthenticated("Failed to authenticate: the token of an identity provider must expire")
        named = claims.get("aud")
        if not any(audience in self._audiences for audience in (named if isinstance(named, list) else [named])):
            raise NotAuthenticated("Failed to authenticate: the token is for another audience")
        marks = self._revoked.marks(token, claims)
        self._revoked.check(marks)
        return Identity(role_of(claims, self._role_claim), expires_ms, marks)

    def _claims(self, token: bytes) -> Mapping[str, Any]:
        try:
            head = jwt.get_unverified_header(token)
            unproven = jwt.decode(token, options={"verify_signature": False})
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise NotAuthenticated(REFUSED) from None
        issuer, key_id = unproven.get("iss"), head.get("kid", "")
        keys = self.keys.get(issuer) if isinstance(issuer, str) else None
        if keys is None or not isinstance(key_id, str):
            raise NotAuthenticated("Failed to authenticate: the token is of another issuer")
        key = keys.get(key_id)
        if key is None:
            self.wants_keys[str(issuer)] = None
            raise NotAuthenticated(REFUSED)
        try:
            claims: Mapping[str, Any] = jwt.decode(
                token,
                key.key,  # type: ignore[arg-type]
                algorithms=list(key.algorithms),
                options=OPTIONS,  # type: ignore[arg-type]
            )
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise NotAuthenticated(REFUSED) from None
        return claims
