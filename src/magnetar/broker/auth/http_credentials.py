# SPDX-License-Identifier: Apache-2.0
"""Credentials as HTTP brings them: the Authorization header, or a certificate that TLS has verified.

Never says what was in a header that cannot be read.
Decides.
"""

import base64
import binascii
from collections.abc import Collection

from magnetar.broker.auth.authenticator import Certificate
from magnetar.errors import NotAuthenticated


def credentials_of(authorization: str, certificate: Certificate | None, methods: Collection[str]) -> tuple[str, bytes]:
    """The method and its data, of those that are served. Credentials that cannot be read are refused."""
    if not authorization:
        return ("tls" if certificate is not None and "tls" in methods else "none"), b""
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return "token", value.strip().encode()
    if scheme.lower() == "basic":
        try:
            return "basic", base64.b64decode(value.strip(), validate=True)
        except (binascii.Error, ValueError):
            raise NotAuthenticated("The Authorization header cannot be read") from None
    raise NotAuthenticated("The Authorization header should be Bearer or Basic")
