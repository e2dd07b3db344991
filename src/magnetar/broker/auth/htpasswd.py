# SPDX-License-Identifier: Apache-2.0
"""Users and hashed passwords, as Apache's `htpasswd` writes them: $apr1$ (MD5), bcrypt and {SHA}.

A password is compared in constant time, and an unknown user costs as much as a known one.
Decides.
"""

import base64
import hashlib
import hmac
from typing import Final

import bcrypt

from magnetar.errors import BadSetting

_APR1: Final = "$apr1$"
_BCRYPT: Final = ("$2y$", "$2a$", "$2b$")
_SHA: Final = "{SHA}"
_BCRYPT_BYTES_MAX: Final = 72
_ALPHABET: Final = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
# Which bytes of the digest make up each group of characters.
_GROUPS: Final = ((0, 6, 12), (1, 7, 13), (2, 8, 14), (3, 9, 15), (4, 10, 5))


def parse_users(text: str) -> dict[str, str]:
    """User → hash. BadSetting names the line of what cannot be used, never its content."""
    users: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        user, colon, hashed = line.partition(":")
        if not colon or not user:
            raise BadSetting(f"Line {number} of the users is not user:hash")
        if not hashed.startswith((_APR1, _SHA, *_BCRYPT)):
            raise BadSetting(f"Line {number} of the users has a hash that is none of $apr1$, bcrypt or {{SHA}}")
        users[user] = hashed
    if not users:
        raise BadSetting("There are no users for basic authentication")
    return users


def is_password(users: dict[str, str], user: str, password: str) -> bool:
    hashed = users.get(user)
    right = verify(hashed if hashed is not None else next(iter(users.values())), password)
    return right and hashed is not None


def verify(hashed: str, password: str) -> bool:
    if hashed.startswith(_APR1):
        return hmac.compare_digest(apr1(password, hashed[len(_APR1) :].partition("$")[0]).encode(), hashed.encode())
    if hashed.startswith(_SHA):
        # The format is what it is: the hash proves a password here, it does not protect one.
        digest = hashlib.sha1(password.encode(), usedforsecurity=False).digest()
        return hmac.compare_digest(base64.b64encode(digest), hashed[len(_SHA) :].encode())
    try:
        return bcrypt.checkpw(password.encode()[:_BCRYPT_BYTES_MAX], hashed.encode())
    except ValueError:
        return False


def apr1(password: str, salt: str) -> str:
    """Apache's variant of MD5-crypt."""
    secret, grain = password.encode(), salt[:8].encode()
    inner = _md5(secret + grain + secret)
    mixed = secret + _APR1.encode() + grain + (inner * (len(secret) // 16 + 1))[: len(secret)]
    length = len(secret)
    while length:
        mixed += b"\0" if length & 1 else secret[:1]
        length >>= 1
    digest = _md5(mixed)
    for round_ in range(1000):
        parts = secret if round_ & 1 else digest
        if round_ % 3:
            parts += grain
        if round_ % 7:
            parts += secret
        digest = _md5(parts + (digest if round_ & 1 else secret))
    return f"{_APR1}{salt[:8]}${_encoded(digest)}"


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


def _encoded(digest: bytes) -> str:
    text = ""
    for high, middle, low in _GROUPS:
        text += _characters(digest[high] << 16 | digest[middle] << 8 | digest[low], 4)
    return text + _characters(digest[11], 2)


def _characters(value: int, count: int) -> str:
    return "".join(_ALPHABET[value >> 6 * index & 0x3F] for index in range(count))
