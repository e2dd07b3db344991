# SPDX-License-Identifier: Apache-2.0
"""Who a broker or a proxy is where it is a client of brokers: its credentials, its TLS, and the addresses that fit.

With TLS there is no way back to plain text: a broker without an address for it is refused. Changed certificate files
are taken up when the next connection is made; while they cannot be used the old ones stay.
Carries.
"""

import logging
import os
import ssl

from magnetar.broker.ownership.owner import Owner
from magnetar.client.authentication import Authentication, authentication_of
from magnetar.client.tls import tls_context
from magnetar.config.client import ClientSettings
from magnetar.config.security import SecuritySettings
from magnetar.errors import BadSetting, ServiceNotReady

_log = logging.getLogger(__name__)


class AsClient:
    def __init__(self, settings: SecuritySettings, *, tls: bool | None = None) -> None:
        """Raises BadSetting where what an operator wrote cannot be used."""
        self.authentication: Authentication | None = None
        if settings.client_authentication_plugin:
            self.authentication = authentication_of(
                settings.client_authentication_plugin, settings.client_authentication_parameters
            )
        self.uses_tls = settings.client_tls if tls is None else tls
        self._files: tuple[str, ...] = (
            settings.client_trust_file,
            settings.client_certificate_file,
            settings.client_key_file,
        )
        if bool(settings.client_certificate_file) != bool(settings.client_key_file):
            raise BadSetting(
                "brokerClientCertificateFilePath and brokerClientKeyFilePath go together: give both or none"
            )
        if self.authentication is not None and self.authentication.tls_files() is not None:
            self._files += self.authentication.tls_files() or ()
            if not self.uses_tls:
                raise BadSetting("A certificate proves nothing without TLS: set brokerClientTlsEnabled=true")
        self._settings = settings
        self._tls = self._new_context() if self.uses_tls else None
        self._seen = self._moments()

    @property
    def has_credentials(self) -> bool:
        """Whether this process can say who it is; otherwise a request goes on in the name of who asked."""
        return self.authentication is not None or (self.uses_tls and bool(self._settings.client_certificate_file))

    @property
    def sends_secret(self) -> bool:
        """Whether those whom this process calls are sent what they could use; a certificate gives nothing away."""
        return self.authentication is not None and self.authentication.tls_files() is None

    @property
    def tls(self) -> ssl.SSLContext | None:
        """For the next connection; None where plain text is spoken."""
        if self._tls is not None:
            moments = self._moments()
            if moments != self._seen:
                self._seen = moments
                try:
                    self._tls = self._new_context()
                except BadSetting as error:
                    _log.error("the changed certificate files cannot be used, the old ones stay: %s", error)
        return self._tls

    async def close(self) -> None:
        if self.authentication is not None:
            await self.authentication.close()

    def service_url(self, owner: Owner) -> str:
        return self._fitting(owner, owner.service_url, owner.service_url_tls)

    def web_url(self, owner: Owner) -> str:
        return self._fitting(owner, owner.web_url, owner.web_url_tls)

    def _fitting(self, owner: Owner, plain: str, encrypted: str) -> str:
        found = encrypted if self.uses_tls else plain
        if not found:
            missing = "with TLS, and brokerClientTlsEnabled asks for it" if self.uses_tls else "without TLS"
            raise ServiceNotReady(f"Broker {owner.broker_id} has no address {missing}")
        return found

    def _new_context(self) -> ssl.SSLContext:
        wanted = ClientSettings(
            tls_trust_certs_file_path=self._settings.client_trust_file or None,
            tls_validate_hostname=self._settings.client_hostname_verified,
            tls_certificate_file_path=self._settings.client_certificate_file or None,
            tls_private_key_file_path=self._settings.client_key_file or None,
        )
        return tls_context(wanted, self.authentication)

    def _moments(self) -> tuple[int, ...]:
        moments = []
        for path in filter(None, self._files):
            try:
                moments.append(os.stat(path).st_mtime_ns)
            except OSError:
                moments.append(-1)
        return tuple(moments)
