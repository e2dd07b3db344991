# SPDX-License-Identifier: Apache-2.0
"""Keys of tokens: from bytes to a key, and the algorithms that a token may use with it.

The algorithms belong to the key, never to the token. Secret keys are raw bytes; public and private keys are DER as
Apache Pulsar writes them, or PEM.
Decides.
"""

from typing import Final, NamedTuple, TypeAlias

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.serialization import (
    load_der_private_key,
    load_der_public_key,
    load_pem_private_key,
    load_pem_public_key,
)

from magnetar.errors import BadSetting

SECRET_BYTES_MIN: Final = 32
RSA_BITS_MIN: Final = 2048
_HMAC: Final = ("HS256", "HS384", "HS512")
_RSA: Final = ("RS256", "RS384", "RS512")
_OF_CURVE: Final = {"secp256r1": ("ES256",), "secp384r1": ("ES384",), "secp521r1": ("ES512",)}
_PEM: Final = b"-----BEGIN"

PublicKey: TypeAlias = RSAPublicKey | EllipticCurvePublicKey
PrivateKey: TypeAlias = RSAPrivateKey | EllipticCurvePrivateKey


class TokenKey(NamedTuple):
    key: "bytes | PublicKey | PrivateKey"
    algorithms: tuple[str, ...]

    def __repr__(self) -> str:
        return f"TokenKey({'/'.join(self.algorithms)})"


def secret_key(content: bytes) -> TokenKey:
    if content.startswith(_PEM):
        raise BadSetting("The secret key of tokens is a PEM file; give it as the public key if it is one")
    if len(content) < SECRET_BYTES_MIN:
        raise BadSetting(
            f"The secret key of tokens has {len(content)} bytes; at least {SECRET_BYTES_MIN} are needed. "
            "Make one with `magnetar tokens create-secret-key`"
        )
    return TokenKey(content, tuple(name for name in _HMAC if int(name[2:]) <= len(content) * 8))


def public_key(content: bytes) -> TokenKey:
    try:
        loaded = load_pem_public_key(content) if content.startswith(_PEM) else load_der_public_key(content)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BadSetting(
            "The public key of tokens cannot be read: DER (SubjectPublicKeyInfo) or PEM is needed"
        ) from error
    if not isinstance(loaded, RSAPublicKey | EllipticCurvePublicKey):
        raise BadSetting("The public key of tokens is neither RSA nor of an elliptic curve")
    return TokenKey(loaded, algorithms_of(loaded))


def private_key(content: bytes) -> TokenKey:
    try:
        loaded = (
            load_pem_private_key(content, None) if content.startswith(_PEM) else load_der_private_key(content, None)
        )
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BadSetting("The private key of tokens cannot be read: PKCS #8 as DER or PEM is needed") from error
    if not isinstance(loaded, RSAPrivateKey | EllipticCurvePrivateKey):
        raise BadSetting("The private key of tokens is neither RSA nor of an elliptic curve")
    return TokenKey(loaded, algorithms_of(loaded))


def algorithms_of(key: PublicKey | PrivateKey) -> tuple[str, ...]:
    if isinstance(key, RSAPublicKey | RSAPrivateKey):
        if key.key_size < RSA_BITS_MIN:
            raise BadSetting(f"The RSA key of tokens has {key.key_size} bits; at least {RSA_BITS_MIN} are needed")
        return _RSA
    algorithms = _OF_CURVE.get(key.curve.name)
    if algorithms is None:
        raise BadSetting(f"Tokens cannot be signed on the curve {key.curve.name}: {', '.join(_OF_CURVE)} can be used")
    return algorithms
