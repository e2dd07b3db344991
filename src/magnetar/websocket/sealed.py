# SPDX-License-Identifier: Apache-2.0
"""Messages that a WebSocket client has encrypted itself, and the keys that it names in its query.

The service never sees what is inside; it writes into the metadata what a consumer needs to open it.
Decides.
"""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from magnetar.client.outgoing import OutgoingMessage
from magnetar.errors import BadSetting, NotSupported
from magnetar.websocket.texts import ProducerText
from magnetar.wire.proto import pulsar_api_pb2 as pb

KEYS_MAX: Final = 100


def keys_of(parameters: Mapping[str, str]) -> tuple[pb.EncryptionKeys, ...]:
    """Those of `encryptionKeys`: base64 of {name: {"keyValue": base64, "metadata": {…}}}; none without it.

    NotSupported for names of keys that the service itself should use: it has none.
    """
    text = parameters.get("encryptionKeys")
    if text is None:
        return ()
    found = _decoded(text.strip())
    if not found:
        raise NotSupported(
            "This service has no keys of its own: encryptionKeys should be the base64 of a JSON object of keys, "
            "and the messages encrypted by the client"
        )
    if len(found) > KEYS_MAX:
        raise BadSetting(f"encryptionKeys has {len(found)} keys, more than {KEYS_MAX}")
    return tuple(_key(name, described) for name, described in found.items())


class SealedMessage(OutgoingMessage):
    """A message whose payload goes on as it came."""

    __slots__ = ("_keys", "_wanted")

    def __init__(self, wanted: ProducerText, keys: Sequence[pb.EncryptionKeys], deliver_at_ms: int) -> None:
        super().__init__(
            wanted.payload,
            wanted.properties,
            wanted.key,
            replicate_to=tuple(wanted.replication_clusters or ()),
            event_time_ms=wanted.event_time_ms or 0,
            deliver_at_ms=deliver_at_ms,
        )
        self._keys = keys
        self._wanted = wanted

    @property
    def is_plain(self) -> bool:
        return False

    def fill(self, metadata: pb.MessageMetadata) -> None:
        super().fill(metadata)
        metadata.encryption_keys.extend(self._keys)
        if self._wanted.encryption_param:
            metadata.encryption_param = self._wanted.encryption_param
        if self._wanted.compression is not None and self._wanted.uncompressed_bytes is not None:
            metadata.compression = self._wanted.compression
            metadata.uncompressed_size = self._wanted.uncompressed_bytes


def _decoded(text: str) -> Mapping[str, Any]:
    """Empty where it is no such object, as Pulsar takes it for names of keys then."""
    try:
        found = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), validate=True))
    except (binascii.Error, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _key(name: str, described: Any) -> pb.EncryptionKeys:
    value = described.get("keyValue") if isinstance(described, dict) else None
    metadata = described.get("metadata") or {} if isinstance(described, dict) else {}
    if not name.strip() or not isinstance(value, str) or not isinstance(metadata, dict):
        raise BadSetting('A key of encryptionKeys should be "name": {"keyValue": base64, "metadata": {…}}')
    try:
        key = pb.EncryptionKeys(key=name.strip(), value=base64.b64decode(value, validate=True))
    except (binascii.Error, ValueError) as error:
        raise BadSetting(f"keyValue of {name[:50]!r} in encryptionKeys is not base64: {error}") from error
    for each, text in metadata.items():
        key.metadata.add(key=each, value=str(text))
    return key
