# SPDX-License-Identifier: Apache-2.0
"""TLS of a server: its context, and certificates that are taken up again when their files change.

TLS 1.2 and later. A client's certificate is verified whenever it brings one. A reload that fails changes nothing; what
an authority's file no longer holds is believed until the next start.
Carries.
"""

import asyncio
import logging
import os
import ssl
from collections.abc import Sequence
from typing import Final

from magnetar.errors import BadSetting

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

_log = logging.getLogger(__name__)


class ServerTls:
    def __init__(
        self,
        certificate_file: str,
        key_file: str,
        trust_file: str = "",
        *,
        asks_certificate: bool = True,
        certificate_required: bool = False,
        protocols: Sequence[str] = ("TLSv1.3", "TLSv1.2"),
        ciphers: str = "",
    ) -> None:
        """Raises BadSetting, which names the files, where one cannot be used."""
        self._certificate_file = certificate_file
        self._key_file = key_file
        self._trust_file = trust_file
        unknown = [name for name in protocols if name not in _VERSIONS]
        if unknown or not protocols:
            raise BadSetting(f"tlsProtocols: {', '.join(unknown)} cannot be used; there are TLSv1.3, TLSv1.2")
        if certificate_required and not trust_file:
            raise BadSetting(
                "Client certificates are required, and tlsTrustCertsFilePath does not say whose to believe"
            )
        self.context: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        versions = [_VERSIONS[name] for name in protocols]
        self.context.minimum_version, self.context.maximum_version = min(versions), max(versions)
        if trust_file and (asks_certificate or certificate_required):
            self.context.verify_mode = ssl.CERT_REQUIRED if certificate_required else ssl.CERT_OPTIONAL
        try:
            if ciphers:
                self.context.set_ciphers(ciphers.replace(",", ":"))
        except ssl.SSLError as error:
            raise BadSetting(f"tlsCiphers cannot be used: {_reason(error)}") from error
        self._load()
        self._seen = self._moments()

    def reload_changed(self) -> bool:
        """Take up changed files; whether there were any."""
        moments = self._moments()
        if moments == self._seen:
            return False
        self._seen = moments
        try:
            # A wrong pair would break the context that is in use: it is tried on another first.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._certificate_file, self._key_file)
            self._load()
        except (BadSetting, OSError, ssl.SSLError) as error:
            _log.error("the changed certificate files cannot be used, the old ones stay: %s", error)
            return False
        _log.info("certificate %s was taken up again", self._certificate_file)
        return True

    def _load(self) -> None:
        try:
            self.context.load_cert_chain(self._certificate_file, self._key_file)
        except (OSError, ssl.SSLError) as error:
            files = f"tlsCertificateFilePath={self._certificate_file} and tlsKeyFilePath={self._key_file}"
            raise BadSetting(f"{files} cannot be used: {_reason(error)}") from error
        if self._trust_file:
            try:
                self.context.load_verify_locations(self._trust_file)
            except (OSError, ssl.SSLError) as error:
                raise BadSetting(f"The authorities in {self._trust_file} cannot be used: {_reason(error)}") from error

    def _moments(self) -> tuple[int, ...]:
        moments = []
        for path in (self._certificate_file, self._key_file, self._trust_file):
            try:
                moments.append(os.stat(path).st_mtime_ns if path else 0)
            except OSError:
                moments.append(-1)
        return tuple(moments)


async def watch_files(tls: ServerTls, interval_s: int) -> None:
    while True:
        await asyncio.sleep(interval_s)
        tls.reload_changed()


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
