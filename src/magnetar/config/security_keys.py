# SPDX-License-Identifier: Apache-2.0
"""Pulsar's keys about authentication, authorization and TLS.

Decides.
"""

from typing import Final

from magnetar.config.key import OPTIONAL_PORT, Key, rows
from magnetar.config.values import Flag, Text, TextList, Whole

_ROLE: Final = Text(255)

SECURITY_KEYS: Final[tuple[Key, ...]] = (
    *rows(
        "security",
        ("authenticationEnabled", "authentication_enabled", Flag(), "Clients must say who they are."),
        (
            "authenticationProviders",
            "authentication_providers",
            TextList(20),
            "Ways to prove it: token, basic, tls, or the names of Pulsar's provider classes.",
        ),
        ("anonymousUserRole", "anonymous_role", _ROLE, "Role of clients without credentials; empty: they are refused."),
        (
            "authenticationRefreshCheckSeconds",
            "refresh_check_s",
            Whole(1, 86_400),
            "Time for a client to renew credentials that ran out.",
        ),
        ("authorizationEnabled", "authorization_enabled", Flag(), "Roles need permissions for what they do."),
        ("superUserRoles", "super_user_roles", TextList(), "Roles that may do everything."),
        ("proxyRoles", "proxy_roles", TextList(), "Roles that may speak for others."),
        (
            "authenticateOriginalAuthData",
            "original_credentials_checked",
            Flag(),
            "Whom a proxy speaks for must have sent credentials along that prove it.",
        ),
        (
            "authorizationAllowWildcardsMatching",
            "authorization_wildcards",
            Flag(),
            "Permissions may name roles by a * at their start or end.",
        ),
        ("authenticateMetricsEndpoint", "metrics_authenticated", Flag(), "/metrics asks for credentials too."),
        ("tokenPublicKey", "token_public_key", Text(16_384), "Public key that tokens are checked with."),
        ("tokenAuthClaim", "token_role_claim", Text(255), "Claim of a token that names the role."),
        ("tokenAudienceClaim", "token_audience_claim", Text(255), "Claim of a token that names its audience."),
        ("tokenAudience", "token_audience", Text(255), "Audience that a token must be for."),
        ("tokenAllowedClockSkewSeconds", "token_skew_s", Whole(0, 3600), "Clocks may differ by this."),
        ("openIDAllowedTokenIssuers", "openid_issuers", TextList(20), "Identity providers whose tokens are believed."),
        ("openIDAllowedAudiences", "openid_audiences", TextList(20), "Audiences of which such a token must name one."),
        ("openIDRoleClaim", "openid_role_claim", Text(255), "Claim of such a token that names the role."),
        ("openIDAcceptedTimeLeewaySeconds", "openid_skew_s", Whole(0, 3600), "Clocks may differ by this."),
        ("openIDTokenIssuerTrustCertsFilePath", "openid_trust_file", Text(), "Authorities of the issuers' URLs, PEM."),
        (
            "openIDCacheRefreshAfterWriteSeconds",
            "openid_refresh_s",
            Whole(10, 604_800),
            "How often the keys of issuers are read again.",
        ),
        (
            "brokerClientAuthenticationPlugin",
            "client_authentication_plugin",
            Text(255),
            "How this process says to brokers who it is: token, basic, tls, oauth2, or the class of Java's client.",
        ),
        ("brokerClientTlsEnabled", "client_tls", Flag(), "Brokers speak TLS among themselves."),
        (
            "brokerClientTrustCertsFilePath",
            "client_trust_file",
            Text(),
            "Authorities whose broker certificates are believed, PEM; empty: those of the system.",
        ),
        ("brokerClientCertificateFilePath", "client_certificate_file", Text(), "Certificate shown to brokers, PEM."),
        ("brokerClientKeyFilePath", "client_key_file", Text(), "Private key of that certificate, PEM."),
        (
            "tlsHostnameVerificationEnabled",
            "client_hostname_verified",
            Flag(),
            "A broker's certificate must be for the name that was called.",
        ),
        (
            "haProxyProtocolEnabled",
            "haproxy_protocol",
            Flag(),
            "Load balancers in front say in HAProxy's header whom they speak for.",
        ),
        (
            "security.haproxy_trusted",
            "haproxy_trusted",
            TextList(1_000),
            "Addresses and networks of load balancers whose HAProxy headers are believed.",
        ),
        ("brokerServicePortTls", "tls_port", OPTIONAL_PORT, "Port of the binary protocol over TLS; -1: none."),
        ("webServicePortTls", "https_port", OPTIONAL_PORT, "Port of admin REST over TLS; -1: none."),
        ("tlsCertificateFilePath", "tls_certificate_file", Text(), "Certificate of this broker, PEM."),
        ("tlsKeyFilePath", "tls_key_file", Text(), "Private key of that certificate, PEM."),
        ("tlsTrustCertsFilePath", "tls_trust_file", Text(), "Authorities whose client certificates are believed, PEM."),
        (
            "tlsRequireTrustedClientCertOnConnect",
            "tls_client_certificate_required",
            Flag(),
            "Clients without a certificate are refused in the handshake.",
        ),
        (
            "tlsAllowInsecureConnection",
            "tls_allow_insecure",
            Flag(),
            "Client certificates are not asked for: those of unknown authorities get in, and give nobody a role.",
        ),
        ("tlsCiphers", "tls_ciphers", Text(), "Ciphers of TLS 1.2, as OpenSSL names them."),
        ("tlsProtocols", "tls_protocols", TextList(2), "TLSv1.3, TLSv1.2 or both."),
        (
            "tlsCertRefreshCheckDurationSec",
            "tls_reload_check_s",
            Whole(1, 86_400),
            "How often changed certificate files are looked for.",
        ),
    ),
    Key(
        "brokerClientAuthenticationParameters",
        "security",
        "client_authentication_parameters",
        Text(65_536),
        "What the plug-in of brokerClientAuthenticationPlugin needs.",
        secret=True,
    ),
    Key(
        "tokenSecretKey",
        "security",
        "token_secret_key",
        Text(16_384),
        "Secret key that tokens are checked with: a path, file:///path or data:;base64,… URL.",
        secret=True,
    ),
    Key(
        "basicAuthConf",
        "security",
        "basic_users",
        Text(65_536),
        "Users and hashes as htpasswd writes them: a path, file:///path or data:;base64,… URL.",
        secret=True,
    ),
)

# Allowed, but someone should say so aloud.
SECURITY_CAUTIONS: Final[dict[tuple[str, object], str]] = {
    ("tlsAllowInsecureConnection", True): "client certificates prove nothing: use it for tests only",
}
