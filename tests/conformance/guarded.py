# SPDX-License-Identifier: Apache-2.0
"""A standalone with its doors locked: token, basic and certificates, roles and permissions as the official suites
have them.
"""

import base64
import time
from pathlib import Path

import httpx
import jwt

from magnetar.broker.auth.htpasswd import apr1
from tests.conformance.certificates import Authority
from tests.processes import StandaloneProcess, free_port

SECRET = b"0123456789abcdef0123456789abcdef-canary-of-the-secret-key"
PASSWORD = "canary-of-the-password"


def token(role: str, **claims: object) -> str:
    return jwt.encode({"sub": role, **claims}, SECRET, algorithm="HS256")


def expiring(role: str, seconds: float) -> str:
    return token(role, exp=time.time() + seconds)


class GuardedStandalone(StandaloneProcess):
    """Ports for TLS too; `admin` is a super user, `anonymous` administers the tenant public."""

    def __init__(self, directory: Path, **settings: str) -> None:
        self.authority = Authority(directory / "certificates")
        self.tls_port = free_port()
        self.https_port = free_port()
        certificate, key = self.authority.sign("localhost")
        users = directory / "users"
        users.write_text(f"admin:{apr1(PASSWORD, 'saltsalt')}\nstranger:{apr1(PASSWORD, 'other')}\n")
        providers = "org.apache.pulsar.broker.authentication.AuthenticationProvider"
        environment = {
            "authenticationEnabled": "true",
            "authenticationProviders": ",".join(providers + name for name in ("Tls", "Token", "Basic")),
            "authorizationEnabled": "true",
            "superUserRoles": "localhost,superUser,admin",
            "proxyRoles": "proxy",
            "anonymousUserRole": "anonymous",
            "tokenSecretKey": "data:;base64," + base64.b64encode(SECRET).decode(),
            "basicAuthConf": f"file://{users}",
            "brokerServicePortTls": str(self.tls_port),
            "webServicePortTls": str(self.https_port),
            "tlsCertificateFilePath": certificate,
            "tlsKeyFilePath": key,
            "tlsTrustCertsFilePath": str(self.authority.file),
            "security.login_pause_max_ms": "1",
            **settings,
        }
        super().__init__(directory, environment=environment)

    @property
    def service_url_tls(self) -> str:
        return f"pulsar+ssl://localhost:{self.tls_port}"

    @property
    def web_url_tls(self) -> str:
        return f"https://localhost:{self.https_port}"

    def admin(self, role: str | None = "admin") -> httpx.Client:
        headers = {"Authorization": f"Bearer {token(role)}"} if role else {}
        return httpx.Client(base_url=f"{self.web_url}/admin/v2", headers=headers, timeout=30)

    def furnish(self) -> None:
        """Tenants, namespaces and permissions as the suites want them."""
        clusters = {"allowedClusters": ["standalone"]}
        with self.admin() as admin:
            for method, path, body in (
                ("POST", "/tenants/public", {"adminRoles": ["anonymous"], **clusters}),
                ("PUT", "/tenants/private", {"adminRoles": [], **clusters}),
                ("PUT", "/tenants/owned", {"adminRoles": ["owner"], **clusters}),
                ("PUT", "/namespaces/private/auth", None),
                ("PUT", "/namespaces/owned/space", None),
                ("POST", "/namespaces/private/auth/permissions/token-principal", ["produce", "consume"]),
                ("POST", "/namespaces/private/auth/permissions/producer", ["produce"]),
                ("POST", "/namespaces/private/auth/permissions/consumer", ["consume"]),
                ("POST", "/namespaces/public/default/permissions/anonymous", ["produce", "consume"]),
            ):
                answer = admin.request(method, path, json=body)
                assert answer.status_code in (200, 204), f"{method} {path}: {answer.status_code} {answer.text}"
