# SPDX-License-Identifier: Apache-2.0
"""Authentication by user name and password; the user's name is the role.

Decides.
"""

from typing import Final

from magnetar.broker.auth.authenticator import Credentials, Identity
from magnetar.broker.auth.htpasswd import is_password
from magnetar.errors import NotAuthenticated

_BYTES_MAX: Final = 4096


class BasicAuthenticator:
    method = "basic"
    # A hash is made to take long.
    is_slow = True

    def __init__(self, users: dict[str, str]) -> None:
        self._users = users

    def check(self, credentials: Credentials, now_ms: int) -> Identity:
        try:
            user, colon, password = credentials.data[: _BYTES_MAX + 1].decode().partition(":")
        except UnicodeDecodeError:
            user = colon = password = ""
        if not colon or len(credentials.data) > _BYTES_MAX or not is_password(self._users, user, password):
            raise NotAuthenticated("Failed to authenticate: unknown user or wrong password")
        return Identity(user)
