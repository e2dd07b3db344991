# SPDX-License-Identifier: Apache-2.0
"""What the doors of a broker can be told: who is let in, who may do what, and what is encrypted on the way.

Decides.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    """By default nobody is asked who they are, and nothing is encrypted."""

    # Refuses to start where a broker would listen to a network and ask nobody who they are.
    production: bool = False
    authentication_enabled: bool = False
    # token, basic, tls, or the names of Pulsar's provider classes.
    authentication_providers: tuple[str, ...] = ()
    # The role of clients without credentials; empty: they are refused.
    anonymous_role: str = ""
    refresh_check_s: int = 60
    # The longest pause before an address is told again that its credentials are wrong.
    login_pause_max_ms: int = 5_000

    authorization_enabled: bool = False
    super_user_roles: tuple[str, ...] = ()
    # Roles that may speak for others: both the proxy and the one it speaks for must be allowed.
    proxy_roles: tuple[str, ...] = ()
    # The credentials of whom a proxy speaks for must come along, and prove that role.
    original_credentials_checked: bool = False
    authorization_wildcards: bool = False
    metrics_authenticated: bool = False

    # A path, file:///path, data:;base64,… or the key itself in base64.
    token_secret_key: str = field(default="", repr=False)
    token_public_key: str = ""
    token_role_claim: str = "sub"
    token_audience_claim: str = ""
    token_audience: str = ""
    token_skew_s: int = 0
    # Further keys, for a change of keys: secret:FILE or public:FILE. A token of any of them counts.
    token_more_keys: tuple[str, ...] = ()
    # Tokens that count no more, a line each: jti:ID, sub:ROLE or sha256:DIGEST.
    token_revoked_file: str = ""
    token_revoked_check_s: int = 10
    # Identity providers whose tokens are believed, for whom those must be, and which claim is the role.
    openid_issuers: tuple[str, ...] = ()
    openid_audiences: tuple[str, ...] = ()
    openid_role_claim: str = "sub"
    openid_skew_s: int = 0
    # Where the keys of issuers are, as ISSUER=FILE or ISSUER=https://…; without, at the issuer's own URL.
    openid_keys: tuple[str, ...] = ()
    openid_trust_file: str = ""
    openid_refresh_s: int = 64_800
    # Users and hashes as `htpasswd` writes them: a path, file:///path or data:;base64,…
    basic_users: str = field(default="", repr=False)
    # Passwords that proved right and need no hashing again, at one time.
    basic_proven_max: int = 1_000

    # Who this process is where it is a client of brokers: a plug-in of our client, and what that needs.
    client_authentication_plugin: str = ""
    client_authentication_parameters: str = field(default="", repr=False)
    # Brokers speak TLS among themselves; never without it then.
    client_tls: bool = False
    client_trust_file: str = ""
    client_certificate_file: str = ""
    client_key_file: str = ""
    client_hostname_verified: bool = True

    # Load balancers say in HAProxy's header whom they speak for; believed from these addresses and networks only.
    haproxy_protocol: bool = False
    haproxy_trusted: tuple[str, ...] = ()

    # -1: none.
    tls_port: int = -1
    https_port: int = -1
    tls_certificate_file: str = ""
    tls_key_file: str = ""
    # Authorities whose client certificates are believed.
    tls_trust_file: str = ""
    tls_client_certificate_required: bool = False
    # Certificates of unknown authorities are let in; they give nobody a role.
    tls_allow_insecure: bool = False
    tls_ciphers: str = ""
    tls_protocols: tuple[str, ...] = ("TLSv1.3", "TLSv1.2")
    tls_reload_check_s: int = 300
    # How long a client may take for the TLS handshake.
    tls_handshake_timeout_ms: int = 10_000
