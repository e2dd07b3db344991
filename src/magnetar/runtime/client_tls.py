# SPDX-License-Identifier: Apache-2.0
"""TLS of a client: whom it believes, and what it shows of itself. TLS 1.2 and later.

Carries.
"""

import ssl

from magnetar.errors import BadSetting


def client_context(
    trust_file: str, certificate_file: str = "", key_file: str = "", *, hostname_verified: bool = True
) -> ssl.SSLContext:
    """Raises BadSetting, which names the files, where one cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = hostname_verified
    try:
        context.load_verify_locations(trust_file)
        if certificate_file:
            context.load_cert_chain(certificate_file, key_file or certificate_file)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(file for file in (trust_file, certificate_file, key_file) if file)
        raise BadSetting(f"TLS cannot be used with {files}: {error}") from error
    return context
