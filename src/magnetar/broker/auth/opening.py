# SPDX-License-Identifier: Apache-2.0
"""From settings to authentication: which methods there are, and the keys and users that they need.

Whatever an operator wrote and we cannot use stops the start: a door is never left open by mistake.
Assembles.
"""

import base64
import binascii
from typing import Final
from urllib.parse import unquote

from magnetar.broker.auth.authentication import Authentication
from magnetar.broker.auth.authenticator import Authenticator
from magnetar.broker.auth.basic import BasicAuthenticator
from magnetar.broker.auth.certificate import CertificateAuthenticator
from magnetar.broker.auth.htpasswd import parse_users
from magnetar.broker.auth.token import TokenAuthenticator
from magnetar.broker.auth.token_key import TokenKey, public_key, secret_key
from magnetar.config.security import SecuritySettings
from magnetar.errors import BadSetting, CannotStart
from magnetar.runtime.clock import WallClock
from magnetar.runtime.server_tls import ServerTls
from magnetar.runtime.small_file import read_small_file

FILE_BYTES_MAX: Final = 1024 * 1024
_PROVIDER: Final = "AuthenticationProvider"


def open_authentication(settings: SecuritySettings, clock: WallClock) -> Authentication | None:
    """None when everyone is let in. BadSetting or CannotStart when what was asked for is not possible."""
    if not settings.authentication_enabled:
        return None
    names = dict.fromkeys(_method(name) for name in settings.authentication_providers)
    if not names and not settings.anonymous_role:
        raise BadSetting("authenticationEnabled=true without authenticationProviders would let nobody in")
    authenticators = [_authenticator(name, settings) for name in names]
    return Authentication(authenticators, settings.anonymous_role, clock, settings.basic_proven_max)


def open_tls(settings: SecuritySettings) -> ServerTls | None:
    """None when nothing listens with TLS."""
    if settings.tls_port < 0 and settings.https_port < 0:
        return None
    return ServerTls(
        settings.tls_certificate_file,
        settings.tls_key_file,
        settings.tls_trust_file,
        asks_certificate=not settings.tls_allow_insecure,
        certificate_required=settings.tls_client_certificate_required,
        protocols=settings.tls_protocols,
        ciphers=settings.tls_ciphers,
    )


def read_source(text: str, what: str) -> bytes:
    """The bytes behind `file:///path`, `data:;base64,…`, a path, or base64 as it stands."""
    if text.startswith("data:"):
        _, comma, encoded = text.partition(",")
        if not comma or not text.partition(",")[0].endswith(";base64"):
            raise BadSetting(f"The data: URL of {what} should be data:;base64,…")
        return _decoded(unquote(encoded), what)
    if text.startswith("file:"):
        return read_small_file(unquote(text.removeprefix("file:").removeprefix("//")), FILE_BYTES_MAX)
    try:
        return read_small_file(text, FILE_BYTES_MAX)
    except CannotStart as error:
        if not isinstance(error.__cause__, OSError):
            raise
    try:
        return _decoded(text, what)
    except BadSetting:
        raise BadSetting(f"What is given as {what} is neither a file that can be read nor base64") from None


def _decoded(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadSetting(f"The base64 of {what} cannot be decoded") from None


def _method(name: str) -> str:
    """`org.apache.pulsar.broker.authentication.AuthenticationProviderToken` and `token` are one."""
    short = name.rpartition(".")[2]
    return short.removeprefix(_PROVIDER).lower()


def _authenticator(name: str, settings: SecuritySettings) -> Authenticator:
    if name == TokenAuthenticator.method:
        return TokenAuthenticator(
            _token_keys(settings),
            role_claim=settings.token_role_claim,
            audience_claim=settings.token_audience_claim,
            audience=settings.token_audience,
            skew_ms=settings.token_skew_s * 1000,
        )
    if name == BasicAuthenticator.method:
        if not settings.basic_users:
            raise BadSetting("Basic authentication needs basicAuthConf: a file that htpasswd made")
        try:
            return BasicAuthenticator(parse_users(read_source(settings.basic_users, "basicAuthConf").decode()))
        except UnicodeDecodeError:
            raise BadSetting("The file given as basicAuthConf is not text") from None
    if name == CertificateAuthenticator.method:
        if not settings.tls_trust_file:
            raise BadSetting("Authentication by certificate needs tlsTrustCertsFilePath: whose certificates to believe")
        return CertificateAuthenticator()
    raise BadSetting(f"authenticationProviders: {name[:100]!r} is not served; there are token, basic and tls")


def _token_keys(settings: SecuritySettings) -> list[TokenKey]:
    keys = []
    if settings.token_secret_key:
        keys.append(secret_key(read_source(settings.token_secret_key, "tokenSecretKey")))
    if settings.token_public_key:
        keys.append(public_key(read_source(settings.token_public_key, "tokenPublicKey")))
    if not keys:
        raise BadSetting("Authentication by token needs tokenSecretKey or tokenPublicKey")
    if bool(settings.token_audience_claim) != bool(settings.token_audience):
        raise BadSetting("tokenAudienceClaim and tokenAudience go together: give both or none")
    return keys
