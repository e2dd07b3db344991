# SPDX-License-Identifier: Apache-2.0
"""How a process proves itself to its metadata store: a user's name and password, and TLS.

The password stands in a file of its own, `USER:PASSWORD` on one line, and is in no setting, log line or error.
Carries.
"""

import ssl
from typing import Final, NamedTuple

from magnetar.config.metadata import MetadataSettings
from magnetar.errors import BadSetting
from magnetar.runtime.client_tls import client_context
from magnetar.runtime.server_tls import ServerTls
from magnetar.runtime.small_file import read_small_file

_CREDENTIALS_BYTES_MAX: Final = 4_096


class StoreAccess(NamedTuple):
    user: str = ""
    password: str = ""
    trust_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    # What the store's certificate must name, where that is not the host that it is reached at.
    server_name: str = ""

    @property
    def uses_tls(self) -> bool:
        return bool(self.trust_file)

    def context(self) -> ssl.SSLContext | None:
        """None where no authority is named: plain text, or the system's authorities."""
        if not self.uses_tls:
            return None
        return client_context(self.trust_file, self.certificate_file, self.key_file)

    def __repr__(self) -> str:
        return f"StoreAccess(user={self.user!r}, tls={self.uses_tls})"


NO_ACCESS: Final = StoreAccess()


def store_access(settings: MetadataSettings) -> StoreAccess:
    """BadSetting or CannotStart when a file cannot be used."""
    if (settings.tls_certificate_file or settings.tls_key_file) and not settings.tls_trust_file:
        raise BadSetting("metadata.tls_certificate_file needs metadata.tls_trust_file: whose certificates to believe")
    user = password = ""
    if settings.credentials_file:
        user, password = _credentials(settings.credentials_file)
    return StoreAccess(user, password, settings.tls_trust_file, settings.tls_certificate_file, settings.tls_key_file)


def server_context(settings: MetadataSettings) -> ssl.SSLContext | None:
    """TLS of a metadata server, which asks every client for a certificate; None without a certificate of its own."""
    if not settings.tls_certificate_file:
        return None
    return ServerTls(
        settings.tls_certificate_file,
        settings.tls_key_file or settings.tls_certificate_file,
        settings.tls_trust_file,
        certificate_required=True,
    ).context


def _credentials(path: str) -> tuple[str, str]:
    try:
        text = read_small_file(path, _CREDENTIALS_BYTES_MAX).decode().strip()
    except UnicodeDecodeError:
        raise BadSetting(f"{path} (metadata.credentials_file) is not text") from None
    user, colon, password = text.partition(":")
    if not colon or not user or not password or "\n" in text:
        raise BadSetting(f"{path} (metadata.credentials_file) should have one line, USER:PASSWORD")
    return user, password
