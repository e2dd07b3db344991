# SPDX-License-Identifier: Apache-2.0
"""End-to-end encryption: payloads that only holders of a private key can read, in the Java client's format.

A payload is encrypted with AES-GCM under a data key; the data key travels in the metadata, encrypted once per
receiver with that receiver's public RSA or elliptic-curve key. Data keys are made new every few hours. Never keeps a
private key longer than it is used.
Carries.
"""

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from magnetar.client import ecies
from magnetar.client.options import ProducerCryptoFailureAction
from magnetar.errors import CryptoFailed
from magnetar.runtime.clock import WallClock
from magnetar.runtime.secret_bytes import secret_bytes
from magnetar.runtime.small_file import read_small_file
from magnetar.wire.proto import pulsar_api_pb2 as pb

KEY_FILE_BYTES_MAX: Final = 64 * 1024
DATA_KEY_HOURS: Final = 4
DATA_KEYS_MAX: Final = 1_000
NONCE_BYTES: Final = 12


class EncryptionKey(NamedTuple):
    """A key in PEM form, and metadata that travels with it."""

    data: bytes
    metadata: Mapping[str, str]


class CryptoKeyReader(ABC):
    """Where keys come from. Asked again whenever a data key is made, so keys may be rotated."""

    @abstractmethod
    def public_key(self, name: str, metadata: Mapping[str, str]) -> EncryptionKey:
        """For producers. Raises CryptoFailed if there is none."""

    @abstractmethod
    def private_key(self, name: str, metadata: Mapping[str, str]) -> EncryptionKey:
        """For consumers."""


class KeyFiles(CryptoKeyReader):
    """One pair of PEM files for every name; either may be missing."""

    def __init__(self, public_key_path: str | None = None, private_key_path: str | None = None) -> None:
        self._public = public_key_path
        self._private = private_key_path

    def public_key(self, name: str, metadata: Mapping[str, str]) -> EncryptionKey:
        return self._read(self._public, name, "public")

    def private_key(self, name: str, metadata: Mapping[str, str]) -> EncryptionKey:
        return self._read(self._private, name, "private")

    def _read(self, path: str | None, name: str, kind: str) -> EncryptionKey:
        if not path:
            raise CryptoFailed(f"there is no {kind} key for {name!r}: its path was not given")
        return EncryptionKey(read_small_file(path, KEY_FILE_BYTES_MAX), {})


class KeysByName(CryptoKeyReader):
    """PEM keys in memory, by name."""

    def __init__(self, public: Mapping[str, bytes] | None = None, private: Mapping[str, bytes] | None = None) -> None:
        self._public = dict(public or {})
        self._private = dict(private or {})

    def public_key(self, name: str, metadata: Mapping[str, str]) -> EncryptionKey:
        return self._find(self._public, name, "public")

    def private_key(self, name: str, metadata: Mapping[str, str]) -> EncryptionKey:
        return self._find(self._private, name, "private")

    def _find(self, keys: Mapping[str, bytes], name: str, kind: str) -> EncryptionKey:
        if name not in keys:
            raise CryptoFailed(f"there is no {kind} key named {name!r}")
        return EncryptionKey(keys[name], {})


class MessageEncryption:
    """A producer's side."""

    def __init__(
        self,
        names: Sequence[str],
        reader: CryptoKeyReader,
        clock: WallClock,
        failure_action: ProducerCryptoFailureAction = ProducerCryptoFailureAction.FAIL,
    ) -> None:
        self._names = names
        self._reader = reader
        self._clock = clock
        self._failure_action = failure_action
        self._cipher: AESGCM | None = None
        self._keys: list[pb.EncryptionKeys] = []
        self._renew_at_ms = 0

    def encrypt(self, payload: bytes, metadata: pb.MessageMetadata) -> bytes:
        """The encrypted payload; the metadata says how to read it. Raises CryptoFailed unless told to send plain."""
        try:
            if self._cipher is None or self._clock.now_ms() >= self._renew_at_ms:
                self._renew()
        except CryptoFailed:
            if self._failure_action is ProducerCryptoFailureAction.SEND:
                return payload
            raise
        assert self._cipher is not None
        nonce = secret_bytes(NONCE_BYTES)
        metadata.encryption_keys.extend(self._keys)
        metadata.encryption_param = nonce
        return self._cipher.encrypt(nonce, payload, None)

    def _renew(self) -> None:
        data_key = AESGCM.generate_key(bit_length=256)
        keys = []
        for name in self._names:
            public = _key_from(self._reader.public_key, name, {})
            wrapped = pb.EncryptionKeys(key=name, value=_wrap(data_key, public.data, name))
            for key, value in public.metadata.items():
                wrapped.metadata.add(key=key, value=value)
            keys.append(wrapped)
        self._keys, self._cipher = keys, AESGCM(data_key)
        self._renew_at_ms = self._clock.now_ms() + DATA_KEY_HOURS * 3_600_000


class MessageDecryption:
    """A consumer's side. Keeps the data keys that it unwrapped, a bounded number of them."""

    def __init__(self, reader: CryptoKeyReader | None) -> None:
        self._reader = reader
        self._ciphers: OrderedDict[bytes, AESGCM] = OrderedDict()

    def decrypt(self, payload: bytes | memoryview, metadata: pb.MessageMetadata) -> bytes:
        """Raises CryptoFailed if no key fits."""
        if self._reader is None:
            raise CryptoFailed("the message is encrypted, and this consumer has no crypto_key_reader")
        problem = "it names no key"
        for key in metadata.encryption_keys:
            try:
                return self._cipher(key).decrypt(metadata.encryption_param, bytes(payload), None)
            except CryptoFailed as error:
                problem = str(error)
            except (InvalidTag, ValueError):
                problem = f"the data key for {key.key!r} does not fit"
        raise CryptoFailed(f"an encrypted message cannot be read: {problem}")

    def _cipher(self, key: pb.EncryptionKeys) -> AESGCM:
        known = self._ciphers.get(key.value)
        if known is not None:
            self._ciphers.move_to_end(key.value)
            return known
        assert self._reader is not None
        metadata = {pair.key: pair.value for pair in key.metadata}
        private = _key_from(self._reader.private_key, key.key, metadata)
        cipher = AESGCM(_unwrap(key.value, private.data, key.key))
        self._ciphers[key.value] = cipher
        if len(self._ciphers) > DATA_KEYS_MAX:
            self._ciphers.popitem(last=False)
        return cipher


def _key_from(
    read: Callable[[str, Mapping[str, str]], EncryptionKey], name: str, metadata: Mapping[str, str]
) -> EncryptionKey:
    """A reader may be the application's own: whatever it raises, there is no key."""
    try:
        return read(name, metadata)
    except CryptoFailed:
        raise
    except Exception as error:
        raise CryptoFailed(f"the key {name!r} cannot be read: {error}") from error


def _oaep() -> padding.OAEP:
    # The format's choice, and every client's; OAEP does not rely on the hash being free of collisions.
    return padding.OAEP(padding.MGF1(SHA1()), SHA1(), None)


def _wrap(data_key: bytes, pem: bytes, name: str) -> bytes:
    try:
        public = load_pem_public_key(pem)
    except ValueError as error:
        raise CryptoFailed(f"the public key {name!r} is no PEM key") from error
    if isinstance(public, rsa.RSAPublicKey):
        return public.encrypt(data_key, _oaep())
    if isinstance(public, ec.EllipticCurvePublicKey):
        return ecies.encrypt(data_key, public)
    raise CryptoFailed(f"the public key {name!r} is neither RSA nor elliptic-curve")


def _unwrap(wrapped: bytes, pem: bytes, name: str) -> bytes:
    try:
        private = load_pem_private_key(pem, None)
        if isinstance(private, rsa.RSAPrivateKey):
            return private.decrypt(wrapped, _oaep())
        if isinstance(private, ec.EllipticCurvePrivateKey):
            return ecies.decrypt(wrapped, private)
    except (ValueError, TypeError) as error:
        raise CryptoFailed(f"the private key {name!r} cannot open the data key") from error
    raise CryptoFailed(f"the private key {name!r} is neither RSA nor elliptic-curve")
