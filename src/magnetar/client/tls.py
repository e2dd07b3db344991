# SPDX-License-Identifier: Apache-2.0
"""The TLS context of a client, from its settings and its authentication.

Certificates and host names are checked unless the settings say not to.
Carries.
"""

import ssl

from magnetar.client.authentication import Authentication
from magnetar.config.client import ClientSettings
from magnetar.errors import BadSetting


def tls_context(settings: ClientSettings, authentication: Authentication | None) -> ssl.SSLContext:
    """Raises BadSetting where a file is missing or wrong."""
    try:
        context = ssl.create_default_context(cafile=settings.tls_trust_certs_file_path)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if settings.tls_ciphers:
            context.set_ciphers(settings.tls_ciphers)
        files = authentication.tls_files() if authentication is not None else None
        if files is None and settings.tls_certificate_file_path:
            files = (settings.tls_certificate_file_path, settings.tls_private_key_file_path or "")
        if files is not None:
            context.load_cert_chain(files[0], files[1] or None)
    except (OSError, ssl.SSLError, ValueError) as error:
        raise BadSetting(f"the TLS settings cannot be used: {error}") from error
    if settings.tls_allow_insecure_connection:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif not settings.tls_validate_hostname:
        context.check_hostname = False
    return context
