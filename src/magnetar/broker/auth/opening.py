# SPDX-License-Identifier: Apache-2.0
"""From settings to authentication: which methods there are, and the keys and users that they need.

Whatever an operator wrote and we cannot use stops the start: a door is never left open by mistake. The libraries that a
method needs are imported with it, and not by brokers that ask nobody.
Assembles.
"""

import base64
import binascii
from collections.abc import Callable, Coroutine
from importlib import import_module
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

from magnetar.broker.auth.authentication import Authentication
from magnetar.broker.auth.authenticator import Authenticator
from magnetar.broker.auth.certificate import CertificateAuthenticator
from magnetar.config.security import SecuritySettings
from magnetar.errors import BadSetting, CannotStart
from magnetar.runtime.clock import WallClock
from magnetar.runtime.server_tls import ServerTls
from magnetar.runtime.small_file import read_small_file

Upkeep: TypeAlias = Callable[[], Coroutine[Any, Any, None]]

FILE_BYTES_MAX: Final = 1024 * 1024
_PROVIDER: Final = "AuthenticationProvider"
# Methods that Apache Pulsar has and that need libraries and services of their own.
_PLUG_INS: Final = {"sasl": "SASL with Kerberos", "athenz": "Athenz"}
_HOW_TO_PLUG_IN: Final = (
    "Name a class of your own as package.module:Class; it is made with the security settings and has `method`, "
    "`is_slow` and `check(credentials, now_ms)`, as magnetar.broker.auth.authenticator describes"
)


def open_authentication(settings: SecuritySettings, clock: WallClock) -> Authentication | None:
    """None when everyone is let in. BadSetting or CannotStart when what was asked for is not possible."""
    if not settings.authentication_enabled:
        return None
    names = dict.fromkeys(_method(name) for name in settings.authentication_providers)
    if not names and not settings.anonymous_role:
        raise BadSetting("authenticationEnabled=true without authenticationProviders would let nobody in")
    upkeep: list[Upkeep] = []
    authenticators = [_authenticator(name, settings, upkeep) for name in names]
    return Authentication(
        authenticators,
        settings.anonymous_role,
        clock,
        settings.basic_proven_max,
        upkeep,
        settings.login_pause_max_ms,
    )


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
    if ":" in name:
        return name
    short = name.rpartition(".")[2]
    return short.removeprefix(_PROVIDER).lower()


def _authenticator(name: str, settings: SecuritySettings, upkeep: list[Upkeep]) -> Authenticator:
    if name in ("token", "openid"):
        from magnetar.broker.auth.token_opening import of_tokens

        return of_tokens(name, settings, upkeep)
    if ":" in name:
        return _plugged_in(name, settings)
    if name == "basic":
        if not settings.basic_users:
            raise BadSetting("Basic authentication needs basicAuthConf: a file that htpasswd made")
        from magnetar.broker.auth.basic import BasicAuthenticator
        from magnetar.broker.auth.htpasswd import parse_users

        try:
            return BasicAuthenticator(parse_users(read_source(settings.basic_users, "basicAuthConf").decode()))
        except UnicodeDecodeError:
            raise BadSetting("The file given as basicAuthConf is not text") from None
    if name == CertificateAuthenticator.method:
        if not settings.tls_trust_file:
            raise BadSetting("Authentication by certificate needs tlsTrustCertsFilePath: whose certificates to believe")
        return CertificateAuthenticator()
    if name in _PLUG_INS:
        raise BadSetting(f"{_PLUG_INS[name]} is not part of Magnetar. {_HOW_TO_PLUG_IN}")
    raise BadSetting(
        f"authenticationProviders: {name[:100]!r} is not served; there are token, openid, basic and tls. "
        f"{_HOW_TO_PLUG_IN}"
    )


def _plugged_in(name: str, settings: SecuritySettings) -> Authenticator:
    """An authenticator of the operator's own, made with the settings."""
    module, _, class_name = name.partition(":")
    try:
        made: Authenticator = getattr(import_module(module), class_name)(settings)
    except Exception as error:
        raise CannotStart(f"The authentication provider {name[:200]} cannot be made: {error!r}") from error
    if not isinstance(getattr(made, "method", None), str) or not callable(getattr(made, "check", None)):
        raise CannotStart(f"The authentication provider {name[:200]} has no method's name, or no check")
    return made
