# SPDX-License-Identifier: Apache-2.0
"""ECIES as Bouncy Castle does it, which is what Pulsar's clients wrap data keys with for elliptic-curve receivers.

    ephemeral point (uncompressed) | data XOR keystream | HMAC-SHA1 of it

Keystream and HMAC key come from KDF2 with SHA-1 over point and shared secret; the HMAC key has 128 bits and comes
first. The HMAC also covers eight bytes that say how long the (empty) second parameter is.
Decides.
"""

import hashlib
import hmac

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from magnetar.errors import CryptoFailed

_MAC_KEY_BYTES = 16
_MAC_BYTES = 20


def encrypt(data: bytes, receiver: ec.EllipticCurvePublicKey) -> bytes:
    ephemeral = ec.generate_private_key(receiver.curve)
    point = ephemeral.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    mac_key, stream = _keys(point, ephemeral.exchange(ec.ECDH(), receiver), len(data))
    hidden = _xor(data, stream)
    return point + hidden + _mac(mac_key, hidden)


def decrypt(data: bytes, private: ec.EllipticCurvePrivateKey) -> bytes:
    """Raises CryptoFailed if the bytes were not made for this key."""
    point_bytes = 1 + 2 * ((private.curve.key_size + 7) // 8)
    if len(data) < point_bytes + _MAC_BYTES:
        raise CryptoFailed(f"a wrapped data key of {len(data)} bytes is too short for its curve")
    point, hidden, mac = data[:point_bytes], data[point_bytes:-_MAC_BYTES], data[-_MAC_BYTES:]
    try:
        ephemeral = ec.EllipticCurvePublicKey.from_encoded_point(private.curve, point)
    except ValueError as error:
        raise CryptoFailed("a wrapped data key does not begin with a point of its curve") from error
    mac_key, stream = _keys(point, private.exchange(ec.ECDH(), ephemeral), len(hidden))
    if not hmac.compare_digest(_mac(mac_key, hidden), mac):
        raise CryptoFailed("a wrapped data key was made for another key")
    return _xor(hidden, stream)


def _keys(point: bytes, secret: bytes, size: int) -> tuple[bytes, bytes]:
    wanted = _MAC_KEY_BYTES + size
    derived = b""
    counter = 1
    while len(derived) < wanted:
        derived += hashlib.sha1(point + secret + counter.to_bytes(4, "big")).digest()
        counter += 1
    return derived[:_MAC_KEY_BYTES], derived[_MAC_KEY_BYTES:wanted]


def _mac(key: bytes, hidden: bytes) -> bytes:
    return hmac.new(key, hidden + bytes(8), hashlib.sha1).digest()


def _xor(data: bytes, stream: bytes) -> bytes:
    return bytes(left ^ right for left, right in zip(data, stream, strict=True))
