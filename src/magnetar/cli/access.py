# SPDX-License-Identifier: Apache-2.0
"""How a command reaches a cluster: its URLs, who asks, how TLS is checked.

From flags, then the environment, then the context, then Pulsar's client.conf; keys are those of client.conf. Says
nothing aloud and connects to nothing.
Carries.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from magnetar.cli.contexts import load_contexts
from magnetar.cli.words import Flag, Given, Kind, flag
from magnetar.config.properties import parse_properties
from magnetar.errors import BadSetting

if TYPE_CHECKING:
    import ssl

    from magnetar.client.authentication import Authentication

DEFAULT_ADMIN_URL: Final = "http://127.0.0.1:8080"
DEFAULT_SERVICE_URL: Final = "pulsar://127.0.0.1:6650"

# Flags that every command for a cluster has, and the key of client.conf that each stands for.
_KEYS: Final = {
    "admin_url": "webServiceUrl",
    "url": "brokerServiceUrl",
    "auth_plugin": "authPlugin",
    "auth_params": "authParams",
    "tls_allow_insecure": "tlsAllowInsecureConnection",
    "tls_enable_hostname_verification": "tlsEnableHostnameVerification",
    "tls_trust_cert_path": "tlsTrustCertsFilePath",
    "tls_cert_path": "tlsCertificateFilePath",
    "tls_key_path": "tlsKeyFilePath",
    "listener_name": "listenerName",
}
_ENVIRONMENT: Final = {
    "MAGNETAR_ADMIN_URL": "webServiceUrl",
    "MAGNETAR_SERVICE_URL": "brokerServiceUrl",
    "MAGNETAR_AUTH_PLUGIN": "authPlugin",
    "MAGNETAR_AUTH_PARAMS": "authParams",
}

ADMIN_URL: Final = flag("--admin-url", Kind.TEXT, f"Where a broker serves HTTP [{DEFAULT_ADMIN_URL}].")
SERVICE_URL: Final = flag("--url", Kind.TEXT, f"Where brokers serve clients [{DEFAULT_SERVICE_URL}].")
SECURITY_FLAGS: Final = (
    flag("--auth-plugin", Kind.TEXT, "How to prove who asks: token, basic, tls, oauth2, or Java's class name."),
    flag("--auth-params", Kind.TEXT, "What to prove it with: token:…, file:///…, or key:value,…"),
    flag("--tls-allow-insecure", Kind.SWITCH, "Take any certificate.", default=None),
    flag("--tls-trust-cert-path --tlsTrustCertsFilePath", Kind.TEXT, "Certificates that are trusted."),
    flag("--tls-enable-hostname-verification", Kind.SWITCH, "Check the name in the certificate.", default=None),
    flag("--tls-cert-path", Kind.TEXT, "Our certificate, where the broker wants one."),
    flag("--tls-key-path", Kind.TEXT, "Its private key."),
)
PLACE_FLAGS: Final = (
    flag("--context", Kind.TEXT, "Use this context instead of the current one."),
    flag("--config", Kind.TEXT, "A client.conf of Pulsar's [$PULSAR_CLIENT_CONF]."),
)
ADMIN_FLAGS: Final[tuple[Flag, ...]] = (ADMIN_URL, *SECURITY_FLAGS, *PLACE_FLAGS)
CLIENT_FLAGS: Final[tuple[Flag, ...]] = (
    SERVICE_URL,
    *SECURITY_FLAGS,
    flag("--listener-name", Kind.TEXT, "The listener of the brokers to use."),
    *PLACE_FLAGS,
)
# Settings that a context may hold.
CONTEXT_FLAGS: Final[tuple[Flag, ...]] = (ADMIN_URL, SERVICE_URL, *SECURITY_FLAGS)


@dataclass(frozen=True, slots=True)
class Access:
    admin_url: str = DEFAULT_ADMIN_URL
    service_url: str = DEFAULT_SERVICE_URL
    auth_plugin: str = ""
    auth_params: str = ""
    allow_insecure: bool = False
    validates_hostname: bool = False
    trust_certs: str | None = None
    certificate: str | None = None
    private_key: str | None = None
    listener_name: str | None = None

    def authentication(self) -> "Authentication | None":
        if not self.auth_plugin:
            return None
        from magnetar.client.authentication import authentication_of

        return authentication_of(self.auth_plugin, self.auth_params)

    def tls(self) -> "ssl.SSLContext":
        from magnetar.client.tls import tls_context
        from magnetar.config.client import ClientSettings

        return tls_context(ClientSettings(**self._tls_settings()), self.authentication())

    def client_settings(self) -> dict[str, Any]:
        """Keyword arguments of a Client."""
        return {"listener_name": self.listener_name, **self._tls_settings()}

    def _tls_settings(self) -> dict[str, Any]:
        return {
            "tls_trust_certs_file_path": self.trust_certs,
            "tls_allow_insecure_connection": self.allow_insecure,
            "tls_validate_hostname": self.validates_hostname,
            "tls_certificate_file_path": self.certificate,
            "tls_private_key_file_path": self.private_key,
        }


def settings_of(given: Given) -> dict[str, str]:
    """What flags say, by the keys of client.conf."""
    found = {key: given[name] for name, key in _KEYS.items() if given.get(name) is not None}
    return {key: ("true" if value is True else str(value)) for key, value in found.items()}


def access_of(given: Given, environment: Mapping[str, str] | None = None) -> Access:
    """Flags before environment before context before client.conf."""
    environment = os.environ if environment is None else environment
    settings: dict[str, str] = {}
    file = given.get("config") or environment.get("PULSAR_CLIENT_CONF")
    if file:
        settings |= read_client_conf(file)
    contexts = load_contexts(environment)
    name = given.get("context") or environment.get("MAGNETAR_CONTEXT") or contexts.current
    if name:
        settings |= contexts.named(name)
    settings |= {key: environment[name] for name, key in _ENVIRONMENT.items() if environment.get(name)}
    settings |= settings_of(given)
    return _access(settings)


def read_client_conf(path: str) -> dict[str, str]:
    """The keys of a client.conf that have a value."""
    try:
        properties = parse_properties(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(f"{path} cannot be read: {error}") from error
    known = {*_KEYS.values()}
    return {each.key: each.value.strip() for each in properties if each.key in known and each.value.strip()}


def _access(settings: Mapping[str, str]) -> Access:
    def is_true(key: str) -> bool:
        return settings.get(key, "").lower() == "true"

    return Access(
        admin_url=settings.get("webServiceUrl", DEFAULT_ADMIN_URL).rstrip("/"),
        service_url=settings.get("brokerServiceUrl", DEFAULT_SERVICE_URL).rstrip("/"),
        auth_plugin=settings.get("authPlugin", ""),
        auth_params=settings.get("authParams", ""),
        allow_insecure=is_true("tlsAllowInsecureConnection"),
        validates_hostname=is_true("tlsEnableHostnameVerification"),
        trust_certs=settings.get("tlsTrustCertsFilePath"),
        certificate=settings.get("tlsCertificateFilePath"),
        private_key=settings.get("tlsKeyFilePath"),
        listener_name=settings.get("listenerName"),
    )
