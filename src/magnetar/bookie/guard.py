# SPDX-License-Identifier: Apache-2.0
"""Who is served at a bookie's port: everybody, whoever knows a secret, whoever comes over TLS.

Carries.
"""

import ssl
from typing import Final, NamedTuple

from magnetar.config.bookie_server import BookieServerSettings
from magnetar.errors import BadSetting
from magnetar.runtime.server_tls import ServerTls
from magnetar.runtime.small_file import read_small_file

_SECRET_BYTES_MAX: Final = 4096


class Guard(NamedTuple):
    secret: bytes = b""
    tls: ssl.SSLContext | None = None
    tls_required: bool = False

    @property
    def has_strangers(self) -> bool:
        """Whether a new connection has to prove something first."""
        return bool(self.secret) or self.tls_required


def guard_of(settings: BookieServerSettings) -> Guard:
    """What the settings ask for. CannotStart or BadSetting where a file cannot be used."""
    secret = b""
    if settings.secret_file:
        secret = read_small_file(settings.secret_file, _SECRET_BYTES_MAX).strip()
        if not secret:
            raise BadSetting(f"bookie_server.secret_file={settings.secret_file} is empty: nobody could prove it")
    tls = None
    if settings.tls_certificate_file:
        tls = ServerTls(
            settings.tls_certificate_file,
            settings.tls_key_file or settings.tls_certificate_file,
            settings.tls_trust_file,
            certificate_required=settings.tls_client_certificate_required,
        ).context
    elif settings.tls_required:
        raise BadSetting("bookie_server.tls_required asks for TLS, and there is no bookie_server.tls_certificate_file")
    return Guard(secret, tls, settings.tls_required)
