# SPDX-License-Identifier: Apache-2.0
"""Authentication by certificate: the common name of a client's verified certificate is its role.

Decides.
"""

from magnetar.broker.auth.authenticator import Certificate, Credentials, Identity
from magnetar.errors import NotAuthenticated


class CertificateAuthenticator:
    method = "tls"
    is_slow = False

    def check(self, credentials: Credentials, now_ms: int) -> Identity:
        role = common_name(credentials.certificate)
        if not role:
            raise NotAuthenticated("Failed to authenticate: the client brought no certificate with a common name")
        return Identity(role)


def common_name(certificate: Certificate | None) -> str:
    """The first one; empty when there is none."""
    for part in (certificate or {}).get("subject", ()):
        for name, value in part:
            if name == "commonName":
                return str(value)
    return ""
