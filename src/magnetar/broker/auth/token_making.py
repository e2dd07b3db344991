# SPDX-License-Identifier: Apache-2.0
"""Tokens and key pairs, made as Apache Pulsar makes them: what an operator hands to clients and brokers.

Decides.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from magnetar.broker.auth.token import TOKEN_BYTES_MAX
from magnetar.broker.auth.token_key import PrivateKey, TokenKey
from magnetar.errors import BadSetting

ALGORITHMS_OF_PAIRS: Final = ("RS256", "RS384", "RS512", "ES256", "ES384", "ES512")
SECRET_BYTES: Final = {"HS256": 32, "HS384": 48, "HS512": 64}
_CURVES: Final[Mapping[str, type[ec.EllipticCurve]]] = {
    "ES256": ec.SECP256R1,
    "ES384": ec.SECP384R1,
    "ES512": ec.SECP521R1,
}
_RSA_BITS: Final = {"RS256": 2048, "RS384": 3072, "RS512": 4096}
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "y": 31_536_000}
_DURATION: Final = re.compile(r"([0-9]{1,9})([smhdwy]?)")


class KeyPair(NamedTuple):
    """PKCS #8 and X.509, as DER."""

    private: bytes
    public: bytes

    def __repr__(self) -> str:
        return "KeyPair(…)"


def new_key_pair(algorithm: str) -> KeyPair:
    key: PrivateKey
    if algorithm in _CURVES:
        key = ec.generate_private_key(_CURVES[algorithm]())
    elif algorithm in _RSA_BITS:
        key = rsa.generate_private_key(65_537, _RSA_BITS[algorithm])
    else:
        raise BadSetting(f"There are no key pairs for {algorithm}; there are {', '.join(ALGORITHMS_OF_PAIRS)}")
    return KeyPair(
        key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()),
        key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
    )


def new_token(
    key: TokenKey,
    subject: str,
    *,
    algorithm: str = "",
    expires_s: int | None = None,
    headers: Mapping[str, str] | None = None,
) -> str:
    """A signed token for a role; with the key's first algorithm unless another of its own is asked for."""
    algorithm = algorithm or key.algorithms[0]
    if algorithm not in key.algorithms:
        raise BadSetting(f"{algorithm} cannot be used with this key; {', '.join(key.algorithms)} can")
    claims: dict[str, Any] = {"sub": subject}
    if expires_s is not None:
        claims["exp"] = expires_s
    return jwt.encode(claims, key.key, algorithm=algorithm, headers=dict(headers or {}))  # type: ignore[arg-type]


def seconds_of(text: str) -> int:
    """`30m`, `12h`, `7d`, `1y`; a bare number is seconds."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise BadSetting(f"{text[:50]!r} is no duration: a number and one of s, m, h, d, w, y is, as in 30d")
    return int(found[1]) * _SECONDS[found[2] or "s"]


def unproven(token: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Header and claims of a token as it stands, whoever signed it."""
    try:
        if len(token) > TOKEN_BYTES_MAX:
            raise ValueError
        claims: Mapping[str, Any] = jwt.decode(token, options={"verify_signature": False})
        return jwt.get_unverified_header(token), claims
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise BadSetting("This is no token: three parts with dots between them are needed") from None
