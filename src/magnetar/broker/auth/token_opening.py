# SPDX-License-Identifier: Apache-2.0
"""From settings to the authentication by tokens: our own and those of identity providers, with their keys.

Whatever an operator wrote and we cannot use stops the start.
Assembles.
"""

from magnetar.broker.auth.authenticator import Authenticator
from magnetar.broker.auth.issuer_keys import IssuerKeys
from magnetar.broker.auth.open_id import OpenIdAuthenticator
from magnetar.broker.auth.opening import FILE_BYTES_MAX, Upkeep, read_source
from magnetar.broker.auth.revocation import RevokedTokens
from magnetar.broker.auth.token import TokenAuthenticator
from magnetar.broker.auth.token_key import TokenKey, public_key, secret_key
from magnetar.config.security import SecuritySettings
from magnetar.errors import BadSetting
from magnetar.runtime.small_file import read_small_file


def of_tokens(name: str, settings: SecuritySettings, upkeep: list[Upkeep]) -> Authenticator:
    """The authenticator of tokens, or of an identity provider's; what it needs watched is added to `upkeep`."""
    revoked = RevokedTokens(settings.token_revoked_file)
    if settings.token_revoked_file:
        upkeep.append(lambda: revoked.watch(settings.token_revoked_check_s))
    if name == TokenAuthenticator.method:
        return TokenAuthenticator(
            _token_keys(settings),
            role_claim=settings.token_role_claim,
            audience_claim=settings.token_audience_claim,
            audience=settings.token_audience,
            skew_ms=settings.token_skew_s * 1000,
            revoked=revoked,
        )
    if not settings.openid_issuers or not settings.openid_audiences:
        raise BadSetting("Authentication by OpenID needs openIDAllowedTokenIssuers and openIDAllowedAudiences")
    authenticator = OpenIdAuthenticator(
        settings.openid_issuers,
        settings.openid_audiences,
        role_claim=settings.openid_role_claim,
        skew_ms=settings.openid_skew_s * 1000,
        revoked=revoked,
    )
    keys = IssuerKeys(authenticator, _issuer_sources(settings), settings.openid_trust_file, settings.openid_refresh_s)
    upkeep.append(keys.watch)
    return authenticator


def _issuer_sources(settings: SecuritySettings) -> dict[str, str]:
    sources = {}
    for text in settings.openid_keys:
        issuer, equals, source = text.partition("=")
        if not equals or issuer not in settings.openid_issuers or not source:
            raise BadSetting("security.openid_keys should be ISSUER=FILE or ISSUER=https://…, of an allowed issuer")
        sources[issuer] = source
    return sources


def _token_keys(settings: SecuritySettings) -> list[TokenKey]:
    keys = []
    if settings.token_secret_key:
        keys.append(secret_key(read_source(settings.token_secret_key, "tokenSecretKey")))
    if settings.token_public_key:
        keys.append(public_key(read_source(settings.token_public_key, "tokenPublicKey")))
    for text in settings.token_more_keys:
        kind, colon, source = text.partition(":")
        if not colon or kind not in ("secret", "public"):
            raise BadSetting("security.token_more_keys should be secret:FILE or public:FILE")
        make = secret_key if kind == "secret" else public_key
        keys.append(make(read_small_file(source.removeprefix("//"), FILE_BYTES_MAX)))
    if not keys:
        raise BadSetting("Authentication by token needs tokenSecretKey or tokenPublicKey")
    if bool(settings.token_audience_claim) != bool(settings.token_audience):
        raise BadSetting("tokenAudienceClaim and tokenAudience go together: give both or none")
    return keys
