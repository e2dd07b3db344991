# SPDX-License-Identifier: Apache-2.0
"""How a ledger client and a bookie prove to each other that they know one secret, in messages of BookKeeper's AUTH.

    client: nonce — bookie: nonce, proof — client: proof — bookie: nothing, which admits

Each proof covers both nonces and who gives it, so that none can be used again or sent back; the secret itself is never
sent. Whoever is wrong is refused, and nothing is said about why.
Decides.
"""

import hmac
from collections.abc import Callable
from typing import Final

PLUGIN: Final = "magnetar-shared-secret"
NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32

_CLIENT: Final = b"ledger client"
_BOOKIE: Final = b"bookie"

Nonce = Callable[[int], bytes]
"""Bytes that nobody can guess."""


def _proof(secret: bytes, who: bytes, client_nonce: bytes, bookie_nonce: bytes) -> bytes:
    return hmac.digest(secret, who + client_nonce + bookie_nonce, "sha256")


class BookieSide:
    """One connection's admission. `is_admitted` once the client has proven itself; a wrong step ends it for good."""

    __slots__ = ("_client_nonce", "_nonce", "_own_nonce", "_refused", "_secret", "is_admitted")

    def __init__(self, secret: bytes, nonce: Nonce) -> None:
        self._secret = secret
        self._nonce = nonce
        self._client_nonce = self._own_nonce = b""
        self._refused = False
        self.is_admitted = False

    def on_message(self, plugin: str, payload: bytes) -> bytes | None:
        """What to answer; None: refused."""
        if self._refused or self.is_admitted or plugin != PLUGIN:
            self._refused = True
            return None
        if not self._own_nonce:
            if len(payload) != NONCE_BYTES:
                self._refused = True
                return None
            self._client_nonce, self._own_nonce = payload, self._nonce(NONCE_BYTES)
            return self._own_nonce + _proof(self._secret, _BOOKIE, self._client_nonce, self._own_nonce)
        expected = _proof(self._secret, _CLIENT, self._client_nonce, self._own_nonce)
        self.is_admitted = hmac.compare_digest(expected, payload)
        self._refused = not self.is_admitted
        return b"" if self.is_admitted else None


class ClientSide:
    """The other end of one connection."""

    __slots__ = ("_own_nonce", "_proved", "_secret", "is_admitted")

    def __init__(self, secret: bytes, nonce: Nonce) -> None:
        self._secret = secret
        self._own_nonce = nonce(NONCE_BYTES)
        self._proved = False
        self.is_admitted = False

    def first(self) -> bytes:
        return self._own_nonce

    def on_answer(self, plugin: str, payload: bytes) -> bytes | None:
        """What to send next; None when there is nothing more to say: admitted, or not to be trusted."""
        if plugin != PLUGIN:
            return None
        if self._proved:
            self.is_admitted = not payload
            return None
        bookie_nonce, proof = payload[:NONCE_BYTES], payload[NONCE_BYTES:]
        if not hmac.compare_digest(proof, _proof(self._secret, _BOOKIE, self._own_nonce, bookie_nonce)):
            return None
        self._proved = True
        return _proof(self._secret, _CLIENT, self._own_nonce, bookie_nonce)
